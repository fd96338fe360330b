package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// payloadHeadroom is what stays free of the server's limit for headers: ours, and those that the
	// server adds when it sends a message again.
	payloadHeadroom = 16 << 10
	// maxWhole is the most bytes that are read back into memory for one message.
	maxWhole = 64 << 20
)

// objects are the object stores for payloads above the server's limit, made when first needed.
type objects struct {
	mu   sync.Mutex
	open map[string]jetstream.ObjectStore
}

// forget lets them be looked for again: the server may be another one.
func (o *objects) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.open)
}

func (b *Bus) objectStore(ctx context.Context, stream string) (jetstream.ObjectStore, string, error) {
	name, kept := payloadBucket(stream)
	b.objects.mu.Lock()
	defer b.objects.mu.Unlock()
	if s := b.objects.open[name]; s != nil {
		return s, name, nil
	}
	s, err := b.ensureObjects(ctx, name, kept)
	if err != nil {
		return nil, "", err
	}
	if b.objects.open == nil {
		b.objects.open = map[string]jetstream.ObjectStore{}
	}
	b.objects.open[name] = s
	return s, name, nil
}

// offload moves a payload that is too large into the object store and leaves its name. If the
// process dies before the message itself is published, the object ages out.
func (b *Bus) offload(ctx context.Context, stream string, m *nats.Msg) error {
	if len(m.Data) <= b.limit {
		return nil
	}
	store, bucket, err := b.objectStore(ctx, stream)
	if err != nil {
		return err
	}
	name := schemas.NewID("p_")
	if _, err := store.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(m.Data)); err != nil {
		return coded("store a large payload", err)
	}
	m.Header.Set(headerPayload, bucket+"/"+name)
	m.Data = nil
	return nil
}

// whole returns the payload of a message, from the object store if it is there.
func (b *Bus) whole(ctx context.Context, stream string, h nats.Header, data []byte) ([]byte, error) {
	const op = "read a large payload"
	place := h.Get(headerPayload)
	if place == "" || stream == streamIntake { // an outside publisher cannot name objects
		return data, nil
	}
	bucket, name, ok := strings.Cut(place, "/")
	if bucket == formerPayloads && strings.HasPrefix(stream, eventsPrefix) {
		stream = streamJobs // it has that bucket still
	}
	if want, _ := payloadBucket(stream); !ok || bucket != want {
		return nil, schemas.Errorf(schemas.Invalid, op, "%q is no place of a payload", schemas.Quotable(place))
	}
	store, _, err := b.objectStore(ctx, stream)
	if err != nil {
		return nil, err
	}
	r, err := store.Get(ctx, name)
	if err != nil {
		return nil, coded(op, err)
	}
	defer r.Close() //nolint:errcheck // read only
	b2, err := io.ReadAll(io.LimitReader(r, maxWhole+1))
	if err == nil {
		err = r.Error()
	}
	switch {
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return nil, schemas.Wrap(schemas.Unavailable, op, "the log does not answer: try again", err)
	case err != nil:
		return nil, coded(op, err)
	case len(b2) > maxWhole:
		return nil, schemas.Errorf(schemas.Invalid, op, "it is larger than %d bytes", maxWhole)
	}
	return b2, nil
}
