package streams

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const maxReplicas = 5

// Replicas is how many copies of everything the log has.
func (b *Bus) Replicas() int { return int(b.topology.replicas.Load()) }

// ReplicaCounts are the numbers of copies that a log may have. An even one survives no more than the one below.
func ReplicaCounts() []int { return []int{1, 3, maxReplicas} }

// checkReplicas compares the wanted number of replicas with that of the log. More do no harm; with fewer an operator would rely on copies
// that do not exist.
func (t *topology) checkReplicas() error {
	asked, have := t.options.Replicas, int(t.replicas.Load())
	switch {
	case asked > have:
		return schemas.OpErrorf(schemas.Conflict, "open the log",
			"it has %d copies and not %d: run \"sandjet log replicas %d\" to make them, or start without --replicas", have, asked, asked)
	case asked > 0 && asked < have:
		t.log.Warn("log has more replicas than --replicas, they stay: \"sandjet log replicas\" changes their number",
			"copies", have, "asked", asked)
	case have == 1 && t.conn.ConnectedClusterName() != "":
		t.log.Warn("log has one replica though its server is in a cluster: \"sandjet log replicas 3\" lets it survive the loss of a server")
	}
	return nil
}

// StreamCopies is where the copies of a stream are.
type StreamCopies struct {
	Stream     string   `json:"stream"`
	Replicas   int      `json:"replicas"`
	Leader     string   `json:"leader,omitempty"`
	Behind     []string `json:"behind,omitempty"` // servers whose copy is not complete now
	Compressed bool     `json:"compressed"`
}

// complete reports whether a stream has so many copies, all of them whole.
func (c StreamCopies) complete(n int) bool {
	return c.Replicas == n && len(c.Behind) == 0 && (n == 1 || c.Leader != "")
}

// Copies reports of every stream of the log, those of buckets and large payloads included, where its copies are.
func Copies(ctx context.Context, b *Bus) ([]StreamCopies, error) {
	infos, err := b.topology.streams(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]StreamCopies, 0, len(infos))
	for _, info := range infos {
		c := StreamCopies{Stream: info.Config.Name, Replicas: max(info.Config.Replicas, 1),
			Compressed: info.Config.Compression != jetstream.NoCompression}
		if info.Cluster != nil {
			c.Leader = info.Cluster.Leader
			for _, r := range info.Cluster.Replicas {
				if !r.Current {
					c.Behind = append(c.Behind, r.Name)
				}
			}
			if missing := c.Replicas - 1 - len(info.Cluster.Replicas); missing > 0 {
				c.Behind = append(c.Behind, strconv.Itoa(missing)+" not placed")
			}
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b StreamCopies) int { return strings.Compare(a.Stream, b.Stream) })
	return list, nil
}

// streams are the streams of the log that are there.
func (t *topology) streams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	own := map[string]bool{}
	for _, row := range streamRows(int(t.shards.Load())) {
		own[row.Name] = true
		bucket, _ := payloadBucket(row.Name)
		own["OBJ_"+bucket] = true
	}
	for name := range bucketRows() {
		own["KV_"+string(name)] = true
	}
	ctx, cancel := context.WithTimeout(ctx, 4*requestWithin)
	defer cancel()
	var found []*jetstream.StreamInfo
	list := t.js.ListStreams(ctx)
	for info := range list.Info() {
		if own[info.Config.Name] {
			found = append(found, info)
		}
	}
	if err := list.Err(); err != nil {
		return nil, coded("list the streams", err)
	}
	return found, nil
}

// SetReplicas changes how many copies of everything the log has, and returns when all of them are complete. Progress is called with the
// streams that are not there yet, whenever that was looked at; it may be nil. It may be repeated, and must be when it was ended half way.
// The servers move the data while everything continues to work. Codes: invalid, conflict (there are not so many servers), unavailable.
func SetReplicas(ctx context.Context, b *Bus, n int, progress func(todo []string)) error {
	const look = 500 * time.Millisecond
	if !slices.Contains(ReplicaCounts(), n) {
		return schemas.Invalidf("replicas", "%d does not work: use 1, 3 or 5", n)
	}
	infos, err := b.topology.streams(ctx)
	if err != nil {
		return err
	}
	// The first shard has the number that counts for all: a later run that continues reads it there.
	slices.SortFunc(infos, func(x, y *jetstream.StreamInfo) int {
		if first := eventStream(0); x.Config.Name == first || y.Config.Name == first {
			return map[bool]int{true: -1, false: 1}[x.Config.Name == first]
		}
		return strings.Compare(x.Config.Name, y.Config.Name)
	})
	for _, info := range infos {
		if err := b.topology.setReplicas(ctx, info.Config, n); err != nil {
			return err
		}
	}
	b.topology.adopt(shape{shards: b.Shards(), replicas: n})
	for {
		copies, err := Copies(ctx, b)
		if err != nil && schemas.CodeOf(err) != schemas.Unavailable {
			return err
		}
		var todo []string
		for _, c := range copies {
			if !c.complete(n) {
				todo = append(todo, c.Stream)
			}
		}
		if err == nil && len(todo) == 0 {
			return nil
		}
		if progress != nil {
			progress(todo)
		}
		if !wait.Sleep(ctx, look) {
			return schemas.Wrap(schemas.Unavailable, "set the number of copies",
				"it is set, but not all copies are complete yet: look with \"sandjet log ls\"", ctx.Err())
		}
	}
}

func (t *topology) setReplicas(ctx context.Context, have jetstream.StreamConfig, n int) error {
	next := withReplicas(have, n)
	if next.Replicas == have.Replicas && next.Compression == have.Compression && maps.Equal(next.Metadata, have.Metadata) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*requestWithin)
	defer cancel()
	_, err := t.js.UpdateStream(ctx, next)
	switch {
	case err == nil:
		return nil
	case apiError(err) != nil:
		return schemas.Wrap(schemas.Conflict, "set the number of copies",
			"the servers refuse "+strconv.Itoa(n)+" copies of "+have.Name+": are there so many servers, with room?", err)
	}
	return coded("set the number of copies of "+have.Name, err)
}

// withReplicas is the configuration of a stream with n copies. It is pure.
func withReplicas(have jetstream.StreamConfig, n int) jetstream.StreamConfig {
	next := have
	next.Replicas = n
	if n > 1 {
		next.Compression = jetstream.NoCompression
	}
	if have.Name == eventStream(0) {
		next.Metadata = maps.Clone(have.Metadata)
		next.Metadata[metaReplicas] = strconv.Itoa(n)
	}
	return next
}
