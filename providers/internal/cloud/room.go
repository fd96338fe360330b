package cloud

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Running is a sandbox that runs, as a list says.
type Running struct {
	ID    string
	Since time.Time // by the service's clock, or its maker's
}

// unlistedFor is for how long a sandbox counts that this worker has started and that lists do not show: they may lag behind.
const unlistedFor = time.Minute

// Room keeps the sandboxes of an installation, all workers' together, below a number. All fields must be set.
//
// A list says how many run. What this worker is starting, or has started and the list does not show yet, is added. What other workers
// start at the same moment is not seen: after a create the list is read once more ([Room.Recount]). What remains is what neither list
// shows: workers can be above the number by as many sandboxes as they start within the lag of the service's lists, and by persistent
// ones that are made or woken by several at the same moment, for these may have calls of others in them already. The limit of the
// service's own plan is not affected.
type Room struct {
	Most    int
	Service string // its name, for people
	Flag    string // the setting of Most
	// List lists what runs.
	List func(ctx context.Context) ([]Running, error)

	mu    sync.Mutex
	slots []*Slot // in the order of [Room.Take]
}

// Slot is the place of one sandbox that this worker starts.
type Slot struct {
	room    *Room
	id      string // empty: it has none yet
	started time.Time
}

// Take takes a place for a sandbox that is about to be started: for one that rests, under its id. The caller asks [Slot.Fits], and ends
// it by [Slot.Leave].
func (r *Room) Take(id string) *Slot {
	s := &Slot{room: r, id: id}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = append(r.slots, s)
	return s
}

// Enter takes a place and reads the list for it. Codes: exhausted, those of the list. After an error there is no place.
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

// Fits reports whether fewer run than may, after a list that was read since [Room.Take]. Of what this worker starts at the same moment that
// counts which has taken its place before. Code: exhausted.
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
		return nil // another one has woken it
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

// Started says that the sandbox was started. It counts until lists show it, for a minute at most, or until [Room.Ended].
func (s *Slot) Started(id string) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.id, s.started = id, time.Now()
}

// Leave gives the place back, unless the sandbox was started. It may be called more than once.
func (s *Slot) Leave() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.started.IsZero() {
		s.room.slots = slices.DeleteFunc(s.room.slots, func(one *Slot) bool { return one == s })
	}
}

// Ended says that a sandbox does not run any more.
func (r *Room) Ended(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = slices.DeleteFunc(r.slots, func(one *Slot) bool { return one.id == id && !one.started.IsZero() })
}

// Recount reads the list again after a sandbox was made in which nothing was started yet, and whose maker ends it where more run than may
// and it is one of the newest: then other workers were faster. A list that cannot be read is no reason to end it. Code: exhausted.
func (r *Room) Recount(ctx context.Context, id string) error {
	listed, err := r.List(ctx)
	if err != nil || !surplus(listed, id, r.Most) {
		return nil //nolint:nilerr // as it says
	}
	return r.full(len(listed) - 1)
}

// surplus reports whether a sandbox is beyond the first ones that may run, by the time since when they do and then by their ids: all who
// see the same list agree which these are.
func surplus(listed []Running, id string, most int) bool {
	if len(listed) <= most {
		return false
	}
	sorted := slices.SortedFunc(slices.Values(listed), func(a, b Running) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return slices.ContainsFunc(sorted[most:], func(one Running) bool { return one.ID == id })
}
