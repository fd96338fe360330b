package streams

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/streams/direct"
)

// mostOutlived is how many values are remembered that may have outlived their time, of some 150 bytes.
const mostOutlived = 10_000

// outlivers notices values of a bucket of leases that the log keeps beyond their time. It ends them by their stamps: where its clock was
// set back since they were written, they stay for that much longer, and a process that has died would seem to live for an hour.
//
// Such a value has a stamp that is still to come. Its process lives if it writes it again, with a stamp of now; if it has not for as long
// as the value lives, by a clock that cannot be set, its time is over.
type outlivers struct {
	mu   sync.Mutex
	seen map[string]stillThere // by bucket and key
}

// stillThere is the first read of a value with a timestamp in the future.
type stillThere struct {
	revision uint64
	at       clock.Reading
}

// outlived records a read of a value, whose timestamp is in the future if toCome, and reports whether the value has expired.
func (s *outlivers) outlived(key string, revision uint64, toCome bool, life time.Duration, now clock.Reading) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !toCome {
		delete(s.seen, key)
		return false
	}
	if first, ok := s.seen[key]; ok && first.revision == revision {
		return now.AtLeast(first.at) >= life
	}
	if len(s.seen) >= mostOutlived {
		clear(s.seen) // it takes longer then
	}
	if s.seen == nil {
		s.seen = make(map[string]stillThere)
	}
	s.seen[key] = stillThere{revision, now}
	return false
}

// outlived reports whether a value has expired although the log still has it; see [outlivers].
func (k *Bucket[T]) outlived(m direct.Message) bool {
	if k.row.config.Bucket != string(Leases) { // elsewhere what stays too long does no harm
		return false
	}
	return k.bus.outlivers.outlived(m.Subject, m.Seq, m.Time.Sub(k.bus.Now()) > ClocksApart, lifeOf(m.Headers, k.row.ttl), clock.Now())
}

// lifeOf returns how long a value lives.
func lifeOf(h nats.Header, usual time.Duration) time.Duration {
	if life, err := time.ParseDuration(h.Get(jetstream.MsgTTLHeader)); err == nil && life > 0 {
		return life
	}
	return usual
}
