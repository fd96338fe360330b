package streams

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
)

// work is what a write is for. When the log fills up, what is new is refused first, then what follows from accepted work; leases,
// records and removals have what is left, so that nothing is stuck and the room can be made again.
type work int

const (
	workGoing    work = iota // what follows from accepted work: events, results, completions, deliveries
	workNew                  // what a client wants begun or kept
	workReserved             // that for which room is reserved already
)

const (
	roomLook    = time.Second            // how long a read of the bytes counts, while little is written
	roomOld     = 10 * time.Second       // after which another is waited for
	roomRefusal = 250 * time.Millisecond // how long a read counts that lets a write be refused, and how long a read is waited for
)

// roomView is how full the log is. Limit 0: it has no bound.
type roomView struct{ limit, used int64 }

// fits reports whether n bytes more may be written for a kind of work. It is pure.
func (v roomView) fits(w work, n int64) bool {
	upTo := int64(embedded.GoingUpTo)
	if w == workNew {
		upTo = embedded.NewUpTo
	}
	return v.limit <= 0 || v.used+n <= v.limit/100*upTo
}

// near reports whether a few writes may make the difference.
func (v roomView) near() bool {
	const half = 2
	return v.limit > 0 && v.used > v.limit/half
}

// room knows how full the log is, from the server's last word and from what this process has written since. It is safe for
// concurrent use.
type room struct {
	look func(context.Context) (roomView, error)
	ask  chan struct{} // a read is wanted
	seen changed       // notified after each

	mu    sync.Mutex
	view  roomView // with what was written since
	since int64    // of it, written by this process since the look
	// reserved is what this process is about to write, beside the view: a read does not include it.
	reserved int64
	at       time.Time
}

// limit is the most bytes that the log may keep; 0: there is no bound.
func (r *room) limit() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.limit
}

func newRoom(look func(context.Context) (roomView, error)) *room {
	return &room{look: look, ask: make(chan struct{}, 1)}
}

// run looks whenever that is wanted, until ctx ends.
func (r *room) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.ask:
			r.refresh(ctx)
		}
	}
}

// refresh looks once. When the log does not answer, what was known stays: the server has a limit of its own.
func (r *room) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	r.mu.Lock()
	before := r.since
	r.mu.Unlock()
	view, err := r.look(ctx)
	r.mu.Lock()
	r.at = time.Now()
	if err == nil {
		r.since -= before
		r.view = roomView{view.limit, view.used + r.since}
	}
	r.mu.Unlock()
	r.seen.tell()
}

// take accounts for n bytes that are about to be written. Code unavailable: the log is too full for this kind of work.
func (r *room) take(ctx context.Context, w work, n int64) error { return r.takeBy(ctx, w, n, r.add) }

// reserve is take for bytes that are written over a while, until release is called with the same number.
func (r *room) reserve(ctx context.Context, w work, n int64) error {
	return r.takeBy(ctx, w, n, r.keep)
}

func (r *room) takeBy(ctx context.Context, w work, n int64, add func(work, int64) bool) error {
	r.mu.Lock()
	age := time.Since(r.at)
	due, wait := age > roomLook || r.view.limit > 0 && r.since > r.view.limit/100, age > roomOld || r.view.near()
	r.mu.Unlock()
	if due {
		r.again(ctx, wait)
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
func (r *room) again(ctx context.Context, wait bool) {
	seen := r.seen.next()
	select {
	case r.ask <- struct{}{}:
	default: // it is wanted already
	}
	if !wait {
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
func (r *room) add(w work, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.view.fits(w, n+r.reserved) {
		return false
	}
	r.view.used += n
	r.since += n
	return true
}

// keep reports whether n bytes fit, and then counts them until they are released.
func (r *room) keep(w work, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.view.fits(w, n+r.reserved) {
		return false
	}
	r.reserved += n
	return true
}

// release ends a reservation. Its bytes count as written since the last look, which some of them may have been in: until the next one
// they count twice, and never not at all.
func (r *room) release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= n
	r.view.used += n
	r.since += n
}

// takeNow is take for callers that cannot wait for a read: room that was freed a moment ago may not be seen yet.
func (r *room) takeNow(w work, n int64) error {
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

// sizeOfMessage is about what the server counts for a message.
func sizeOfMessage(subject string, data []byte) int64 {
	const around = 128 // headers, and what the server writes with each message
	return int64(len(subject) + len(data) + around)
}

func errFull(w work) error {
	what := "nothing new is taken"
	if w == workGoing {
		what = "only records and deletions are written"
	}
	return schemas.Errorf(schemas.Unavailable, "publish",
		"the log is full: %s until something was deleted or has aged out, or the operator gives it more room: "+
			"free space on its disk, or a larger --max-store", what)
}

// Room reports whether clients may have n bytes more kept that count against no quota, such as a record. Code: unavailable.
func (b *Bus) Room(ctx context.Context, n int) error { return b.room.take(ctx, workNew, int64(n)) }

// RoomFor reports whether an account may add an event of n bytes of its own. Codes: unavailable (the log is full), exhausted (the
// account's quota is).
func (b *Bus) RoomFor(ctx context.Context, a schemas.AccountID, n int) error {
	if err := b.meter.allow(ctx, a, usageEvents, int64(n), true); err != nil {
		return err
	}
	return b.Room(ctx, n)
}

// ReserveFor reserves room for n bytes of events and deliveries that an account's client wants written, all or nothing: until release
// is called they count against the account's quota and the log's room, so that requests at the same time do not rely on the same
// room. What is written under it goes by [Topic.Reserved]. Codes: unavailable (the log is full), exhausted (the account's quota is).
func (b *Bus) ReserveFor(ctx context.Context, a schemas.AccountID, n int64) (release func(), err error) {
	if err := b.meter.reserve(ctx, a, n); err != nil {
		return nil, err
	}
	if err := b.room.reserve(ctx, workNew, n); err != nil {
		b.meter.release(a, n)
		return nil, err
	}
	return func() {
		b.room.release(n)
		b.meter.release(a, n)
	}, nil
}

// ReserveAccepted is [Bus.ReserveFor] for what follows from accepted work, which counts against no quota. Code: unavailable (the log
// is full: try again).
func (b *Bus) ReserveAccepted(ctx context.Context, n int64) (release func(), err error) {
	if err := b.room.reserve(ctx, workGoing, n); err != nil {
		return nil, err
	}
	return func() { b.room.release(n) }, nil
}

// admit says whether a message may be written.
func (b *Bus) admit(ctx context.Context, w work, subject string, n int64) error {
	if w == workReserved {
		return nil
	}
	if w == workNew {
		account, class := usageOf(subject)
		if err := b.meter.allow(ctx, account, class, n, true); err != nil {
			return err
		}
	}
	return b.room.take(ctx, w, n)
}

// lookAtRoom asks the server for the limit that it has for this log and for what is used of it.
func (b *Bus) lookAtRoom(ctx context.Context) (roomView, error) {
	info, err := b.js.AccountInfo(ctx)
	if err != nil {
		return roomView{}, coded("look at the log's room", err)
	}
	return viewOf(info, b.Replicas()), nil
}

// viewOf reads the server's answer. Where the account has limits by the number of copies, a limit is of what is kept and the use
// of all copies of it. It is pure.
func viewOf(info *jetstream.AccountInfo, replicas int) roomView {
	tier, ok := info.Tiers["R"+strconv.Itoa(max(replicas, 1))]
	if !ok {
		return roomView{max(info.Limits.MaxStore, 0), int64(info.Store)}
	}
	return roomView{max(tier.Limits.MaxStore, 0) * int64(max(replicas, 1)), int64(tier.Store)}
}

// admitPublication says whether a publication of n bytes may be kept until the router has admitted it, and counts it. It does not wait.
func (b *Bus) admitPublication(a schemas.AccountID, n int64) error {
	if err := b.meter.allow(b.ctx, a, usageCalls, n, false); err != nil {
		return err
	}
	err := b.room.takeNow(workNew, n)
	if err == nil {
		b.meter.wrote(waitingSubject(a), n)
	}
	return err
}
