package direct

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestALeaderThatHearsNobodyIsNotBelieved(t *testing.T) {
	peer := func(active time.Duration, offline bool) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Active: active, Offline: offline}
	}
	here, gone := peer(time.Millisecond, false), peer(time.Millisecond, true)
	for name, tc := range map[string]struct {
		cluster  *jetstream.ClusterInfo
		replicas int
		want     bool
	}{
		"no cluster": {nil, 1, true},
		"one copy":   {&jetstream.ClusterInfo{}, 1, true},
		"both":       {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Second, false), here}}, 3, true},
		"one of two": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Minute, false), here}}, 3, true},
		"silent": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Minute, false), peer(4*time.Second, false)}},
			3, false},
		"offline":      {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{gone, gone}}, 3, false},
		"nobody known": {&jetstream.ClusterInfo{}, 3, false},
		"three of five": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{here, here, gone, gone}},
			5, true},
		"two of five": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{here, gone, gone, gone}},
			5, false},
		"never heard of": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(0, false), peer(0, false)}}, 3, false},
		"without a name": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{here}}, 3, true},
	} {
		if got := hasContact(tc.cluster, tc.replicas); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What one look says is the answer to all that asked before it began, and to none that asked later.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestALookAtALeaderIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		l := leaderLook{parts: new(sync.WaitGroup), at: func() (string, error) {
			n++
			mine := strconv.Itoa(n)
			time.Sleep(time.Second)
			return mine, nil
		}}
		var asked sync.WaitGroup
		ask := func(want string) {
			asked.Go(func() {
				if got, err := l.ask(t.Context()); got != want || err != nil {
					t.Errorf("look %s, %v; want %s", got, err, want)
				}
			})
		}
		ask("1")
		synctest.Wait() // it is under way
		for range 50 {
			ask("2")
		}
		asked.Wait()
		if last, _ := l.last(); n != 2 || last != "2" {
			t.Errorf("%d looks, the last says %q", n, last)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.ask(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("who waits no more: %v", err)
		}
		time.Sleep(time.Minute)
		ask("4")
		asked.Wait()
	})
}

// Between the failed read and the next one, another server may have replaced the leader.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestALookThatFailsPutsTheNextInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var fails error
		l := leaderLook{parts: new(sync.WaitGroup), at: func() (string, error) { return "n0", fails }}
		for _, step := range []struct {
			fails error
			after time.Duration
			want  error
			last  string
		}{
			{nil, 0, nil, "n0"}, {away, time.Second, away, ""}, {nil, time.Second, schemas.ErrUnavailable, ""}, {nil, time.Second, nil, "n0"},
		} {
			time.Sleep(step.after)
			fails = step.fails
			_, err := l.ask(t.Context())
			if last, _ := l.last(); !errors.Is(err, step.want) || last != step.last {
				t.Errorf("%+v: %v, %q", step, err, last)
			}
			synctest.Wait()
		}
	})
}

// Between an old read and the current one another server may have led, so that the answer may be that of a leader that was cut off. If
// five repetitions do not settle it, the caller gets an error and tries again.
func TestALookOfLongAgoDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := schemas.Errorf(schemas.NotFound, "there is none")
		for name, tc := range map[string]struct {
			before time.Duration // that the look before began
			takes  time.Duration // each look
			moves  bool          // the leader, with each look
			asked  int
			want   error
		}{
			"a moment ago":   {time.Second, 0, false, 1, schemas.ErrNotFound},
			"long ago":       {lately, 0, false, 2, schemas.ErrNotFound},
			"never the same": {0, 0, true, 5, schemas.ErrUnavailable},
			"slow":           {0, lately, false, 5, schemas.ErrUnavailable},
		} {
			looks := 0
			l := leaderLook{parts: new(sync.WaitGroup), at: func() (string, error) {
				time.Sleep(tc.takes)
				if looks++; tc.moves {
					return strconv.Itoa(looks), nil
				}
				return "n0", nil
			}}
			if _, err := l.ask(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tc.before)
			asked := 0
			_, err := l.read(t.Context(), func() (Message, error) { asked++; return Message{}, gone })
			if asked != tc.asked || !errors.Is(err, tc.want) {
				t.Errorf("%s: asked %d times, %v", name, asked, err)
			}
			synctest.Wait()
		}
	})
}
