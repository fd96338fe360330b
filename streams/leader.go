package streams

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
)

// getFromLeader reads one message where it was written first. It costs more than getOne, and what it returns is never behind a confirmed
// write. Code not_found if there is none.
//
// A leader that was cut off from the other servers takes itself for the leader for up to twenty seconds more, and lacks the messages that
// they have stored with another leader since. So the absence of a message counts only when the stream's leader has had contact with a
// majority since: a majority needs four seconds without a leader before it elects one, and hasContact counts three. The check before must
// have found the same leader over the same connection, else a former leader may have answered, and the request is repeated. That check must
// also have begun less than those four seconds ago: within them no other can have led, been cut off, and been followed by this one again.
func (rd *reader) getFromLeader(ctx context.Context, stream string, r getRequest) (stored, error) {
	if !rd.topology.copied.Load() {
		return rd.askLeader(ctx, stream, r)
	}
	v, _ := rd.leaders.LoadOrStore(stream, &leaderLook{parts: rd.checks, at: func() (string, error) { return rd.lookAtLeader(stream) }})
	l, _ := v.(*leaderLook)
	return l.read(ctx, func() (stored, error) { return rd.askLeader(ctx, stream, r) })
}

func (rd *reader) askLeader(ctx context.Context, stream string, r getRequest) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	r.Batch, r.MaxBytes = 0, 0 // one message is all that a leader gives
	body, err := json.Marshal(r)
	if err != nil {
		return stored{}, coded("read", err)
	}
	m, err := rd.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return stored{}, coded("read from "+stream, err)
	}
	s, err := parseGot(m.Data)
	if hasCode(err, codeStreamNotFound) { // so says a leader that is stopping, too
		return stored{}, schemas.Wrap(schemas.Unavailable, "read from "+stream, "the stream is not there now: try again", err)
	}
	s.stream = stream
	return s, coded("read from "+stream, err)
}

// lookAtLeader returns which server leads a stream, and over which connection it was asked. Code unavailable if the leader has no contact
// with the other servers.
func (rd *reader) lookAtLeader(stream string) (string, error) {
	info, err := rd.connectedInfo(rd.ctx, stream)
	if err != nil || info.Cluster == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d", info.Cluster.Leader, rd.conn.Stats().Reconnects), nil
}

// connectedInfo is the stream's information by its leader. Code unavailable if the leader had no contact with a majority a moment ago: its
// information may be outdated.
func (rd *reader) connectedInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	info, err := rd.topology.info(ctx, stream)
	if err == nil && !hasContact(info.Cluster, info.Config.Replicas) {
		err = schemas.OpErrorf(schemas.Unavailable, "look at the stream "+stream, "its leader has not heard of the other servers: try again")
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

// leaderLook asks who leads a stream, for all that want to know at the same time: at most one look is under way, and one waits. Its
// methods may be called concurrently.
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

// last is who led at the last look, and when that began; empty before the first.
func (l *leaderLook) last() (leader string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.began
}

// read asks a leader for a message until it is there, or is not there at one that leads at the look before and at the one after it.
func (l *leaderLook) read(ctx context.Context, ask func() (stored, error)) (stored, error) {
	for range 5 {
		before, began := l.last()
		m, err := ask()
		if !errors.Is(err, schemas.ErrNotFound) {
			return m, err
		}
		leader, lookErr := l.ask(ctx)
		switch {
		case lookErr != nil:
			return stored{}, lookErr
		case leader == before && time.Since(began) < lately:
			return m, err
		}
	}
	return stored{}, schemas.OpErrorf(schemas.Unavailable, "look at a leader", "it changes, or is slow: try again")
}

// ask returns the result of a check that begins after the call: one that is under way may have been answered before.
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
		return "", coded("look at a leader", ctx.Err())
	}
}

// run looks until no read waits for it.
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
func parseGot(data []byte) (stored, error) {
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
		return stored{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
	}
	if got.Error != nil {
		return stored{}, got.Error
	}
	s := stored{subject: got.Message.Subject, seq: got.Message.Seq, time: got.Message.Time, data: got.Message.Data}
	if len(got.Message.Headers) > 0 {
		h, err := nats.DecodeHeadersMsg(got.Message.Headers)
		if err != nil {
			return stored{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
		}
		s.headers, s.id = h, h.Get(nats.MsgIdHdr)
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
