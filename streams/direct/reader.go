// Package direct reads messages of streams by requests, without consumers: single ones and pages from whichever copy is nearest, what must
// not be behind from the stream's leader. It does not know what the messages mean.
package direct

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
)

const (
	headersAtOnce = 5000        // messages that are asked for at a time
	headersIdle   = time.Minute // after which the server forgets a read that its process left
)

// Reader reads streams: single messages and pages from whichever copy is nearest, what must not be behind from the stream's leader. It does
// not know what the messages mean. It is safe for concurrent use.
type Reader struct {
	o Options

	slots   *fair.Semaphore // of reads in pages
	leaders sync.Map        // *leaderLook by stream
	epochs  sync.Map        // string by stream
}

// Options configure a [Reader].
type Options struct {
	Conn *nats.Conn          // for reads in bulk
	JS   jetstream.JetStream // on Conn
	// Copied says that some stream has copies, which may answer a read and be behind.
	Copied *atomic.Bool
	Log    *slog.Logger
	// Context ends checks of leaders, which are shared by many reads, and Checks counts them.
	Context context.Context //nolint:containedctx // the life of the reader's owner
	Checks  *sync.WaitGroup
}

// New returns a reader. It makes no request.
func New(o Options) *Reader {
	return &Reader{o: o, slots: fair.NewSemaphore(concurrentReads, concurrentReads)}
}

// RequestTime is how long one request to the log may take.
const RequestTime = 5 * time.Second

// Info reads the state of a stream.
func (rd *Reader) Info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTime)
	defer cancel()
	s, err := rd.o.JS.Stream(ctx, stream)
	if err != nil {
		return nil, natserr.Coded("look at the stream "+stream, err)
	}
	return s.CachedInfo(), nil
}

// Has reports whether a stream has a message.
func (rd *Reader) Has(ctx context.Context, stream string, r Request) (bool, error) {
	_, err := rd.GetNewest(ctx, stream, r)
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// SubjectCount returns how many subjects of a stream have messages.
func (rd *Reader) SubjectCount(ctx context.Context, stream string) (uint64, error) {
	s, err := rd.o.JS.Stream(ctx, stream)
	if err != nil {
		return 0, natserr.Coded("look at the stream "+stream, err)
	}
	return s.CachedInfo().State.NumSubjects, nil
}

// Subjects returns the subjects of a stream that match a filter, with their numbers of messages. The server returns at most 100,000 at a
// time.
func (rd *Reader) Subjects(ctx context.Context, op, stream, filter string) (map[string]uint64, error) {
	all, total := map[string]uint64{}, 1
	for len(all) < total {
		page, n, err := rd.SubjectsPage(ctx, op, stream, filter, len(all), RequestTime)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, page)
		if total = n; len(page) == 0 {
			break
		}
	}
	return all, nil
}

// SubjectsPage returns a part of what Subjects returns, from an offset on. total is the number of all subjects.
func (rd *Reader) SubjectsPage(ctx context.Context, op, stream, filter string, offset int, within time.Duration) (
	page map[string]uint64, total int, err error,
) {
	body, err := json.Marshal(struct {
		Filter string `json:"subjects_filter"`
		Offset int    `json:"offset"`
	}{filter, offset})
	if err != nil {
		return nil, 0, natserr.Coded(op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := rd.o.Conn.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, body)
	if err != nil {
		return nil, 0, natserr.Coded(op, err)
	}
	page, total, err = parseCounts(m.Data)
	return page, total, natserr.Coded(op, err)
}

// parseCounts reads a page of counts.
func parseCounts(data []byte) (page map[string]uint64, total int, err error) {
	var got struct {
		Error *jetstream.APIError `json:"error"`
		Total int                 `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return nil, 0, schemas.Wrap(schemas.Internal, "read from the log", "the log's answer is not understood", err)
	}
	if got.Error != nil {
		return nil, 0, got.Error
	}
	return got.State.Subjects, got.Total, nil
}

// Each calls f with the present messages of a stream that match the filters, from a sequence on, until f returns false; without their data
// if headersOnly. Code not_found: there is no such stream.
func (rd *Reader) Each(
	ctx context.Context, stream string, filters []string, from uint64, headersOnly bool, f func(jetstream.Msg) bool,
) error {
	op := "count the messages of " + stream
	c, err := rd.o.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, FilterSubjects: filters, HeadersOnly: headersOnly, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: headersIdle,
		Replicas: 1, MemoryStorage: true,
	})
	if err != nil {
		return natserr.Coded(op, err)
	}
	info := c.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTime)
		defer cancel()
		if err := rd.o.JS.DeleteConsumer(ctx, stream, info.Name); err != nil {
			rd.o.Log.Debug("temporary consumer not removed, the server removes it when it is idle", "stream", stream, "error", err)
		}
	}()
	for left := info.NumPending; left > 0; {
		if err := ctx.Err(); err != nil {
			return natserr.Coded(op, err)
		}
		batch, err := c.FetchNoWait(int(min(left, headersAtOnce)))
		if err != nil {
			return natserr.Coded(op, err)
		}
		n, enough := uint64(0), false
		for m := range batch.Messages() {
			enough = enough || !f(m)
			n++
		}
		if err := batch.Error(); err != nil {
			return natserr.Coded(op, err)
		}
		if n == 0 || enough { // the rest was removed meanwhile
			return nil
		}
		left -= min(n, left)
	}
	return nil
}

// EpochOf returns a short id of a stream's incarnation, which changes when the stream is recreated.
func EpochOf(name string, created time.Time) string {
	h := fnv.New64a()
	h.Write([]byte(name + "\x00" + strconv.FormatInt(created.UnixNano(), 10))) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// Epoch returns the epoch of a stream. It is cached until the connection reconnects.
func (rd *Reader) Epoch(ctx context.Context, stream string) (string, error) {
	if v, ok := rd.epochs.Load(stream); ok {
		if epoch, ok := v.(string); ok {
			return epoch, nil
		}
	}
	info, err := rd.Info(ctx, stream)
	if err != nil {
		return "", err
	}
	return rd.NoteEpoch(stream, info), nil
}

// NoteEpoch caches the epoch of a stream, and returns it.
func (rd *Reader) NoteEpoch(stream string, info *jetstream.StreamInfo) string {
	epoch := EpochOf(stream, info.Created)
	rd.epochs.Store(stream, epoch)
	return epoch
}

// ForgetEpochs empties the cache of epochs.
func (rd *Reader) ForgetEpochs() { rd.epochs.Clear() }
