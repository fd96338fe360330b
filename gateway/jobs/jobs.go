// Package jobs serves background jobs: their records and logs, requests to stop or signal them or write to their input, and reports of
// their ends.
package jobs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Limits of what a search for jobs gives.
const (
	DefaultPage = 50  // jobs of one answer
	MaxPage     = 500 // the most of one answer
)

// Options are the settings of [Jobs].
type Options struct {
	Bus         *streams.Bus
	Credentials credentials.Verifier
	// Wait takes a slot for a request that waits or streams. Codes: exhausted, unavailable.
	Wait func(w http.ResponseWriter, a schemas.AccountID) (*quota.Place, error)
	// Answers are the bytes of answers that clients have not read yet.
	Answers *quota.Ledger
	// Tokens limits concurrent lookups of jobs by their tokens: see [MostTokens].
	Tokens *quota.Ledger
	// Draining ends when the gateway begins to stop.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	// Stall is how long one write to a client may block before the client is dropped.
	Stall time.Duration
}

// Jobs has the HTTP handlers of background jobs. It is safe for concurrent use.
type Jobs struct{ o Options }

// New returns the handlers.
func New(o Options) *Jobs { return &Jobs{o} }

// List is the response with an account's jobs, the newest first. Their completions have no logs.
type List struct {
	Jobs []schemas.Job `json:"jobs"`
	// More reports that there are older jobs, or that the search ended early.
	More bool `json:"more"`
}

// List lists the account's jobs.
func (h *Jobs) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "state", "conversation", "limit")
	if err != nil {
		return err
	}
	want, err := filter(q)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return err
	}
	list, err := h.Find(r.Context(), a, want, int(limit))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// filter parses the query of a list. The state running means all jobs that have not ended. Code: invalid.
func filter(q web.Query) (func(schemas.Job) bool, error) {
	state := schemas.JobState(strings.ToValidUTF8(q.Values.Get("state"), "\uFFFD"))
	if state != "" && !slices.Contains(schemas.JobStates(), state) {
		return nil, schemas.Invalidf("state",
			"%q is unknown: use running, or how a job ended: completed, failed, stopped, expired, lost, not_started",
			schemas.Quotable(string(state)))
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.Values.Get("conversation"), "\uFFFD"))
	if conv != "" {
		if err := conv.Validate(); err != nil {
			return nil, err
		}
	}
	return func(j schemas.Job) bool {
		fits := state == "" || j.State == state || state == schemas.JobRunning && !j.State.Final()
		return fits && (conv == "" || j.Conversation == conv)
	}, nil
}

// Find returns the jobs of the account that want accepts, the newest first.
func (h *Jobs) Find(ctx context.Context, a schemas.AccountID, want func(schemas.Job) bool, limit int) (List, error) {
	jobs, more, err := streams.Newest(ctx, lifecycle.OpenJobs(h.o.Bus), a, schemas.JobKey(a, "*"), want, limit)
	for i, j := range jobs {
		jobs[i] = brief(j.Public())
	}
	return List{Jobs: jobs, More: more}, err
}

// brief returns the job without its logs and artifacts, to keep lists small.
func brief(j schemas.Job) schemas.Job {
	if j.Completion != nil {
		c := *j.Completion
		c.Logs, c.JobArtifacts = "", schemas.JobArtifacts{}
		j.Completion = &c
	}
	return j
}

// Get returns a job: its state, and how it ended.
func (h *Jobs) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	j, err := h.find(r, a)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, j.Public())
	return nil
}

func (h *Jobs) find(r *http.Request, a schemas.AccountID) (schemas.Job, error) {
	p, err := lifecycle.FindJob(r.Context(), h.o.Bus, a, pathID(r))
	return p.Value, err
}

func pathID(r *http.Request) schemas.JobID {
	return schemas.JobID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// PostStop stops a job: a running one through its worker, a waiting one by cancelling its call.
func (h *Jobs) PostStop(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	reason, err := web.ReadReason(w, r)
	if err != nil {
		return err
	}
	j, err := h.Stop(r.Context(), a, pathID(r), reason)
	if err != nil {
		return err
	}
	if again, err := h.find(r, a); err == nil { // what is known now is better, but not needed
		j = again
	}
	web.WriteJSON(w, http.StatusAccepted, j.Public())
	return nil
}

// Stop requests that a job ends, and returns the job as it was before.
func (h *Jobs) Stop(ctx context.Context, a schemas.AccountID, id schemas.JobID, reason string) (schemas.Job, error) {
	p, err := lifecycle.FindJob(ctx, h.o.Bus, a, id)
	if err != nil {
		return schemas.Job{}, err
	}
	if p.Value.State == schemas.JobWaiting {
		call, err := h.o.Bus.Calls().Find(ctx, a, p.Value.Call)
		switch {
		case errors.Is(err, schemas.ErrNotFound): // it is over
			return p.Value, nil
		case err != nil:
			return p.Value, err
		}
		return p.Value, lifecycle.Cancel(ctx, h.o.Bus, call, reason)
	}
	_, err = lifecycle.ControlJob(ctx, h.o.Bus, schemas.JobCommand{Account: a, Job: id, Action: schemas.JobActionStop, Reason: reason})
	return p.Value, err
}

// PostSignal sends a signal to a job's processes.
func (h *Jobs) PostSignal(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	signal, err := decodeSignal(body)
	if err != nil {
		return err
	}
	_, err = lifecycle.ControlJob(r.Context(), h.o.Bus, schemas.JobCommand{
		Account: a, Job: pathID(r), Action: schemas.JobActionSignal, Signal: signal,
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, signalRequest{signal})
	return nil
}

// signalRequest is the body of a request to send a signal to a job, and the response.
type signalRequest struct {
	Signal string `json:"signal"`
}

// decodeSignal decodes {"signal":"TERM"}; SIGTERM is accepted too. Code: invalid.
func decodeSignal(body []byte) (string, error) {
	var in signalRequest
	if err := schemas.DecodeStrict(body, schemas.MaxRequest, &in); err != nil {
		return "", err
	}
	s := strings.TrimPrefix(in.Signal, "SIG")
	if !slices.Contains(schemas.JobSignals(), s) {
		return "", schemas.Invalidf("signal", "%q is unknown: use one of %s", schemas.Quotable(in.Signal),
			strings.Join(schemas.JobSignals(), ", "))
	}
	return s, nil
}

// PostStdin writes the body, of any content type, to a job's standard input.
func (h *Jobs) PostStdin(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "eof")
	if err != nil {
		return err
	}
	eof, err := q.Flag("eof")
	if err != nil {
		return err
	}
	body, err := web.ReadBody(w, r, schemas.MaxJobStdin, "write it in pieces")
	if err != nil {
		return err
	}
	if len(body) == 0 && !eof {
		return schemas.Invalidf("", "the body is empty: send what is to be written, or eof=1 to close the input")
	}
	reply, err := lifecycle.ControlJob(r.Context(), h.o.Bus, schemas.JobCommand{
		Account: a, Job: pathID(r), Action: schemas.JobActionStdin, Data: body, EOF: eof,
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]int{"written": reply.Written})
	return nil
}
