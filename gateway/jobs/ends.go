package jobs

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// HeaderToken carries the token of a job.
	HeaderToken = "X-Job-Token"
	// tokenGrace is how long after the end of a job's lifetime its token is good: a supervisor may have
	// to try for a while.
	tokenGrace = time.Hour
	// MostTokens limits how many jobs are looked up by tokens at the same time, since such requests are not authenticated before the
	// lookup.
	MostTokens = 64
)

// endAnswer is the response to the first report of a job's end.
type endAnswer struct {
	Status   string        `json:"status"`   // accepted
	ResultID schemas.JobID `json:"resultId"` //nolint:tagliatelle // callbacks are in camel case
}

// settledAnswer is the response to a report about a job that has ended already.
type settledAnswer struct {
	Error  *schemas.Error   `json:"error"`
	Status schemas.JobState `json:"status"` // how it ended
}

// PostEnd accepts the report of a job's supervisor that the job has ended, authenticated by the job's token. The first report counts; a
// repetition of it may get either response.
func (h *Jobs) PostEnd(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	token := r.Header.Get(HeaderToken)
	if token == "" {
		return schemas.Invalidf(HeaderToken, "is missing: the header carries the job's token")
	}
	now := h.o.Bus.Now()
	place, full := h.o.Tokens.Take("")
	if full != quota.Free {
		web.Later(w.Header())
		return schemas.Errorf(schemas.Unavailable, "as many jobs are being looked up by their tokens as may be: try again later")
	}
	j, err := h.ofToken(r.Context(), pathID(r), token, now)
	place.Release()
	if err != nil {
		return err
	}
	if err := web.HoldOf(r.Context()).Enter(w, j.Account); err != nil {
		return err
	}
	return h.takeReport(w, r, j, now)
}

// PostComplete accepts the report of a job's end from the account itself, for work done outside of Sandjet.
func (h *Jobs) PostComplete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	p, err := lifecycle.FindJob(r.Context(), h.o.Bus, a, pathID(r))
	if err != nil {
		return err
	}
	return h.takeReport(w, r, p.Value, h.o.Bus.Now())
}

// takeReport decodes the report of a job's end and stores it, if it is the first.
func (h *Jobs) takeReport(w http.ResponseWriter, r *http.Request, j schemas.Job, now time.Time) error {
	body, err := web.ReadJSONUpTo(w, r, schemas.MaxJobCallback, "send only the end of the logs")
	if err != nil {
		return err
	}
	report, err := schemas.DecodeJobCallback(body)
	if err != nil {
		return err
	}
	settled, err := lifecycle.Complete(r.Context(), h.o.Bus, report.Completion(j, now))
	if errors.Is(err, schemas.ErrConflict) {
		web.WriteJSON(w, http.StatusConflict, settledAnswer{
			Error:  &schemas.Error{Code: schemas.Conflict, Message: "the job has settled already: the first report counts"},
			Status: settled.State,
		})
		return nil
	}
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, endAnswer{Status: "accepted", ResultID: j.ID})
	return nil
}

// ofToken returns the job that a token is for. If the job or the token is invalid, the error is not_found, always with the same message.
func (h *Jobs) ofToken(ctx context.Context, id schemas.JobID, token string, now time.Time) (schemas.Job, error) {
	account, _, _ := strings.Cut(token, ".")
	var j schemas.Job
	p, err := lifecycle.FindJob(ctx, h.o.Bus, schemas.AccountID(account), id)
	switch code := schemas.CodeOf(err); {
	case err == nil:
		j = p.Value
	case code != schemas.NotFound && code != schemas.Invalid: // of the log: the supervisor tries again
		return schemas.Job{}, err
	}
	if !opens(token, j, now) {
		return schemas.Job{}, schemas.Errorf(schemas.NotFound, "no such job, or its token is invalid or expired")
	}
	return j, nil
}

// opens reports whether the token is the job's and has not expired. It takes as long for the zero Job as for a wrong token.
func opens(token string, j schemas.Job, now time.Time) bool {
	sum := sha256.Sum256([]byte(token))
	hash := []byte(j.TokenHash)
	if len(hash) != hex.EncodedLen(len(sum)) {
		hash = make([]byte, hex.EncodedLen(len(sum))) // no hex digits: nothing is equal to it
	}
	same := subtle.ConstantTimeCompare(hash, []byte(hex.EncodeToString(sum[:]))) == 1
	return same && now.Before(j.Deadline.Add(tokenGrace))
}
