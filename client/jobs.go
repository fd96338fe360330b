package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
)

// JobsQuery selects background jobs. The zero value selects the account's newest.
type JobsQuery struct {
	State        string                 // one of [schemas.JobStates], or "running": all that have not settled
	Conversation schemas.ConversationID // empty: of all
	Limit        int                    // at most 500; 0: 50
}

// JobLogPage is a piece of a job's output.
type JobLogPage struct {
	Data   []byte
	Offset int64 // of the first byte of Data in the job's output; greater than requested if the beginning was dropped
	Next   int64 // where to read on
	Size   int64 // of all that was printed so far
	Ended  bool  // the job has ended: after Size there is no more
}

// Jobs reads and controls the background jobs of an account.
type Jobs struct{ transport }

// Jobs returns access to the account's background jobs. It sends no request.
func (c *Client) Jobs() Jobs { return Jobs{c.transport()} }

// List returns the account's background jobs, the newest first, without their logs. Code: invalid.
func (c Jobs) List(ctx context.Context, q JobsQuery) ([]schemas.Job, error) {
	values := url.Values{}
	if q.State != "" {
		values.Set("state", q.State)
	}
	if q.Conversation != "" {
		values.Set("conversation", string(q.Conversation))
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	var out struct {
		Jobs []schemas.Job `json:"jobs"`
	}
	err := c.keepAsking(ctx, http.MethodGet, withQuery("/v1/jobs", values), nil, &out)
	return out.Jobs, err
}

// Get returns a job: its state, and how it ended. Code: not_found, also seven days after its end.
func (c Jobs) Get(ctx context.Context, id schemas.JobID) (schemas.Job, error) {
	var j schemas.Job
	err := c.keepAsking(ctx, http.MethodGet, jobPath(id), nil, &j)
	return j, err
}

// Logs returns a piece of a job's output: at most limit bytes (0 means 256 KiB, the maximum) from offset on. Offset -1 means the last
// limit bytes. Codes: not_found, unsupported (its sandbox offers no logs of running jobs).
func (c Jobs) Logs(ctx context.Context, id schemas.JobID, offset int64, limit int) (JobLogPage, error) {
	values := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if limit > 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	var page struct {
		Text   string `json:"text"`
		Data   []byte `json:"data"`
		Offset int64  `json:"offset"`
		Next   int64  `json:"next"`
		Size   int64  `json:"size"`
		Ended  bool   `json:"ended"`
	}
	if err := c.keepAsking(ctx, http.MethodGet, withQuery(jobPath(id)+"/logs", values), nil, &page); err != nil {
		return JobLogPage{}, err
	}
	if page.Data == nil {
		page.Data = []byte(page.Text)
	}
	return JobLogPage{Data: page.Data, Offset: page.Offset, Next: page.Next, Size: page.Size, Ended: page.Ended}, nil
}

// FollowLogs writes a job's output from offset on to w, until the job has ended (then it returns nil) or ctx has. If the connection ends
// it reconnects and continues from there; bytes that the sandbox has dropped are skipped. Codes: as [Jobs.Logs]. An error of w ends it
// too.
func (c Jobs) FollowLogs(ctx context.Context, id schemas.JobID, offset int64, w io.Writer) error {
	for try := 0; ; try++ {
		at, err := c.followOnce(ctx, id, offset, w)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("follow %s: %w", id, ctx.Err())
		case err != nil && !errors.Is(err, errAgain):
			return err
		}
		if at != offset {
			offset, try = at, 0
		}
		// A stream may end because the job has, or because a gateway stops or a proxy closed it: a page shows which.
		if err == nil && offset >= 0 {
			page, err := c.Logs(ctx, id, offset, 0)
			if err != nil {
				return err
			}
			if _, err := w.Write(page.Data); err != nil {
				return fmt.Errorf("write the logs: %w", err)
			}
			offset = page.Next
			if page.Ended && page.Next >= page.Size {
				return nil
			}
		}
		if err := c.pause(ctx, try); err != nil {
			return err
		}
	}
}

// errAgain marks a failure that may pass.
var errAgain = errors.New("the connection ended early")

// followOnce copies the log over one connection and returns the offset it reached.
func (c Jobs) followOnce(ctx context.Context, id schemas.JobID, offset int64, w io.Writer) (int64, error) {
	path := withQuery(jobPath(id)+"/logs", url.Values{"follow": {"1"}, "offset": {strconv.FormatInt(offset, 10)}})
	resp, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {"text/plain"}})
	if err != nil {
		if schemas.CodeOf(err) == schemas.Unavailable {
			return offset, fmt.Errorf("%w: %w", errAgain, err)
		}
		return offset, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status says enough
		err := problem(resp.StatusCode, body)
		if passing(resp.StatusCode) {
			return offset, fmt.Errorf("%w: %w", errAgain, err)
		}
		return offset, err
	}
	if from, err := strconv.ParseInt(resp.Header.Get("Sandjet-Offset"), 10, 64); err == nil {
		offset = from
	}
	out := &written{w: w}
	n, err := io.Copy(out, resp.Body)
	switch {
	case out.err != nil:
		return offset + n, fmt.Errorf("write the logs: %w", out.err)
	case err != nil:
		return offset + n, fmt.Errorf("%w: %w", errAgain, err)
	}
	return offset + n, nil
}

// written is a writer that records its own write errors, which a new connection would not cure.
type written struct {
	w   io.Writer
	err error
}

func (o *written) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.err = err
	return n, err
}

// Stop stops a job: with TERM and, after a grace period, KILL to all its processes. It returns the job as it was when the gateway
// answered, which may be before its end. Codes: not_found, conflict (it has ended), unsupported.
func (c Jobs) Stop(ctx context.Context, id schemas.JobID, reason string) (schemas.Job, error) {
	var j schemas.Job
	err := c.keepAsking(ctx, http.MethodPost, jobPath(id)+"/stop", map[string]string{"reason": reason}, &j)
	return j, err
}

// Signal sends one of [schemas.JobSignals] to a job's processes. It is tried once: after unavailable it is unknown whether it was sent.
// Codes: invalid, not_found, conflict (it has ended), unsupported.
func (c Jobs) Signal(ctx context.Context, id schemas.JobID, signal string) error {
	return c.postOnce(ctx, jobPath(id)+"/signal", map[string]string{"signal": signal}, nil)
}

// Write writes at most 64 KiB to a job's standard input and returns how many bytes the job's pipe has accepted; with eof it then closes
// the input. It is tried once: after unavailable it is unknown whether it was written. Codes: invalid, not_found, conflict (it has ended,
// or its input is closed), unsupported, timeout (the job reads too slowly).
func (c Jobs) Write(ctx context.Context, id schemas.JobID, data []byte, eof bool) (int, error) {
	path := jobPath(id) + "/stdin"
	if eof {
		path += "?eof=1"
	}
	if data == nil {
		data = []byte{}
	}
	resp, err := c.do(ctx, http.MethodPost, path, data, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return 0, schemas.Wrap(schemas.Unavailable, "write to "+string(id), "the answer was cut off", err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, problem(resp.StatusCode, b)
	}
	var out struct {
		Written int `json:"written"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return 0, fmt.Errorf("decode the answer: %w", err)
	}
	return out.Written, nil
}

// AppendedAnswer has the id and the cursor of an appended event.
type AppendedAnswer struct {
	ID     string         `json:"id"`     // of the event on its conversation
	Cursor schemas.Cursor `json:"cursor"` // resumes after it
}

// AppendEvent appends an event to a conversation. It generates the id if there is none, so that retries append it once. Code: invalid.
func (c *Client) AppendEvent(ctx context.Context, conversation schemas.ConversationID, e schemas.AppendedEvent) (AppendedAnswer, error) {
	if e.ID == "" {
		e.ID = schemas.NewID("ev_")
	}
	var out AppendedAnswer
	err := c.transport().keepAsking(ctx, http.MethodPost, "/v1/conversations/"+url.PathEscape(string(conversation))+"/events", e, &out)
	return out, err
}

func jobPath(id schemas.JobID) string { return "/v1/jobs/" + url.PathEscape(string(id)) }

func withQuery(path string, values url.Values) string {
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
