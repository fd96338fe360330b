package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// fakeLog is a log of one shard in memory, which can lose live events, forget its oldest events, fail, and be recreated. It remembers
// everything that was ever stored.
type fakeLog struct {
	pageSize int
	lose     func() bool // a live event; nil: none
	fail     func() bool // a read; nil: none

	mu       sync.Mutex
	lost     func()
	epoch    int
	first    uint64 // of what is still there
	last     uint64
	stored   map[uint64]streams.Entry[schemas.Event] // of this epoch, removed ones too
	ever     map[string]map[uint64]streams.Entry[schemas.Event]
	received map[schemas.ConversationID]func(streams.LiveEvent)
	reads    int
	calls    map[schemas.ConversationID][]printing // one after the other, two at a time
}

// printing is a call that prints.
type printing struct {
	id         schemas.CallID
	size, ends int // it ends once it has printed so much, if that is above 0
}

var _ replay.Log = (*fakeLog)(nil)

func newFakeLog() *fakeLog {
	l := &fakeLog{pageSize: 20, received: map[schemas.ConversationID]func(streams.LiveEvent){}, calls: map[schemas.ConversationID][]printing{},
		ever: map[string]map[uint64]streams.Entry[schemas.Event]{}}
	l.recreated()
	return l
}

// recreated recreates the stream, as a restore does.
func (l *fakeLog) recreated() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.first, l.last, l.stored = 1, 0, map[uint64]streams.Entry[schemas.Event]{}
	l.ever[l.name()] = l.stored
}

func (l *fakeLog) name() string { return fmt.Sprint("e", l.epoch) }

func (l *fakeLog) publish(conv schemas.ConversationID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prev := uint64(0)
	for seq := l.last; seq >= l.first && seq > 0; seq-- {
		if l.stored[seq].Value.Conversation == conv {
			prev = seq
			break
		}
	}
	l.last++
	typ, subject, data := l.story(conv)
	e := streams.Entry[schemas.Event]{
		Cursor: schemas.Cursor{Epoch: l.name(), Seq: l.last}, Stored: time.Now(),
		Value: schemas.Event{ID: fmt.Sprintf("%s.%d", l.name(), l.last), Type: typ, Subject: subject, Data: data, Conversation: conv},
	}
	l.stored[l.last] = e
	received := l.received[conv]
	if received != nil && (l.lose == nil || !l.lose()) {
		advance := e
		advance.Cursor.Epoch = ""
		received(streams.LiveEvent{Entry: advance, Prev: prev})
	}
}

// story returns the next event of a conversation: two calls print in turn, and one call of three never ends but gives way to another.
func (l *fakeLog) story(conv schemas.ConversationID) (schemas.EventType, string, []byte) {
	calls := l.calls[conv]
	n := int(l.last)
	if len(calls) < 2 {
		calls = append(calls, printing{id: schemas.CallID(fmt.Sprintf("%s%d.%d", conv, l.epoch, n)), ends: 20 + n%60})
	}
	c := &calls[n%2%len(calls)]
	defer func() { l.calls[conv] = calls }()
	if c.size < c.ends {
		text := fmt.Sprintf("%d ", n)
		data := fmt.Appendf(nil, `{"call":%q,"stream":"stdout","offset":%d,"text":%q,"bytes":%d,"attempt":1}`, c.id, c.size, text, len(text))
		c.size += len(text)
		return schemas.CallOutput, string(c.id), data
	}
	id := c.id
	calls = slices.DeleteFunc(calls, func(r printing) bool { return r.id == id })
	if n%3 == 0 {
		return schemas.Message, string(id), []byte(`{}`)
	}
	return schemas.CallFinished, string(id), []byte(`{}`)
}

// Snapshots implements [replay.Log]; all that was printed is here on one stream.
func (l *fakeLog) Snapshots(
	_ context.Context, _ schemas.AccountID, c schemas.ConversationID, of []outputs.PlacedPiece,
) ([]outputs.Snapshot, error) {
	if err := l.trouble(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	made := make([]outputs.Snapshot, 0, len(of))
	for _, p := range of {
		s := outputs.Snapshot{Call: p.Call, Attempt: p.Attempt, Output: []outputs.SnapshotText{}}
		for seq := l.first; seq < p.Seq; seq++ {
			var d schemas.OutputData
			e := l.stored[seq].Value
			if e.Conversation != c || e.Subject != string(p.Call) || e.Type != schemas.CallOutput || json.Unmarshal(e.Data, &d) != nil {
				continue
			}
			if len(s.Output) == 0 {
				s.Output = append(s.Output, outputs.SnapshotText{Stream: d.Stream, Offset: d.Offset})
			}
			s.Output[0].Bytes += int64(d.Bytes)
			s.Output[0].Text += d.Text
		}
		made = append(made, s)
	}
	return made, nil
}

// forget removes the oldest, but for the last few.
func (l *fakeLog) forget(keep uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last > keep {
		l.first = max(l.first, l.last-keep+1)
	}
}

func (l *fakeLog) Run(ctx context.Context, lost func()) error {
	l.mu.Lock()
	l.lost = lost
	l.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (l *fakeLog) Follow(_ context.Context, _ schemas.AccountID, c schemas.ConversationID, received func(streams.LiveEvent)) (func(), error) {
	if err := l.trouble(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received[c] = received
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.received, c)
	}, nil
}

func (l *fakeLog) trouble() error {
	time.Sleep(time.Millisecond) // a read takes its time, in which other things happen
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.fail != nil && l.fail() {
		return schemas.Errorf(schemas.Unavailable, "away")
	}
	return nil
}

func (l *fakeLog) Last(_ context.Context, _ schemas.AccountID, c schemas.ConversationID) (schemas.Cursor, error) {
	if err := l.trouble(); err != nil {
		return schemas.Cursor{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq := l.last; seq >= l.first && seq > 0; seq-- {
		if l.stored[seq].Value.Conversation == c {
			return schemas.Cursor{Epoch: l.name(), Seq: seq}, nil
		}
	}
	return schemas.Cursor{Epoch: l.name()}, nil
}

func (l *fakeLog) Read(_ context.Context, _ schemas.AccountID, c schemas.ConversationID, from uint64) (streams.EventPage, error) {
	if err := l.trouble(); err != nil {
		return streams.EventPage{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := streams.EventPage{Epoch: l.name()}
	for seq := max(from, l.first); seq <= l.last; seq++ {
		e := l.stored[seq]
		if e.Value.Conversation != c {
			continue
		}
		if len(p.Events) == l.pageSize {
			p.More = true
			break
		}
		if p.First == 0 {
			p.First = seq
		}
		p.Last = seq
		p.Events = append(p.Events, e)
	}
	return p, nil
}

func (l *fakeLog) Locate(_ context.Context, _ schemas.AccountID, _ schemas.ConversationID, after schemas.Cursor) (streams.Place, error) {
	if err := l.trouble(); err != nil {
		return streams.Place{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(seq uint64) schemas.Cursor { return schemas.Cursor{Epoch: l.name(), Seq: seq} }
	switch {
	case after.Epoch != l.name(), after.Seq > l.last:
		return streams.Place{At: at(0), Gap: &streams.Gap{From: after, To: at(0)}}, nil
	case after.Seq+1 < l.first:
		return streams.Place{At: at(l.first - 1), Gap: &streams.Gap{From: after, To: at(l.first - 1)}}, nil
	}
	return streams.Place{At: after}, nil
}

func (*fakeLog) Shard(schemas.ConversationID) int { return 0 }

func (l *fakeLog) State(context.Context, int) (streams.ShardState, error) {
	if err := l.trouble(); err != nil {
		return streams.ShardState{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return streams.ShardState{Epoch: l.name(), First: l.first, Last: l.last}, nil
}

// randomly is true for about n of 100.
func randomly(rnd *rand.Rand, n int) func() bool {
	return func() bool { return rnd.IntN(100) < n }
}
