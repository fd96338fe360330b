// Package callstate says how far calls are, by what the events of their conversations say: of one call, of several calls of a conversation,
// and of those that a list shows.
package callstate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// State is what the events of a conversation say about one call.
type State struct {
	Call     schemas.Call
	Accepted bool                  // call.accepted is there
	Started  []schemas.StartedData // one for each start, oldest first
	Last     time.Time             // when the last start was, by the clock of the worker that started it
	Result   *schemas.Result       // nil while there is none
	// Forgotten says that nothing of the call is on its conversation and that retention may have removed it: the call is older
	// than the log recognises what is published twice, and nothing proves that its conversation is whole since it was stored.
	// It is then not known whether the call was started or ended. See [callstore.Store.Acknowledged].
	Forgotten bool
}

// add adds what an event says, if it is about this call.
func (s *State) add(e schemas.Event) error {
	if e.Subject != string(s.Call.ID) || e.Type == schemas.CallFinished && s.Result != nil {
		return nil
	}
	news, err := NewsOf(e)
	if err == nil {
		s.Learn(news)
	}
	return err
}

// News is what an event says about the start or the end of a call.
type News struct {
	call     schemas.CallID
	accepted bool
	started  *schemas.StartedData
	time     time.Time       // of the start
	result   *schemas.Result // shared by all that learn of it, and never changed
}

// NewsOf reads what an event says.
func NewsOf(e schemas.Event) (News, error) {
	n := News{call: schemas.CallID(e.Subject)}
	switch e.Type {
	case schemas.CallAccepted:
		n.accepted = true
	case schemas.CallStarted:
		var d schemas.StartedData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return News{}, fmt.Errorf("read the start of call %s: %w", e.Subject, err)
		}
		n.started, n.time = &d, e.Time
	case schemas.CallFinished:
		var d schemas.Result
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return News{}, fmt.Errorf("read the result of call %s: %w", e.Subject, err)
		}
		n.result = &d
	default: // it says nothing about beginning or end
	}
	return n, nil
}

// Learn adds news that concern this call. If there are several results, the first counts.
func (s *State) Learn(n News) {
	if n.call != s.Call.ID {
		return
	}
	s.Accepted = s.Accepted || n.accepted
	if n.started != nil {
		s.Started, s.Last = append(s.Started, *n.started), n.time
	}
	if s.Result == nil {
		s.Result = n.result
	}
}

// EventOf reports whether an event id may be that of a start or end of call c.
func EventOf(id string, c schemas.Call) bool {
	prefix := c.EventID() + "."
	if len(id) < len(prefix) || id[:len(prefix)] != prefix {
		return false
	}
	const output = "output."
	rest := id[len(prefix):]
	return len(rest) < len(output) || rest[:len(output)] != output
}

// listedResult returns what a list needs of a result, without its output, because a list holds a hundred of them.
func listedResult(r *schemas.Result) *schemas.Result {
	if r == nil {
		return nil
	}
	l := &schemas.Result{Call: r.Call, Conversation: r.Conversation, Tool: r.Tool, Status: r.Status, Started: r.Started, Finished: r.Finished}
	if r.Output != nil {
		l.Output = &schemas.Output{OK: r.Output.OK, ExitCode: r.Output.ExitCode, TimedOut: r.Output.TimedOut}
	}
	return l
}

// Summary returns a result as lists need it, which is kept beside a payload in the object store; empty for other events.
func Summary(e schemas.Event) string {
	if e.Type != schemas.CallFinished {
		return ""
	}
	var r schemas.Result
	if json.Unmarshal(e.Data, &r) != nil {
		return ""
	}
	data, err := schemas.EncodeJSON(listedResult(&r))
	if err != nil {
		return ""
	}
	e.Data = data
	b, err := e.Encode()
	if err != nil {
		return ""
	}
	return string(b)
}

// Unseen reports whether nothing of the call was read.
func (s *State) Unseen() bool { return !s.Accepted && len(s.Started) == 0 && s.Result == nil }
