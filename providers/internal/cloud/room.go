package cloud

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Running is a running sandbox as a list shows it.
type Running struct {
	ID    string
	Since time.Time // by the clock of the service or of the sandbox's creator
}

// unlistedFor is how long a sandbox that this worker has started counts although lists do not show it: they may lag.
const unlistedFor = time.Minute

// Room limits the number of running sandboxes of an installation, over all workers. All exported fields must be set.
//
// A list shows how many run. Room adds those that this worker is starting, or has started and the list does not show yet. It does not know
// those that other workers start at the same moment; therefore the list is read again after a sandbox was created ([Room.Recount]). The
// limit can still be exceeded in two cases: by the sandboxes that workers start within the lag of the service's lists, and by persistent
// ones that several workers create or resume at the same moment, because these may already run calls of others. The limit of the service's
// own plan is not affected.
type Room struct {
	Most    int
	Service string // its name, for people
	Flag    string // flag of Most
	// List returns the running sandboxes.
	List func(ctx context.Context) ([]Running, error)

	mu    sync.Mutex
	slots []*Slot // in the order in which they were taken
}

// Slot is the reservation for one sandbox that this worker starts.
type Slot struct {
	room    *Room
	id      string // empty: it has no id yet
	started time.Time
}

// Take reserves a slot for a sandbox that is about to be started; id is that of a paused one, else empty. The caller calls [Slot.Fits]
// and, at the end, [Slot.Leave].
func (r *Room) Take(id string) *Slot {
	s := &Slot{room: r, id: id}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = append(r.slots, s)
	return s
}

// Enter reserves a slot and checks it against the list. Codes: exhausted, those of the list. After an error the slot is released.
func (r *Room) Enter(ctx context.Context, id string) (*Slot, error) {
	s := r.Take(id)
	listed, err := r.List(ctx)
	if err == nil {
		err = s.Fits(listed)
	}
	if err != nil {
		s.Leave()
		return nil, err
	}
	return s, nil
}

// Fits returns an error if the limit is reached, by a list that was read after [Room.Take]. Of the sandboxes that this worker starts at
// the same moment it counts those whose slots were reserved earlier. Code: exhausted.
func (s *Slot) Fits(listed []Running) error {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	shown := func(id string) bool {
		return id != "" && slices.ContainsFunc(listed, func(one Running) bool { return one.ID == id })
	}
	r.slots = slices.DeleteFunc(r.slots, func(one *Slot) bool {
		return !one.started.IsZero() && (shown(one.id) || time.Since(one.started) > unlistedFor)
	})
	if shown(s.id) {
		return nil // another worker has resumed it
	}
	running := len(listed)
	for _, one := range r.slots[:max(slices.Index(r.slots, s), 0)] {
		if !shown(one.id) {
			running++
		}
	}
	if running >= r.Most {
		return r.full(running)
	}
	return nil
}

func (r *Room) full(running int) error {
	return schemas.OpErrorf(schemas.Exhausted, "create",
		"%d sandboxes run on %s, as many as there may be (%s): try later", running, r.Service, r.Flag)
}

// Started records that the sandbox was started. It then counts until a list shows it (at most a minute) or [Room.Ended] is called.
func (s *Slot) Started(id string) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.id, s.started = id, time.Now()
}

// Leave releases the slot, unless the sandbox was started. It may be called more than once.
func (s *Slot) Leave() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.started.IsZero() {
		s.room.slots = slices.DeleteFunc(s.room.slots, func(one *Slot) bool { return one == s })
	}
}

// Ended records that a sandbox no longer runs.
func (r *Room) Ended(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = slices.DeleteFunc(r.slots, func(one *Slot) bool { return one.id == id && !one.started.IsZero() })
}

// Recount reads the list again after a sandbox was made in which nothing was started yet. It returns an error if too many run and this is
// one of the newest, because other workers were faster: the caller then ends the sandbox. A list that cannot be read is no error. Code:
// exhausted.
func (r *Room) Recount(ctx context.Context, id string) error {
	listed, err := r.List(ctx)
	if err != nil || !surplus(listed, id, r.Most) {
		return nil //nolint:nilerr // as it says
	}
	return r.full(len(listed) - 1)
}

// surplus reports whether a sandbox is not among the first most, ordered by start time and then by id: all callers that see the same list
// agree.
func surplus(listed []Running, id string, most int) bool {
	if len(listed) <= most {
		return false
	}
	sorted := slices.SortedFunc(slices.Values(listed), func(a, b Running) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return slices.ContainsFunc(sorted[most:], func(one Running) bool { return one.ID == id })
}
