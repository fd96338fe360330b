// Package streamcheck holds what clients saw of conversations against the log. It is one judge for
// every transport and every kind of client, and knows none of them: pure functions over transcripts.
package streamcheck

import (
	"fmt"
	"maps"
	"slices"
)

// Seen is one event as a client got it, or as the log has it.
type Seen struct {
	Conversation string `json:"conv"`
	Cursor       string `json:"cursor"`
	// Prev is the cursor that was named as the one before. Empty is not judged.
	Prev string `json:"prev,omitzero"`
	// Digest stands for the event's bytes, see [Bytes] and [Content]. Empty is not judged.
	Digest string `json:"digest,omitzero"`
}

// Kind says what is wrong.
type Kind string

// The kinds of faults.
const (
	Missing  Kind = "missing"  // the log has it between two that were seen, or after the last
	Repeated Kind = "repeated" // it was seen before
	Order    Kind = "order"    // it was seen after one that comes later
	Foreign  Kind = "foreign"  // the log does not have it
	Changed  Kind = "changed"  // its bytes are not those of the log
	Unproven Kind = "unproven" // it named another one as the one before than the client had seen
)

// Fault is one thing that is wrong with a transcript.
type Fault struct {
	Kind         Kind
	Conversation string
	Cursor       string // of the event at fault
	At           int    // its place in the transcript; for missing ones, the place where it should have been
}

// String says a fault in a line.
func (f Fault) String() string {
	return fmt.Sprintf("%s: %s of %s at %d", f.Kind, f.Cursor, f.Conversation, f.At)
}

// Log is what conversations really are. It may be read by many goroutines.
type Log struct {
	conversations map[string]*conversation
}

type conversation struct {
	entries []Seen
	places  map[string]int // by cursor
}

// NewLog takes the entries of any number of conversations, each in the log's order.
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

// Check judges the transcript of one client that got, of each conversation in after, everything
// behind the cursor given there ("-1" or "" for all). Conversations that are not in after must not
// occur. The transcript is in the order in which the client saw it, the conversations mixed. Faults
// come in that order too, those of events missing at the end last.
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
	return slices.DeleteFunc(faults, func(f Fault) bool { // what came late was out of order, not missing
		r := readers[f.Conversation]
		return f.Kind == Missing && r.seen[r.log.places[f.Cursor]]
	})
}

// reader is how far one client is in one conversation.
type reader struct {
	name string
	log  *conversation
	next int // of log.entries
	prev string
	seen []bool // by place in the log
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

// missing returns those from the next one up to a position of the log.
func (r *reader) missing(upTo, at int) []Fault {
	var faults []Fault
	for ; r.next < upTo; r.next++ {
		faults = append(faults, Fault{Missing, r.name, r.log.entries[r.next].Cursor, at})
	}
	return faults
}
