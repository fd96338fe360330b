package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// GetFromLeader reads one message where it was written first. It costs more than Get, and what it returns is never behind a confirmed
// write. Code not_found if there is none.
//
// A leader that was cut off from the other servers takes itself for the leader for up to twenty seconds more, and lacks the messages that
// they have stored with another leader since. So the absence of a message counts only when the stream's leader has had contact with a
// majority since: a majority needs four seconds without a leader before it elects one, and hasContact counts three. The check before must
// have found the same leader over the same connection, else a former leader may have answered, and the request is repeated. That check must
// also have begun less than those four seconds ago: within them no other can have led, been cut off, and been followed by this one again.
func (rd *Reader) GetFromLeader(ctx context.Context, stream string, r Request) (Message, error) {
	if !rd.o.Copied.Load() {
		return rd.askLeader(ctx, stream, r)
	}
	v, _ := rd.leaders.LoadOrStore(stream, &leaderLook{parts: rd.o.Checks, at: func() (string, error) { return rd.lookAtLeader(stream) }})
	l, _ := v.(*leaderLook)
	return l.read(ctx, func() (Message, error) { return rd.askLeader(ctx, stream, r) })
}

func (rd *Reader) askLeader(ctx context.Context, stream string, r Request) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTime)
	defer cancel()
	r.Batch, r.MaxBytes = 0, 0 // one message is all that a leader gives
	body, err := json.Marshal(r)
	if err != nil {
		return Message{}, natserr.Coded("read", err)
	}
	m, err := rd.o.Conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return Message{}, natserr.Coded("read from "+stream, err)
	}
	s, err := parseGot(m.Data)
	if natserr.Is(err, natserr.StreamNotFound) { // so says a leader that is stopping, too
		return Message{}, schemas.Wrap(schemas.Unavailable, "read from "+stream, "the stream is not there now: try again", err)
	}
	s.Stream = stream
	return s, natserr.Coded("read from "+stream, err)
}

// lookAtLeader returns which server leads a stream, and a number for the connection over which it was asked. Code unavailable if the
// leader has no contact with the other servers.
func (rd *Reader) lookAtLeader(stream string) (string, error) {
	info, err := rd.ConnectedInfo(rd.o.Context, stream)
	if err != nil || info.Cluster == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d", info.Cluster.Leader, rd.o.Conn.Stats().Reconnects), nil
}

// ConnectedInfo returns the stream's information from its leader. Code unavailable if the leader has lately had no contact with a
// majority: its information may be outdated.
func (rd *Reader) ConnectedInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	info, err := rd.Info(ctx, stream)
	if err == nil && !hasContact(info.Cluster, info.Config.Replicas) {
		err = schemas.OpErrorf(schemas.Unavailable, "look at the stream "+stream, "its leader has not heard of the other servers: try again")
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

// leaderLook checks who leads a stream, once for all readers that ask at the same time: at most one check runs, and one waits. Its methods
// may be called concurrently.
type leaderLook struct {
	at    func() (leader string, err error)
	parts *sync.WaitGroup // of the Bus, which waits for looks when it ends

	mu      sync.Mutex
	running bool
	next    *look  // the one that has not begun; nil: no read waits for one
	leader  string // by the last look, where that counts
	began   time.Time
	doubted time.Time
}

// deposedWithin is how long a leader that was cut off may take itself for the leader once it has contact again: the other servers answer
// its next heartbeat, of one each second, with their election. A check counts only that long after one that failed.
const deposedWithin = 2 * time.Second

type look struct {
	done   chan struct{}
	leader string
	err    error
}

// last returns the leader found by the last check, and when that check began; empty before the first.
func (l *leaderLook) last() (leader string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.began
}

// read asks the leader for a message. It repeats a read that finds nothing until the checks before and after it found the same leader.
func (l *leaderLook) read(ctx context.Context, ask func() (Message, error)) (Message, error) {
	for range 5 {
		before, began := l.last()
		m, err := ask()
		if !errors.Is(err, schemas.ErrNotFound) {
			return m, err
		}
		leader, lookErr := l.ask(ctx)
		switch {
		case lookErr != nil:
			return Message{}, lookErr
		case leader == before && time.Since(began) < lately:
			return m, err
		}
	}
	return Message{}, schemas.OpErrorf(schemas.Unavailable, "look at a leader", "it changes, or is slow: try again")
}

// ask returns the result of a check that begins after the call: one that is already running may have been answered earlier.
func (l *leaderLook) ask(ctx context.Context) (string, error) {
	l.mu.Lock()
	mine := l.next
	if mine == nil {
		mine = &look{done: make(chan struct{})}
		l.next = mine
	}
	if !l.running {
		l.running = true
		l.parts.Go(l.run)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.leader, mine.err
	case <-ctx.Done():
		return "", natserr.Coded("look at a leader", ctx.Err())
	}
}

// run checks until no read waits.
func (l *leaderLook) run() {
	for {
		l.mu.Lock()
		now := l.next
		l.next = nil
		if now == nil {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		began := time.Now()
		leader, err := l.at()
		l.mu.Lock()
		switch {
		case err != nil:
			l.leader, l.doubted = "", time.Now()
		case time.Since(l.doubted) < deposedWithin:
			err = schemas.OpErrorf(schemas.Unavailable, "look at a leader", "it has just heard of the other servers again: try again")
		default:
			l.leader, l.began = leader, began
		}
		l.mu.Unlock()
		now.leader, now.err = leader, err
		close(now.done)
	}
}

// parseGot reads the answer of a stream's leader.
func parseGot(data []byte) (Message, error) {
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Headers []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	const unknown = "the log's answer is not understood"
	if err := json.Unmarshal(data, &got); err != nil {
		return Message{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
	}
	if got.Error != nil {
		return Message{}, got.Error
	}
	s := Message{Subject: got.Message.Subject, Seq: got.Message.Seq, Time: got.Message.Time, Data: got.Message.Data}
	if len(got.Message.Headers) > 0 {
		h, err := nats.DecodeHeadersMsg(got.Message.Headers)
		if err != nil {
			return Message{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
		}
		s.Headers, s.ID = h, h.Get(nats.MsgIdHdr)
	}
	return s, nil
}

// lately is how long the last sign of a server counts. Servers report each second, and elect another leader after four seconds at the
// earliest: a server with a younger sign has not.
const lately = 3 * time.Second

// hasContact reports whether a stream's leader has had contact with a majority a moment ago. A leader that was cut off from the other
// servers takes itself for the leader for some seconds more, and lacks the messages that they have stored since: that must not be taken for
// a loss. It is pure.
func hasContact(cluster *jetstream.ClusterInfo, replicas int) bool {
	if cluster == nil || replicas < 2 { // a single copy has no other server
		return true
	}
	n := 1
	for _, r := range cluster.Replicas {
		if !r.Offline && r.Active > 0 && r.Active < lately { // 0: never
			n++
		}
	}
	return n > replicas/2
}
