package testwait

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestABubbleRunsAlone(t *testing.T) {
	l := newKindLock()
	var bubbles, others atomic.Int32
	t.Run("all", func(t *testing.T) {
		for range 8 {
			t.Run("real", func(t *testing.T) {
				t.Parallel()
				l.enter(t)
				l.enter(t) // a second server
				others.Add(1)
				time.Sleep(time.Millisecond)
				if n := bubbles.Load(); n != 0 {
					t.Errorf("%d bubbles beside it", n)
				}
				others.Add(-1)
			})
			t.Run("virtual", func(t *testing.T) {
				t.Parallel()
				l.alone(t, func() {
					if n, m := bubbles.Add(1), others.Load(); n != 1 || m != 0 {
						t.Errorf("%d bubbles beside it, %d tests of real time", n-1, m)
					}
					time.Sleep(time.Millisecond)
					bubbles.Add(-1)
				})
			})
		}
		t.Run("real with bubbles in it", func(t *testing.T) {
			t.Parallel()
			l.enter(t)
			t.Run("bubble", func(t *testing.T) { l.alone(t, func() {}) })
		})
	})
}
