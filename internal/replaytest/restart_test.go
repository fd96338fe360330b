package replaytest_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/longtest"
)

// cuts end every connection after 50 to 500 ms, in the middle of whatever passes.
func cuts() faultproxy.Faults {
	return faultproxy.Faults{
		Cut: faultproxy.Span{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}, Reset: 0.3, Slice: 4 << 10,
		Stall: faultproxy.Span{Min: time.Millisecond, Max: 50 * time.Millisecond},
	}
}

func TestManyConversationsOnOneSocketThroughCuts(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.single()
	s.proxy.Set(cuts())
	convs := names(pick(200, 40))
	s.write(convs, 0, 5)
	c := s.crowd()
	c.join("one socket", c.socket().Follow, convs...)
	c.join("another", c.socket().Follow, convs...)
	for n := 5; n < pick(25, 10); n++ { // each continues live only when it has seen what was before
		s.write(convs, n, n+1)
		c.reached()
		s.proxy.CutAll()
	}
	c.caughtUp()
	c.whole()
}

// TestTwoGatewaysAreReplacedUnderLoad: one after the other they drain and others take their places,
// while events are published and clients follow through both.
//
//guarantee:a-conversation-has-no-holes
func TestTwoGatewaysAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "ten seconds under load")
	s := open(t)
	convs := names(3)
	a, b := s.serve(s.log.Open()), s.serve(s.log.Open())
	s.proxy.Aim(a.addr, b.addr)
	c := s.crowd()
	c.everyWay(pick(4, 1), convs...)

	stop := s.keepWriting(convs, 0)
	for range pick(2, 1) {
		for _, old := range []*host{&a, &b} {
			next := s.serve(s.log.Open())
			old.stop()
			*old = next
			s.proxy.Aim(a.addr, b.addr)
			c.reached() // all have come back to one of the two
		}
	}
	stop()
	c.caughtUp()
	c.whole()
}
