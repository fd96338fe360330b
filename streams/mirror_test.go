package streams_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestAMirrorKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		groups := streams.OpenBucket[schemas.Group](b, streams.GroupRecords)
		put := func(key string, done bool) {
			t.Helper()
			testwait.Must(groups.Put(t.Context(), key, schemas.Group{ID: key, Done: done}))(t)
		}
		var unread []string
		m := &streams.Mirror[schemas.Group, string]{
			Source: groups,
			Keep: func(p streams.BucketEntry[schemas.Group]) (string, bool) {
				return fmt.Sprint(p.Value.ID, "!"), !p.Value.Done
			},
			Unreadable: func(p streams.BucketEntry[schemas.Group], _ error) { unread = append(unread, p.Key) },
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		want := func(when string, keys ...string) {
			t.Helper()
			settle(t)
			if got := slices.Sorted(maps.Keys(m.All())); !slices.Equal(got, keys) {
				t.Errorf("%s: %v, want %v", when, got, keys)
			}
		}
		for i := range 4 {
			put(fmt.Sprint("k", i), i == 0)
		}
		want("before it runs")
		running.Go(func() { testwait.OK(t, m.Run(ctx)) })
		want("at first", "k1", "k2", "k3")
		if v, there := m.Get("k1"); v != "k1!" || !there {
			t.Errorf("k1 is %q, %t", v, there)
		}
		put("k0", false)
		put("k1", true)
		testwait.OK(t, groups.Delete(t.Context(), "k2"))
		want("after changes", "k0", "k3")

		b.Drop()
		put("k4", false)
		want("after a lost connection", "k0", "k3", "k4")

		anew(t, b) // the log has lost its end: keys that are missing are not reported as deleted
		put("k3", false)
		testwait.Must(streams.OpenBucket[string](b, streams.GroupRecords).Put(t.Context(), "k4", "no group"))(t)
		b.Drop()
		want("when the log is another", "k3", "k4")
		if !slices.Equal(unread, []string{"k4"}) {
			t.Errorf("unreadable: %v", unread)
		}
		put("k9", false)
		want("after that", "k3", "k4", "k9")
	})
}
