// Package runs finds out, from the events of a conversation, which calls, jobs and turns run and which events they still need. It is pure.
package runs

import (
	"cmp"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// How long what was begun may run. After that no end is to be expected: it was lost with the end of the log, or never published.
const (
	day         = 24 * time.Hour
	longestCall = 4 * day // a person's time to answer, its deadline, and that of a worker to find it dead
	longestJob  = schemas.MaxJobLifetime + day
)

// State finds out which calls, jobs and turns run on a conversation and where each began, from its events in the order of the log. It is
// for one goroutine.
type State struct {
	calls, jobs, turns map[string]beginning // by subject
	// over has the calls and jobs that have ended, with the time of the event that said so: what is published about them later begins nothing.
	// An id of a call may be used again, see reuse.
	over map[string]time.Time
	past []EndedCall
}

// EndedCall is a call that has ended.
type EndedCall struct {
	ID    schemas.CallID
	Begin uint64    // the first event of it that is there
	At    time.Time // of its end
}

// beginning is the position and time of the first event of a call, job or turn.
type beginning struct {
	seq  uint64
	time time.Time
}

// New returns the State of an empty conversation.
func New() *State {
	return &State{map[string]beginning{}, map[string]beginning{}, map[string]beginning{}, map[string]time.Time{}, nil}
}

// Next adds the next event.
func (s *State) Next(seq uint64, e schemas.Event) {
	at := beginning{seq, e.Time}
	switch e.Type {
	case schemas.CallAccepted, schemas.ApprovalRequested:
		s.reuse(e)
		s.begin(s.calls, e.Subject, at)
	case schemas.CallStarted:
		s.begin(s.calls, e.Subject, at)
	case schemas.CallFinished:
		begin := seq
		if b, ok := s.calls[e.Subject]; ok {
			begin = b.seq
		}
		s.past = append(s.past, EndedCall{schemas.CallID(e.Subject), begin, e.Time})
		s.end(s.calls, e)
	case schemas.JobStarted:
		if call, ok := s.calls[string(launchedBy(e))]; ok { // the call that launched it is a part of it
			at.seq = call.seq
		}
		s.begin(s.jobs, e.Subject, at)
	case schemas.JobFinished:
		s.end(s.jobs, e)
	case schemas.AgentStarted:
		if _, ok := s.turns[e.Subject]; !ok {
			s.turns[e.Subject] = at
		}
	case schemas.AgentFinished, schemas.AgentFailed:
		delete(s.turns, e.Subject)
	case schemas.CallRejected: // of a publication, which was no call: its id may be that of one which runs
	case schemas.CallOutput, schemas.ArtifactCreated,
		schemas.ApprovalDecided, schemas.FollowUpCreated, schemas.AgentStepFinished, schemas.Message, schemas.MessageDelta,
		schemas.AgentStepRetried,
		schemas.MessageReceived, schemas.DeliverySent, schemas.DeliveryFailed:
	}
}

func (s *State) begin(of map[string]beginning, subject string, at beginning) {
	_, begun := of[subject]
	if _, over := s.over[subject]; !begun && !over {
		of[subject] = at
	}
}

func (s *State) end(of map[string]beginning, e schemas.Event) {
	delete(of, e.Subject)
	s.over[e.Subject] = e.Time
}

// reuse lets an id that was used before begin again if the event is of another call: an id is free a day after it was taken, once its call
// has ended. Call.accepted and approval.requested carry the time at which the call was accepted, even if published late, so those of the
// former call are not later than its end.
func (s *State) reuse(e schemas.Event) {
	if ended, over := s.over[e.Subject]; over && e.Time.After(ended) {
		delete(s.over, e.Subject)
	}
}

// FirstNeeded returns the sequence of the first event that calls, jobs and turns that run at a time still need; otherwise if none run.
func (s *State) FirstNeeded(now time.Time, otherwise uint64) uint64 {
	seq := otherwise
	for _, b := range s.calls {
		if now.Sub(b.time) < longestCall {
			seq = min(seq, b.seq)
		}
	}
	for _, b := range s.jobs {
		if now.Sub(b.time) < longestJob {
			seq = min(seq, b.seq)
		}
	}
	for _, b := range s.turns { // the process that reports ends of turns may be unavailable for long: the stream's own limit ends them
		seq = min(seq, b.seq)
	}
	return seq
}

// Ended returns the calls that have ended and whose first event is before a sequence, by the order of these events.
func (s *State) Ended(before uint64) []EndedCall {
	list := slices.Clone(s.past)
	list = slices.DeleteFunc(list, func(c EndedCall) bool { return c.Begin >= before })
	slices.SortFunc(list, func(a, b EndedCall) int { return cmp.Compare(a.Begin, b.Begin) })
	return list
}

// Idle reports whether no call, job or turn runs, whatever the time.
func (s *State) Idle() bool { return len(s.calls)+len(s.jobs)+len(s.turns) == 0 }
