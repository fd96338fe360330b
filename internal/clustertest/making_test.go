package clustertest_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
)

// TestAStreamThatCannotBeMadeForAMomentIsMade: streams.Open tries again while the servers cannot create the files of a stream.
func TestAStreamThatCannotBeMadeForAMomentIsMade(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{Streams: streams.Options{Shards: 1}})
	var inTheWay []string
	for i := range natstest.Members {
		for _, stream := range []string{"EVENTS_00", "CALLS", "KV_records"} {
			path := filepath.Join(c.Dir(i), "jetstream", "$G", "streams", stream)
			testwait.Eventually(t, "the file is in the way", func() bool { // the server removes the folder with its last stream
				return os.MkdirAll(filepath.Dir(path), 0o700) == nil && os.WriteFile(path, nil, 0o600) == nil
			})
			inTheWay = append(inTheWay, path)
		}
	}
	o := c.Options(0)
	retried := onRetry{Handler: slog.DiscardHandler, do: func(stream string) {
		for _, path := range inTheWay {
			if name := filepath.Base(path); name == stream || name == "KV_"+stream {
				_ = os.Remove(path)
			}
		}
	}, seen: map[string]bool{}}
	o.Log = slog.New(&retried)
	b, err := streams.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	retried.mu.Lock()
	defer retried.mu.Unlock()
	for _, stream := range []string{"EVENTS_00", "CALLS", "records"} {
		if !retried.seen[stream] {
			t.Errorf("%s was not made again", stream)
		}
	}
}

// onRetry is a log handler that calls do with the name of each stream whose creation is to be tried again.
type onRetry struct {
	slog.Handler
	do func(stream string)

	mu   sync.Mutex
	seen map[string]bool
}

func (*onRetry) Enabled(context.Context, slog.Level) bool { return true }
func (r *onRetry) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r *onRetry) Handle(_ context.Context, l slog.Record) error {
	if l.Message != "stream not made, retrying" {
		return nil
	}
	l.Attrs(func(a slog.Attr) bool {
		if a.Key == "stream" {
			r.do(a.Value.String())
			r.mu.Lock()
			r.seen[a.Value.String()] = true
			r.mu.Unlock()
		}
		return true
	})
	return nil
}
