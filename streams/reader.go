package streams

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/fair"
)

const (
	headersAtOnce = 5000        // messages that are asked for at a time
	headersIdle   = time.Minute // after which the server forgets a read that its process left
)

// reader reads streams: single messages and pages from whichever copy is nearest, what must not be behind from the stream's leader. It does
// not know what the messages mean. It is safe for concurrent use.
type reader struct {
	conn     *nats.Conn          // for reads in bulk
	js       jetstream.JetStream // on conn
	topology *topology           // says which streams have copies
	log      *slog.Logger

	slots   *fair.Semaphore // of reads in pages
	leaders sync.Map        // *leaderLook by stream
	epochs  sync.Map        // string by stream

	ctx    context.Context //nolint:containedctx // ends with the Bus: checks of leaders are shared by many reads
	checks *sync.WaitGroup // of leaders
}

func newReader(b *Bus) *reader {
	return &reader{
		conn: b.bulk, js: b.jsBulk, topology: &b.topology, log: b.log, slots: fair.NewSemaphore(concurrentReads, concurrentReads),
		ctx: b.ctx, checks: &b.parts,
	}
}

// has reports whether a stream has a message.
func (rd *reader) has(ctx context.Context, stream string, r getRequest) (bool, error) {
	_, err := rd.getNewest(ctx, stream, r)
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// subjectsOf is how many subjects of a stream have messages.
func (rd *reader) subjectsOf(ctx context.Context, stream string) (uint64, error) {
	s, err := rd.js.Stream(ctx, stream)
	if err != nil {
		return 0, coded("look at the stream "+stream, err)
	}
	return s.CachedInfo().State.NumSubjects, nil
}

// subjects are those of a stream below a filter, with the number of their messages. The server answers at most 100,000 at a time.
func (rd *reader) subjects(ctx context.Context, op, stream, filter string) (map[string]uint64, error) {
	all, total := map[string]uint64{}, 1
	for len(all) < total {
		body, err := json.Marshal(struct {
			Filter string `json:"subjects_filter"`
			Offset int    `json:"offset"`
		}{filter, len(all)})
		if err != nil {
			return nil, coded(op, err)
		}
		within, cancel := context.WithTimeout(ctx, requestWithin)
		m, err := rd.conn.RequestWithContext(within, "$JS.API.STREAM.INFO."+stream, body)
		cancel()
		if err != nil {
			return nil, coded(op, err)
		}
		page, n, err := parseCounts(m.Data)
		if err != nil {
			return nil, coded(op, err)
		}
		maps.Copy(all, page)
		if total = n; len(page) == 0 {
			break
		}
	}
	return all, nil
}

// eachHeader calls f with the messages of a stream that the filters name and that are there now, from a sequence on and until it returns
// false; without their data, where it is not needed. Code not_found: there is no such stream.
func (rd *reader) eachHeader(
	ctx context.Context, stream string, filters []string, from uint64, headersOnly bool, f func(jetstream.Msg) bool,
) error {
	op := "count the messages of " + stream
	c, err := rd.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, FilterSubjects: filters, HeadersOnly: headersOnly, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: headersIdle,
		Replicas: 1, MemoryStorage: true,
	})
	if err != nil {
		return coded(op, err)
	}
	info := c.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestWithin)
		defer cancel()
		if err := rd.js.DeleteConsumer(ctx, stream, info.Name); err != nil {
			rd.log.Debug("temporary consumer not removed, the server removes it when it is idle", "stream", stream, "error", err)
		}
	}()
	for left := info.NumPending; left > 0; {
		if err := ctx.Err(); err != nil {
			return coded(op, err)
		}
		batch, err := c.FetchNoWait(int(min(left, headersAtOnce)))
		if err != nil {
			return coded(op, err)
		}
		n, enough := uint64(0), false
		for m := range batch.Messages() {
			enough = enough || !f(m)
			n++
		}
		if err := batch.Error(); err != nil {
			return coded(op, err)
		}
		if n == 0 || enough { // the rest was removed meanwhile
			return nil
		}
		left -= min(n, left)
	}
	return nil
}

// epochOf is a short name of a stream's incarnation: another after it was recreated.
func epochOf(name string, created time.Time) string {
	h := fnv.New64a()
	h.Write([]byte(name + "\x00" + strconv.FormatInt(created.UnixNano(), 10))) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// epoch returns the epoch of a stream. It is cached until the connection reconnects.
func (rd *reader) epoch(ctx context.Context, stream string) (string, error) {
	if v, ok := rd.epochs.Load(stream); ok {
		if epoch, ok := v.(string); ok {
			return epoch, nil
		}
	}
	info, err := rd.topology.info(ctx, stream)
	if err != nil {
		return "", err
	}
	return rd.noteEpoch(stream, info), nil
}

// noteEpoch caches the epoch of a stream, and returns it.
func (rd *reader) noteEpoch(stream string, info *jetstream.StreamInfo) string {
	epoch := epochOf(stream, info.Created)
	rd.epochs.Store(stream, epoch)
	return epoch
}

// forgetEpochs empties the cache of epochs.
func (rd *reader) forgetEpochs() { rd.epochs.Clear() }
