package usage

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Work is what a write is for. When the log fills up, what is new is refused first, then what follows from accepted work; leases,
// records and removals have what is left, so that nothing is stuck and the room can be made again.
type Work int

// The kinds of work.
const (
	Accepted  Work = iota // what follows from accepted work: events, results, completions, deliveries
	Requested             // what a client wants begun or kept
	Reserved              // that for which room is reserved already
)

// Parts of the log's bytes, in percent, up to which it is written to.
const (
	RequestedUpTo = 80 // by work that is [Requested]
	AcceptedUpTo  = 90 // by work that is [Accepted]
)

const (
	roomRead    = time.Second            // how long a read of the bytes counts, while little is written
	roomOld     = 10 * time.Second       // after which another is waited for
	roomRefusal = 250 * time.Millisecond // how long a read counts that lets a write be refused, and how long a read is waited for
)

// View is how full the log is. Limit 0: it has no bound.
type View struct{ Limit, Used int64 }

// Check returns an error if n bytes more may not be written for a kind of work. Code: unavailable. It is pure.
func (v View) Check(w Work, n int64) error {
	if v.fits(w, n) {
		return nil
	}
	return errFull(w)
}

func (v View) fits(w Work, n int64) bool {
	upTo := int64(AcceptedUpTo)
	if w == Requested {
		upTo = RequestedUpTo
	}
	return v.Limit <= 0 || v.Used+n <= v.Limit/100*upTo
}

// near reports whether a few writes may make the difference.
func (v View) near() bool {
	const half = 2
	return v.Limit > 0 && v.Used > v.Limit/half
}

// Room knows how full the log is, by its server's last answer and by what this process has written since. It is safe for
// concurrent use.
type Room struct {
	read func(context.Context) (View, error)
	ask  chan struct{}  // a read is wanted
	seen wait.Broadcast // notified after each

	mu    sync.Mutex
	view  View  // with what was written since
	since int64 // of it, written by this process since the read
	// reserved is what this process is about to write, beside the view: a read does not include it.
	reserved int64
	at       time.Time
}

// Limit is the most bytes that the log may keep; 0: there is no bound.
func (r *Room) Limit() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.Limit
}

// NewRoom makes a room of a log that read asks how full it is. Nothing is known before [Room.Refresh].
func NewRoom(read func(context.Context) (View, error)) *Room {
	return &Room{read: read, ask: make(chan struct{}, 1)}
}

// Run reads whenever that is wanted, until ctx ends.
func (r *Room) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.ask:
			r.Refresh(ctx)
		}
	}
}

// Refresh reads once. When the log does not answer, what was known stays: the server has a limit of its own.
func (r *Room) Refresh(ctx context.Context) {
	r.mu.Lock()
	before := r.since
	r.mu.Unlock()
	view, err := r.read(ctx)
	r.mu.Lock()
	r.at = time.Now()
	if err == nil {
		r.since -= before
		r.view = View{view.Limit, view.Used + r.since}
	}
	r.mu.Unlock()
	r.seen.Notify()
}

// Take accounts for n bytes that are about to be written. Code unavailable: the log is too full for this kind of work.
func (r *Room) Take(ctx context.Context, w Work, n int64) error { return r.takeBy(ctx, w, n, r.add) }

// Reserve is Take for bytes that are written over a while, until release is called.
func (r *Room) Reserve(ctx context.Context, w Work, n int64) (release func(), err error) {
	if err := r.takeBy(ctx, w, n, r.keep); err != nil {
		return nil, err
	}
	return func() { r.release(n) }, nil
}

func (r *Room) takeBy(ctx context.Context, w Work, n int64, add func(Work, int64) bool) error {
	r.mu.Lock()
	age := time.Since(r.at)
	due, waits := age > roomRead || r.view.Limit > 0 && r.since > r.view.Limit/100, age > roomOld || r.view.near()
	r.mu.Unlock()
	if due {
		r.again(ctx, waits)
	}
	if add(w, n) {
		return nil
	}
	r.mu.Lock()
	stale := time.Since(r.at) > roomRefusal
	r.mu.Unlock()
	if stale {
		if r.again(ctx, true); add(w, n) {
			return nil
		}
	}
	return errFull(w)
}

// again makes the bytes be read, and waits for that if it matters.
func (r *Room) again(ctx context.Context, waits bool) {
	seen := r.seen.Next()
	select {
	case r.ask <- struct{}{}:
	default: // it is wanted already
	}
	if !waits {
		return
	}
	t := time.NewTimer(roomRefusal)
	defer t.Stop()
	select {
	case <-seen:
	case <-t.C:
	case <-ctx.Done():
	}
}

// add reports whether n bytes fit, and then counts them.
func (r *Room) add(w Work, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.view.fits(w, n+r.reserved) {
		return false
	}
	r.view.Used += n
	r.since += n
	return true
}

// keep reports whether n bytes fit, and then counts them until they are released.
func (r *Room) keep(w Work, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.view.fits(w, n+r.reserved) {
		return false
	}
	r.reserved += n
	return true
}

// release ends a reservation. Its bytes count as written since the last read, which some of them may have been in: until the next one
// they count twice, and never not at all.
func (r *Room) release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= n
	r.view.Used += n
	r.since += n
}

// TakeNow is Take for callers that cannot wait for a read: room that was freed a moment ago may not be seen yet.
func (r *Room) TakeNow(w Work, n int64) error {
	r.mu.Lock()
	due := time.Since(r.at) > roomRefusal
	r.mu.Unlock()
	if due {
		r.again(context.Background(), false)
	}
	if r.add(w, n) {
		return nil
	}
	return errFull(w)
}

func errFull(w Work) error {
	what := "nothing new is taken"
	if w == Accepted {
		what = "only records and deletions are written"
	}
	return schemas.OpErrorf(schemas.Unavailable, "publish",
		"the log is full: %s until something was deleted or has aged out, or the operator gives it more room: "+
			"free space on its disk, or a larger --max-store", what)
}
