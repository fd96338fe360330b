package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Where every write waits for the disk, writes that wait at the same time share one wait: they
// become an atomic batch. A batch costs many times a single write, whatever its size, so it begins
// to pay only with a crowd.
const (
	groupAbove    = 16      // writes on their way one by one, above which the next ones are grouped
	groupWriters  = 2       // batches on their way
	groupMessages = 1000    // of a batch: the server's limit
	groupBytes    = 8 << 20 // of a batch
)

// group writes messages to one stream, one by one or many at once.
type group struct {
	bus    *Bus
	single atomic.Int64 // on their way one by one

	mu      sync.Mutex
	waiting []*grouped
	writers int
}

// grouped is a message that waits for its batch.
type grouped struct {
	m      *nats.Msg
	done   chan struct{}
	stored Stored
	err    error
	alone  bool // the batch was refused as a whole: write it by itself
}

// store writes m, whose headers have its conditions.
func (g *group) store(ctx context.Context, m *nats.Msg) (Stored, error) {
	if g.single.Add(1) <= groupAbove {
		defer g.single.Add(-1)
		return g.bus.writer.store(ctx, m)
	}
	g.single.Add(-1)
	w := &grouped{m: m, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if g.writers < groupWriters {
		g.writers++
		go g.write()
	}
	g.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done(): // it is written nevertheless
		return Stored{}, natserr.Coded("publish", ctx.Err())
	}
	if w.alone {
		return g.bus.writer.store(ctx, m)
	}
	return w.stored, w.err
}

// write writes batches until no caller waits. Messages that arrive during a write form the next batch.
func (g *group) write() {
	for {
		batch := g.take()
		if len(batch) == 0 {
			return
		}
		g.commit(batch)
		for _, w := range batch {
			close(w.done)
		}
	}
}

// take returns the next batch. Of several messages under the same condition it has only the first, since the server compares the
// conditions of a batch with what is stored, not with each other.
func (g *group) take() []*grouped {
	g.mu.Lock()
	defer g.mu.Unlock()
	var batch, later []*grouped
	size, there := 0, map[string]bool{}
	for i, w := range g.waiting {
		if len(batch) == groupMessages || len(batch) > 0 && size+len(w.m.Data) > groupBytes {
			later = append(later, g.waiting[i:]...)
			break
		}
		condition := w.m.Header.Get(jetstream.ExpectedLastSubjSeqSubjHeader)
		if there[condition] {
			later = append(later, w)
			continue
		}
		there[condition] = true
		size += len(w.m.Data)
		batch = append(batch, w)
	}
	g.waiting = later
	if len(batch) == 0 {
		g.writers--
	}
	return batch
}

// commit writes one batch, which the server stores as a whole or not at all. If it refuses, each message is written by itself, so that
// only the one at fault gets the error.
func (g *group) commit(batch []*grouped) {
	if len(batch) == 1 {
		batch[0].alone = true
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestWithin)
	defer cancel()
	last, err := g.send(ctx, batch)
	for i, w := range batch {
		switch {
		case err == nil:
			g.bus.capacity.wrote(w.m.Subject, sizeOfMessage(w.m.Subject, w.m.Data))
			w.stored = Stored{Cursor: schemas.Cursor{Seq: last - uint64(len(batch)-1-i)}}
		case errors.Is(err, errBatchRefused):
			w.alone = true
		default:
			w.err = natserr.Coded("publish", err)
		}
	}
}

var errBatchRefused = errors.New("the batch was refused")

var errBatch = errors.New("the log confirms a batch in a way that is not known")

// send sends the messages of a batch and returns the sequence of the last.
func (g *group) send(ctx context.Context, batch []*grouped) (uint64, error) {
	id := nuid.Next()
	for i, w := range batch {
		m := nats.NewMsg(w.m.Subject)
		m.Data = w.m.Data
		maps.Copy(m.Header, w.m.Header)
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		end := i == len(batch)-1
		if end {
			m.Header.Set("Nats-Batch-Commit", "1")
		}
		if i > 0 && !end {
			if err := g.bus.publish.PublishMsg(m); err != nil {
				return 0, fmt.Errorf("send a batch: %w", err)
			}
			continue
		}
		r, err := g.bus.publish.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, fmt.Errorf("send a batch: %w", err)
		}
		seq, err := parseBatchAck(r.Data, end, len(batch))
		if err != nil || end {
			return seq, err
		}
	}
	return 0, errBatchRefused // not reached: a batch has an end
}

// parseBatchAck reads the answer to the first message of a batch, which is empty, or to the last, which confirms all. size is the number
// of messages.
func parseBatchAck(data []byte, end bool, size int) (uint64, error) {
	if len(data) == 0 && !end {
		return 0, nil
	}
	var a struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return 0, fmt.Errorf("the answer to a batch: %w", err)
	}
	switch {
	case a.Error != nil:
		return 0, fmt.Errorf("%w: %w", errBatchRefused, a.Error)
	case end && (a.Count != size || a.Seq < uint64(size)):
		return 0, fmt.Errorf("%w: it confirms %d of %d", errBatch, a.Count, size)
	}
	return a.Seq, nil
}
