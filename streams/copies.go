package streams

import (
	"context"

	"github.com/sandjet/sandjet/streams/topology"
)

// Replicas is how many copies of everything the log has.
func (b *Bus) Replicas() int { return b.topology.ReplicaCount() }

// Copies reports of every stream of the log, those of buckets and large payloads included, where its copies are.
func Copies(ctx context.Context, b *Bus) ([]topology.StreamCopies, error) {
	return b.topology.Copies(ctx)
}

// SetReplicas changes how many copies of everything the log has, and returns when all of them are complete. Progress is called with the
// streams that are not there yet, whenever that was looked at; it may be nil. It may be repeated, and must be when it was ended half way.
// The servers move the data while everything continues to work. Codes: invalid, conflict (there are not so many servers), unavailable.
func SetReplicas(ctx context.Context, b *Bus, n int, progress func(todo []string)) error {
	return b.topology.SetReplicas(ctx, n, progress)
}
