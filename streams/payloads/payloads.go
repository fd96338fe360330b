// Package payloads keeps the payloads that are too large for a message in object stores of the log. The message names the object in a header.
package payloads

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/topology"
)

// Headers of a message whose payload is in an object store.
const (
	Header     = "Sandjet-Payload" // "<bucket>/<object>"
	HeaderSize = "Sandjet-Size"    // bytes of the payload, as a decimal number
	// HeaderSummary has what stays readable when the object is gone, which ages out sooner than some messages.
	HeaderSummary = "Sandjet-Summary"
)

const (
	// Headroom is how many bytes of the server's limit stay free for headers: ours, and those that the server adds when it sends a message
	// again.
	Headroom = 16 << 10
	// Max is the most bytes of a payload.
	Max = 64 << 20
	// awaited is how long after a message was stored its payload may still be on its way, though the leader does not have it: another server
	// may just have become the leader.
	awaited    = time.Minute
	unledTries = 12 // to store a payload while its store has no leader
)

// Options say where payloads are. All are required.
type Options struct {
	Reader   *direct.Reader
	Topology *topology.Topology // creates the stores
	Copied   *atomic.Bool       // whether the log has replicas, which may be behind
	Limit    int                // bytes beyond which a payload goes to an object store
	Now      func() time.Time
	// Bucket returns the bucket for payloads of a stream and how long they are kept.
	Bucket func(stream string) (name string, kept time.Duration)
	// Former returns the stream whose bucket an older version used for a payload of a stream: mostly the stream itself.
	Former func(stream, bucket string) string
	// Foreign is the stream of messages from outside publishers, which cannot name objects.
	Foreign string
	// Account returns the account that a message counts for; empty if it does not count.
	Account func(subject string) schemas.AccountID
	Wrote   func(subject string, n int64) // counts a payload of n bytes
}

// Store stores and reads large payloads. It creates the object stores on first use. It is safe for concurrent use.
type Store struct {
	o      Options
	stores objects
}

// New returns the Store of a log.
func New(o Options) *Store { return &Store{o: o} }

// Limit returns beyond how many bytes a payload goes to an object store.
func (p *Store) Limit() int { return p.o.Limit }

// Forget drops all open stores: the server may be another one.
func (p *Store) Forget() { p.stores.forget() }

// objects are the object stores that are open.
type objects struct {
	mu      sync.Mutex // no request is made under it: a store without a leader must not hold up the others
	open    map[string]jetstream.ObjectStore
	opening map[string]chan struct{} // closed when the store of that name was opened, or was not
}

// find returns an open store, or a channel: if own, the caller must open the store and call opened; otherwise another caller is opening
// it, and the channel is closed afterwards.
func (o *objects) find(name string) (s jetstream.ObjectStore, opening chan struct{}, own bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.open[name]; s != nil {
		return s, nil, false
	}
	if c := o.opening[name]; c != nil {
		return nil, c, false
	}
	if o.open == nil {
		o.open, o.opening = map[string]jetstream.ObjectStore{}, map[string]chan struct{}{}
	}
	c := make(chan struct{})
	o.opening[name] = c
	return nil, c, true
}

// opened records an opened store, or that it could not be opened. A store that was to be forgotten meanwhile is not kept.
func (o *objects) opened(name string, opening chan struct{}, s jetstream.ObjectStore, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(opening)
	if o.opening[name] != opening {
		return
	}
	delete(o.opening, name)
	if err == nil {
		o.open[name] = s
	}
}

// forget makes all stores be opened again: the server may be another one.
func (o *objects) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.open)
	clear(o.opening)
}

// store opens the object store for payloads of a stream, and returns its name.
func (p *Store) store(ctx context.Context, stream string) (jetstream.ObjectStore, string, error) {
	name, kept := p.o.Bucket(stream)
	for {
		s, opening, own := p.stores.find(name)
		switch {
		case s != nil:
			return s, name, nil
		case own:
			s, err := p.o.Topology.EnsureObjects(ctx, name, kept)
			p.stores.opened(name, opening, s, err)
			return s, name, err
		}
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, "", natserr.Coded("open the store of payloads "+name, ctx.Err())
		}
	}
}

// Offload moves a payload that is too large into the object store and leaves its name. If the
// process dies before the message itself is published, the object ages out.
func (p *Store) Offload(ctx context.Context, stream string, m *nats.Msg) error {
	if len(m.Data) <= p.o.Limit {
		return nil
	}
	store, bucket, err := p.store(ctx, stream)
	if err != nil {
		return err
	}
	name := subjects.OrNone(p.o.Account(m.Subject)) + "." + schemas.NewID("p_") // so that it can be counted
	for try := 0; ; try++ {
		_, err := store.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(m.Data))
		if err == nil {
			break
		}
		// A store with copies that was made this moment has no leader yet; what a former try left is put aside by the next.
		unled := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
		if !unled || try == unledTries || !wait.Sleep(ctx, acks.NoStreamPause) {
			return natserr.Coded("store a large payload", err)
		}
	}
	p.o.Wrote(m.Subject, int64(len(m.Data)))
	m.Header.Set(Header, bucket+"/"+name)
	m.Header.Set(HeaderSize, strconv.Itoa(len(m.Data)))
	m.Data = nil
	return nil
}

// Size returns how many bytes the payload of a message has, also in an object store.
func (p *Store) Size(m direct.Message) int {
	if size, away := p.Away(m.Stream, m.Headers); away {
		return size
	}
	return len(m.Data)
}

// Away returns how many bytes the payload of a message has that is in an object store. away is false if the message has its payload itself.
func (p *Store) Away(stream string, h nats.Header) (size int, away bool) {
	if stream == p.o.Foreign || h.Get(Header) == "" {
		return 0, false
	}
	n, err := strconv.Atoi(h.Get(HeaderSize))
	if err != nil || n < 0 {
		return direct.PageBytes, true // stored by an older version: a payload lies elsewhere because it is about as large, or larger
	}
	return n, true
}

// WithinPage cuts a page so that its messages with their payloads do not exceed a page's size, but keeps at least one; more reports
// whether others follow.
func (p *Store) WithinPage(page []direct.Message, more bool) ([]direct.Message, bool) {
	size := 0
	for i, m := range page {
		if size += p.Size(m); size > direct.PageBytes && i > 0 {
			return page[:i], true
		}
	}
	return page, more
}

// Whole returns the payload of a message that was stored at a time, from the object store if it is there.
func (p *Store) Whole(ctx context.Context, stream string, h nats.Header, data []byte, stored time.Time) ([]byte, error) {
	const op = "read a large payload"
	place := h.Get(Header)
	if place == "" || stream == p.o.Foreign { // an outside publisher cannot name objects
		return data, nil
	}
	bucket, name, ok := strings.Cut(place, "/")
	stream = p.o.Former(stream, bucket)
	if want, _ := p.o.Bucket(stream); !ok || bucket != want {
		return nil, schemas.OpErrorf(schemas.Invalid, op, "%q is not the place of a payload", schemas.Quotable(place))
	}
	if _, _, err := p.store(ctx, stream); err != nil {
		return nil, err
	}
	data, err := p.readObject(ctx, bucket, name)
	if errors.Is(err, schemas.ErrNotFound) && p.o.Copied.Load() && p.o.Now().Sub(stored) < awaited {
		return nil, schemas.Wrap(schemas.Unavailable, op, "it is not there yet: try again", err)
	}
	return data, err
}

// readObject reads an object by pages rather than by a consumer, since each page can be completed from the leader: a message may arrive
// here before the nearest copy has its payload. Code: not_found if the leader does not have all of it.
func (p *Store) readObject(ctx context.Context, bucket, name string) ([]byte, error) {
	const op = "read a large payload"
	stream := "OBJ_" + bucket
	m, err := p.o.Reader.Get(ctx, stream, direct.Request{Last: "$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))})
	if err != nil {
		return nil, err
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(m.Data, &info); err != nil || !subjects.IsToken(info.NUID) {
		return nil, schemas.OpErrorf(schemas.Internal, op, "what is kept there is not what belongs there")
	}
	switch {
	case info.Deleted:
		return nil, schemas.OpErrorf(schemas.NotFound, op, "it was deleted")
	case info.Size > Max:
		return nil, schemas.OpErrorf(schemas.Invalid, op, "it is larger than %d bytes", Max)
	}
	whole, chunks := make([]byte, 0, info.Size), "$O."+bucket+".C."+info.NUID
	for from, more := uint64(1), true; more && uint64(len(whole)) < info.Size; {
		var page []direct.Message
		page, more, err = p.o.Reader.GetPageNear(ctx, stream, chunks, from, nil, direct.PageMessages)
		if err == nil && !more && uint64(len(whole))+sizeOf(page) < info.Size && p.o.Copied.Load() {
			page, more, err = p.o.Reader.ToPresent(ctx, stream, chunks, from, nil, direct.PageMessages, page)
		}
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			whole, from = append(whole, m.Data...), m.Seq+1
		}
		more = more && len(page) > 0
	}
	sum := sha256.Sum256(whole)
	if uint64(len(whole)) != info.Size || info.Digest != "" && info.Digest != "SHA-256="+base64.URLEncoding.EncodeToString(sum[:]) {
		return nil, schemas.OpErrorf(schemas.NotFound, op, "it is not there whole: %d bytes of %d", len(whole), info.Size)
	}
	return whole, nil
}

func sizeOf(page []direct.Message) (n uint64) {
	for _, m := range page {
		n += uint64(len(m.Data))
	}
	return n
}
