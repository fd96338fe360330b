// Package streamcheck compares what clients received of conversations with the log. It works for every transport and every kind of client,
// and depends on none: it has pure functions of transcripts.
package streamcheck

import (
	"fmt"
	"maps"
	"slices"
)

// Seen is one event as a client received it, or as the log has it.
type Seen struct {
	Conversation string `json:"conv"`
	Cursor       string `json:"cursor"`
	// Prev is the cursor that the event named as its predecessor. If empty, it is not checked.
	Prev string `json:"prev,omitzero"`
	// Digest is a digest of the event's bytes, see [Bytes] and [Content]. If empty, it is not checked.
	Digest string `json:"digest,omitzero"`
}

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Missing  Kind = "missing"  // the log has it between two events received, or after the last
	Repeated Kind = "repeated" // it was received before
	Order    Kind = "order"    // it was received after a later one
	Foreign  Kind = "foreign"  // the log does not have it
	Changed  Kind = "changed"  // its bytes differ from the log's
	Unproven Kind = "unproven" // its predecessor is not the event that the client received before it
)

// Fault is one fault of a transcript.
type Fault struct {
	Kind         Kind
	Conversation string
	Cursor       string // of the event at fault
	At           int    // its index in the transcript, or the one that a missing event should have had
}

// String returns the fault as one line.
func (f Fault) String() string {
	return fmt.Sprintf("%s: %s of %s at %d", f.Kind, f.Cursor, f.Conversation, f.At)
}

// Log is the true content of conversations. It is safe for concurrent reads.
type Log struct {
	conversations map[string]*conversation
}

type conversation struct {
	entries []Seen
	places  map[string]int // index in entries, by cursor
}

// NewLog returns a log with these entries, of any number of conversations, each in order.
func NewLog(entries []Seen) *Log {
	l := &Log{conversations: map[string]*conversation{}}
	for _, e := range entries {
		c := l.conversations[e.Conversation]
		if c == nil {
			c = &conversation{places: map[string]int{}}
			l.conversations[e.Conversation] = c
		}
		c.places[e.Cursor] = len(c.entries)
		c.entries = append(c.entries, e)
	}
	return l
}

// Check returns the faults in the transcript of one client. Of each conversation in after, the client must have received everything after
// the cursor there ("-1" or "" for all); other conversations must not occur. The transcript is in the order of reception, with
// conversations interleaved. The faults are in that order too, except that events missing at the end are last.
func (l *Log) Check(transcript []Seen, after map[string]string) []Fault {
	var faults []Fault
	readers := map[string]*reader{}
	for name, cursor := range after {
		r := &reader{name: name, log: l.conversations[name], prev: cursor}
		if r.log == nil {
			r.log = &conversation{}
		}
		if at, ok := r.log.places[cursor]; ok {
			r.next = at + 1
		}
		r.seen = make([]bool, len(r.log.entries))
		readers[name] = r
	}
	for at, s := range transcript {
		if r := readers[s.Conversation]; r != nil {
			faults = append(faults, r.take(at, s)...)
		} else {
			faults = append(faults, Fault{Foreign, s.Conversation, s.Cursor, at})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readers)) {
		faults = append(faults, readers[name].missing(len(readers[name].log.entries), len(transcript))...)
	}
	return slices.DeleteFunc(faults, func(f Fault) bool { // an event that arrived late is out of order, not missing
		r := readers[f.Conversation]
		return f.Kind == Missing && r.seen[r.log.places[f.Cursor]]
	})
}

// reader is the position of one client in one conversation.
type reader struct {
	name string
	log  *conversation
	next int // index of the next event in log.entries
	prev string
	seen []bool // by index in log.entries
}

func (r *reader) take(at int, s Seen) []Fault {
	place, known := r.log.places[s.Cursor]
	if !known {
		return []Fault{{Foreign, r.name, s.Cursor, at}}
	}
	var faults []Fault
	switch {
	case r.seen[place]:
		faults = append(faults, Fault{Repeated, r.name, s.Cursor, at})
	case place < r.next:
		faults = append(faults, Fault{Order, r.name, s.Cursor, at})
	default:
		faults = append(faults, r.missing(place, at)...)
	}
	if want := r.log.entries[place].Digest; s.Digest != "" && want != "" && s.Digest != want {
		faults = append(faults, Fault{Changed, r.name, s.Cursor, at})
	}
	if s.Prev != "" && r.prev != "" && s.Prev != r.prev {
		faults = append(faults, Fault{Unproven, r.name, s.Cursor, at})
	}
	r.prev, r.seen[place], r.next = s.Cursor, true, max(r.next, place+1)
	return faults
}

// missing returns faults for the events before index upTo of the log that are skipped, and skips them.
func (r *reader) missing(upTo, at int) []Fault {
	var faults []Fault
	for ; r.next < upTo; r.next++ {
		faults = append(faults, Fault{Missing, r.name, r.log.entries[r.next].Cursor, at})
	}
	return faults
}
