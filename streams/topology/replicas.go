package topology

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
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

const maxReplicas = 5

// ReplicaCounts are the numbers of copies that a log may have. An even one survives no more than the one below.
func ReplicaCounts() []int { return []int{1, 3, maxReplicas} }

// CheckReplicas compares the wanted number of replicas with that of the log. More do no harm; with fewer an operator would rely on copies
// that do not exist.
func (t *Topology) CheckReplicas() error {
	asked, have := t.o.Replicas, int(t.replicas.Load())
	switch {
	case asked > have:
		return schemas.OpErrorf(schemas.Conflict, "open the log",
			"it has %d copies and not %d: run \"sandjet log replicas %d\" to make them, or start without --replicas", have, asked, asked)
	case asked > 0 && asked < have:
		t.o.Log.Warn("log has more replicas than --replicas, they stay: \"sandjet log replicas\" changes their number",
			"copies", have, "asked", asked)
	case have == 1 && t.o.Conn.ConnectedClusterName() != "":
		t.o.Log.Warn("log has one replica though its server is in a cluster: \"sandjet log replicas 3\" lets it survive the loss of a server")
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
func (t *Topology) Copies(ctx context.Context) ([]StreamCopies, error) {
	infos, err := t.streams(ctx)
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
func (t *Topology) streams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	own := map[string]bool{}
	for _, row := range t.o.Tables.Streams(t.ShardCount()) {
		own[row.Name] = true
		own["OBJ_"+t.o.Tables.Objects(row.Name)] = true
	}
	for _, row := range t.o.Tables.Buckets {
		own["KV_"+row.Bucket] = true
	}
	ctx, cancel := context.WithTimeout(ctx, 4*direct.RequestTime)
	defer cancel()
	var found []*jetstream.StreamInfo
	list := t.o.JS.ListStreams(ctx)
	for info := range list.Info() {
		if own[info.Config.Name] {
			found = append(found, info)
		}
	}
	if err := list.Err(); err != nil {
		return nil, natserr.Coded("list the streams", err)
	}
	return found, nil
}

// SetReplicas changes how many copies of everything the log has, and returns when all of them are complete. Progress is called with the
// streams that are not there yet, whenever that was looked at; it may be nil. It may be repeated, and must be when it was ended half way.
// The servers move the data while everything continues to work. Codes: invalid, conflict (there are not so many servers), unavailable.
func (t *Topology) SetReplicas(ctx context.Context, n int, progress func(todo []string)) error {
	const look = 500 * time.Millisecond
	if !slices.Contains(ReplicaCounts(), n) {
		return schemas.Invalidf("replicas", "%d does not work: use 1, 3 or 5", n)
	}
	infos, err := t.streams(ctx)
	if err != nil {
		return err
	}
	// The first shard has the number that counts for all: a later run that continues reads it there.
	slices.SortFunc(infos, func(x, y *jetstream.StreamInfo) int {
		if first := subjects.EventStream(0); x.Config.Name == first || y.Config.Name == first {
			return map[bool]int{true: -1, false: 1}[x.Config.Name == first]
		}
		return strings.Compare(x.Config.Name, y.Config.Name)
	})
	for _, info := range infos {
		if err := t.setReplicas(ctx, info.Config, n); err != nil {
			return err
		}
	}
	t.adopt(shape{shards: t.ShardCount(), replicas: n})
	for {
		copies, err := t.Copies(ctx)
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

func (t *Topology) setReplicas(ctx context.Context, have jetstream.StreamConfig, n int) error {
	next := withReplicas(have, n)
	if next.Replicas == have.Replicas && next.Compression == have.Compression && maps.Equal(next.Metadata, have.Metadata) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*direct.RequestTime)
	defer cancel()
	_, err := t.o.JS.UpdateStream(ctx, next)
	switch {
	case err == nil:
		return nil
	case natserr.API(err) != nil:
		return schemas.Wrap(schemas.Conflict, "set the number of copies",
			"the servers refuse "+strconv.Itoa(n)+" copies of "+have.Name+": are there so many servers, with room?", err)
	}
	return natserr.Coded("set the number of copies of "+have.Name, err)
}

// withReplicas is the configuration of a stream with n copies. It is pure.
func withReplicas(have jetstream.StreamConfig, n int) jetstream.StreamConfig {
	next := have
	next.Replicas = n
	if n > 1 {
		next.Compression = jetstream.NoCompression
	}
	if have.Name == subjects.EventStream(0) {
		next.Metadata = maps.Clone(have.Metadata)
		next.Metadata[metaReplicas] = strconv.Itoa(n)
	}
	return next
}
