package streams

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/streams/subjects"
)

// Description describes a stream for generated documents.
type Description struct {
	Name, About string
	Subjects    []string
	WorkQueue   bool          // a message goes once it is acknowledged; else when it is too old
	Kept        time.Duration // at most
	PerSubject  int64         // most messages of one subject; not above 0: no bound
}

// Describe describes the streams of a log with so many shards of events, as [Open] makes them, and returns the subject on which events are
// republished.
func Describe(shards int) (rows []Description, live string) {
	for _, r := range streamRows(shards) {
		rows = append(rows, Description{
			Name: r.Name, About: r.Description, Subjects: r.Subjects, WorkQueue: r.Retention == jetstream.WorkQueuePolicy,
			Kept: r.MaxAge, PerSubject: r.MaxMsgsPerSubject,
		})
	}
	return rows, subjects.Live + "*.*"
}
