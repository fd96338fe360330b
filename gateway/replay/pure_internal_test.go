package replay

import (
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/streams"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		head, checked uint64
		state         streams.ShardState
		last          uint64
		want          verdict
	}{
		"nothing since":                 {7, 9, streams.ShardState{Epoch: "e", First: 1, Last: 9}, 0, complete},
		"others wrote":                  {7, 9, streams.ShardState{Epoch: "e", First: 1, Last: 12}, 7, complete},
		"its last was lost":             {7, 9, streams.ShardState{Epoch: "e", First: 1, Last: 12}, 11, behind},
		"another stream":                {7, 9, streams.ShardState{Epoch: "f", First: 1, Last: 12}, 7, recreated},
		"the end was lost":              {7, 9, streams.ShardState{Epoch: "e", First: 1, Last: 5}, 5, recreated},
		"all is old and gone":           {7, 9, streams.ShardState{Epoch: "e", First: 10, Last: 9}, 0, complete},
		"what came is gone already":     {7, 9, streams.ShardState{Epoch: "e", First: 12, Last: 14}, 0, cut},
		"some is gone, its last is not": {7, 9, streams.ShardState{Epoch: "e", First: 12, Last: 14}, 13, behind},
	} {
		if got := judge("e", tc.head, tc.checked, tc.state, tc.last); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestManyConversationsWithoutReadersAreNotFollowedForLong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		idle int // conversations, one more in each millisecond
		want time.Duration
	}{
		"none":                {0, linger},
		"as many as are kept": {idleKept, linger},
		"one more":            {idleKept + 1, idleKept * time.Millisecond},
		"very many":           {100 * idleKept, idleKept * time.Millisecond},
	} {
		idle := make([]time.Duration, tc.idle)
		for i := range idle {
			idle[len(idle)-1-i] = time.Duration(i) * time.Millisecond
		}
		if got := patience(idle); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := patience(slices.Repeat([]time.Duration{2 * linger}, idleKept+1)); got != linger {
		t.Errorf("what is old anyway: %s, want %s", got, linger)
	}
}
