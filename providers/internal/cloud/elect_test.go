package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// lagging is a service without unique names: lists show a new sandbox late, and creation times are in any order, or equal.
type lagging struct {
	mu    sync.Mutex
	rand  *rand.Rand
	lag   int
	boxes []*laggingBox // in the order in which lists may show them
	ever  map[string]bool
}

type laggingBox struct {
	id, mark string
	created  int
	hidden   int
	gone     bool
}

// step takes a random time, in which other workers continue.
func (s *lagging) step() {
	s.mu.Lock()
	d := time.Duration(s.rand.IntN(20)) * time.Millisecond
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
}

func (s *lagging) create() string {
	s.step()
	defer s.mu.Unlock()
	b := &laggingBox{id: fmt.Sprint("box", s.rand.IntN(1e9)), created: s.rand.IntN(2), hidden: s.lag}
	s.boxes = append(s.boxes, b)
	return b.id
}

func (s *lagging) list() (ids []string) {
	s.step()
	defer s.mu.Unlock()
	var found []*laggingBox
	for _, b := range s.boxes {
		switch {
		case b.gone:
		case b.hidden > 0:
			b.hidden--
		default:
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *laggingBox) int { return a.created - b.created })
	for _, b := range found {
		ids = append(ids, b.id)
	}
	return ids
}

func (s *lagging) mark(_ context.Context, id, mark string) (string, error) {
	s.step()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		switch {
		case b.id != id:
		case b.gone:
			return "", fmt.Errorf("%s: %w", id, cloud.ErrGone)
		case b.mark == "":
			b.mark = mark
			if mark == cloud.MarkChosen {
				s.ever[id] = true
			}
			fallthrough
		default:
			return b.mark, nil
		}
	}
	return "", errors.New("no such sandbox")
}

func (s *lagging) kill(ids []string) {
	s.step()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		b.gone = b.gone || slices.Contains(ids, b.id)
	}
}

// reserve does what providers do. It stops at step dies, as if the worker had crashed.
func (s *lagging) reserve(t *testing.T, dies int) string {
	for range 100 {
		ids := s.list()
		if dies--; dies == 0 {
			return ""
		}
		if len(ids) == 0 {
			mine := s.create()
			if dies--; dies == 0 {
				return ""
			}
			for ids = s.list(); !slices.Contains(ids, mine); ids = s.list() {
				time.Sleep(time.Millisecond)
				if len(ids) > 0 && !s.alive(mine) {
					break // another sandbox was chosen already
				}
			}
		}
		chosen, lost, err := cloud.Elect(t.Context(), ids, s.mark)
		if err != nil {
			t.Error(err)
			return ""
		}
		if dies--; dies == 0 {
			return ""
		}
		s.kill(lost)
		if chosen != "" {
			return chosen
		}
	}
	t.Error("nothing is chosen")
	return ""
}

func (s *lagging) alive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.boxes, func(b *laggingBox) bool { return b.id == id && !b.gone })
}

// TestElect: several workers reserve one key, with many orders of their steps, lagging lists and meaningless times, and some crash
// meanwhile. All that survive get the same sandbox, and no other is ever chosen.
func TestElect(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			s := &lagging{rand: rand.New(rand.NewPCG(seed, 1)), lag: int(seed % 4), ever: map[string]bool{}}
			got := make([]string, 4)
			var all sync.WaitGroup
			for i := range got {
				dies := 0
				if i == 0 {
					dies = int(seed % 7)
				}
				all.Go(func() { got[i] = s.reserve(t, dies) })
			}
			all.Wait()
			last := s.reserve(t, 0)
			for _, id := range got {
				if id != "" && id != last {
					t.Errorf("seed %d: they got %v, and then %s", seed, got, last)
				}
			}
			if len(s.ever) != 1 {
				t.Errorf("seed %d: chosen were %v", seed, s.ever)
			}
		})
	}
}

// TestElectAmong: which sandbox is chosen and which are lost, by the existing marks. Sandboxes that are gone are left out, and errors are
// the marker's.
func TestElectAmong(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		marks  []string
		chosen string
		lost   []string
		err    error
	}{
		"none":                            {},
		"one":                             {marks: []string{""}, chosen: "0"},
		"one that is lost":                {marks: []string{"lost"}, lost: []string{"0"}},
		"one with a strange mark":         {marks: []string{"", "x"}, err: schemas.ErrConflict},
		"the first":                       {marks: []string{"", "", ""}, chosen: "0", lost: []string{"2", "1"}},
		"one that was chosen before":      {marks: []string{"", "chosen", ""}, chosen: "1", lost: []string{"2", "0"}},
		"the first of two":                {marks: []string{"", "chosen", "chosen"}, chosen: "1", lost: []string{"0"}},
		"the first is gone":               {marks: []string{"gone", ""}, lost: []string{"1"}}, // the next call creates one
		"another is gone":                 {marks: []string{"", "gone"}, chosen: "0"},
		"one of which nobody can be told": {marks: []string{"", "failed"}, err: failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ids []string
			for i := range c.marks {
				ids = append(ids, fmt.Sprint(i))
			}
			chosen, lost, err := cloud.Elect(t.Context(), ids, func(_ context.Context, id, mark string) (string, error) {
				switch has := c.marks[slices.Index(ids, id)]; has {
				case "":
					return mark, nil
				case "gone":
					return "", cloud.ErrGone
				case "failed":
					return "", failed
				default:
					return has, nil
				}
			})
			if chosen != c.chosen || !slices.Equal(lost, c.lost) || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v, %v", chosen, lost, err)
			}
		})
	}
}
