package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Limits of what a search for jobs gives.
const (
	DefaultJobsPage = 50  // jobs of one answer
	MaxJobsPage     = 500 // the most of one answer
)

// JobList is the answer about an account's jobs, the newest first. Their completions are without logs.
type JobList struct {
	Jobs []schemas.Job `json:"jobs"`
	// More says that there are older jobs, or that the search ended before it had looked at all.
	More bool `json:"more"`
}

// getJobs lists the account's jobs.
func (g *Gateway) getJobs(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "state", "conversation", "limit")
	if err != nil {
		return err
	}
	want, err := jobFilter(q)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", DefaultJobsPage, 1, MaxJobsPage)
	if err != nil {
		return err
	}
	list, err := g.findJobs(r.Context(), a, want, int(limit))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// jobFilter reads which jobs are meant. The state running means all that have not settled.
func jobFilter(q web.Query) (func(schemas.Job) bool, error) {
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

// findJobs lists the jobs of the account, the newest first.
func (g *Gateway) findJobs(ctx context.Context, a schemas.AccountID, want func(schemas.Job) bool, limit int) (JobList, error) {
	jobs, more, err := streams.Newest(ctx, lifecycle.OpenJobs(g.Bus), a, schemas.JobKey(a, "*"), want, limit)
	for i, j := range jobs {
		jobs[i] = brief(j.Public())
	}
	return JobList{Jobs: jobs, More: more}, err
}

// brief keeps an answer with many jobs small.
func brief(j schemas.Job) schemas.Job {
	if j.Completion != nil {
		c := *j.Completion
		c.Logs, c.JobArtifacts = "", schemas.JobArtifacts{}
		j.Completion = &c
	}
	return j
}

// getJob reports how far a job is, and how it ended.
func (g *Gateway) getJob(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	j, err := g.findJob(r, a)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, j.Public())
	return nil
}

func (g *Gateway) findJob(r *http.Request, a schemas.AccountID) (schemas.Job, error) {
	p, err := lifecycle.FindJob(r.Context(), g.Bus, a, pathJob(r))
	return p.Value, err
}

func pathJob(r *http.Request) schemas.JobID {
	return schemas.JobID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// postJobStop ends a job: one that runs by its worker, one that still waits by cancelling its call.
func (g *Gateway) postJobStop(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	reason, err := cancelReason(w, r)
	if err != nil {
		return err
	}
	j, err := g.stopJob(r.Context(), a, pathJob(r), reason)
	if err != nil {
		return err
	}
	if again, err := g.findJob(r, a); err == nil { // what is known now is better, but not needed
		j = again
	}
	web.WriteJSON(w, http.StatusAccepted, j.Public())
	return nil
}

// stopJob asks for the end of a job and returns it as it was before.
func (g *Gateway) stopJob(ctx context.Context, a schemas.AccountID, id schemas.JobID, reason string) (schemas.Job, error) {
	p, err := lifecycle.FindJob(ctx, g.Bus, a, id)
	if err != nil {
		return schemas.Job{}, err
	}
	if p.Value.State == schemas.JobWaiting {
		call, err := streams.FindCall(ctx, g.Bus, a, p.Value.Call)
		switch {
		case errors.Is(err, schemas.ErrNotFound): // it is over
			return p.Value, nil
		case err != nil:
			return p.Value, err
		}
		return p.Value, lifecycle.Cancel(ctx, g.Bus, call, reason)
	}
	_, err = lifecycle.ControlJob(ctx, g.Bus, schemas.JobCommand{Account: a, Job: id, Action: schemas.JobActionStop, Reason: reason})
	return p.Value, err
}

// postJobSignal sends a signal to a job's processes.
func (g *Gateway) postJobSignal(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
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
	_, err = lifecycle.ControlJob(r.Context(), g.Bus, schemas.JobCommand{
		Account: a, Job: pathJob(r), Action: schemas.JobActionSignal, Signal: signal,
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, jobSignal{signal})
	return nil
}

// jobSignal is a signal to a job, and the answer that it was sent.
type jobSignal struct {
	Signal string `json:"signal"`
}

// decodeSignal reads {"signal":"TERM"}; SIGTERM is TERM too.
func decodeSignal(body []byte) (string, error) {
	var in jobSignal
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

// postJobStdin writes the body, whatever its type, to a job's standard input.
func (g *Gateway) postJobStdin(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
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
	reply, err := lifecycle.ControlJob(r.Context(), g.Bus, schemas.JobCommand{
		Account: a, Job: pathJob(r), Action: schemas.JobActionStdin, Data: body, EOF: eof,
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]int{"written": reply.Written})
	return nil
}
