package durable

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

const (
	maxForks  = 500 // of one stream
	maxLevels = 32  // of forks of forks
)

// create makes a stream with its first data, or returns the existing one, with made false. Codes: conflict (there is a stream with other
// settings), not_found (the stream to fork does not exist), exhausted, invalid.
//
// The data is written first, under an id that no other process knows yet. Then the record is created, on condition that there is none;
// only then does the stream exist. After a crash in between, the [StreamCleaner] removes the data.
func (s *store) create(ctx context.Context, a schemas.AccountID, path string, c creation,
	body []byte) (f found, e end, made bool, err error) {
	for {
		f, e, err = s.existing(ctx, a, path, c)
		if err == nil || !errors.Is(err, schemas.ErrNotFound) {
			return f, e, false, err
		}
		if err := s.counts.take(ctx, s.log, a, s.now()); err != nil {
			return f, e, false, err
		}
		f, e, err = s.make(ctx, a, path, c, body)
		if !errors.Is(err, errTaken) {
			return f, e, err == nil, err
		}
	}
}

var (
	errTaken = errors.New("another request made a stream at this path just now")
	errSent  = errors.New("the stream may have been made")
)

// existing returns the stream at a path if its settings are those of the creation. Codes: not_found (the path is free), conflict.
func (s *store) existing(ctx context.Context, a schemas.AccountID, path string, c creation) (found, end, error) {
	f, err := s.lookup(ctx, a, path)
	if err != nil {
		return f, end{}, err
	}
	if f.Ended {
		return f, end{}, schemas.Errorf(schemas.Conflict, "the stream of this path was deleted and is kept for its forks: use another path")
	}
	e, err := s.end(ctx, f)
	if err != nil {
		return f, e, err
	}
	if !f.matches(c, e.state.Closed) {
		return f, e, refuse(http.StatusConflict, schemas.Conflict, "there is a stream with other settings at this path")
	}
	return f, e, nil
}

// make writes a new stream. The error is errTaken if another request made one at this path meanwhile.
func (s *store) make(ctx context.Context, a schemas.AccountID, path string, c creation, body []byte) (found, end, error) {
	now := s.now().UTC()
	f := found{Record: Record{
		ID: schemas.NewID("ds_"), Account: a, Path: path, ContentType: c.contentType, Created: now, TTL: c.ttl, Expires: c.expires, Touched: now,
	}}
	var before []byte
	if c.fork != nil {
		var err error
		if before, err = s.fork(ctx, &f, c); err != nil {
			return f, end{}, err
		}
	}
	f.ContentType = orDefault(f.ContentType, typeBytes)
	data, err := firstData(f.ContentType, before, body, s.log.MaxData())
	if err == nil {
		var e end
		if e, err = s.begin(ctx, &f, state{Closed: c.closed, Bytes: len(data)}, data); err == nil {
			return f, e, nil
		}
	}
	if f.Origin != nil && !errors.Is(err, errSent) {
		err = errors.Join(err, s.release(ctx, a, f.Origin, f.ID))
	}
	return f, end{}, err
}

// begin writes the first message, and then the record. After an error that is errSent the record may exist or not, so a fork's source must
// not be released; if the record does not exist, the [StreamCleaner] releases it.
func (s *store) begin(ctx context.Context, f *found, st state, data []byte) (end, error) {
	seq, err := s.write(ctx, *f, 0, st, data)
	if err != nil {
		return end{}, err
	}
	f.revision, err = s.records.Create(ctx, recordKey(f.Account, f.Path), f.Record, 0)
	switch code := schemas.CodeOf(err); {
	case err == nil:
		return end{seq, st}, nil
	case code == schemas.Conflict:
		return end{}, errors.Join(errTaken, s.log.Drop(ctx, f.Account, f.ID))
	case code == schemas.Invalid:
		return end{}, err
	}
	return end{}, errors.Join(errSent, err)
}

// fork sets the fields of f that a fork takes from its source, and records the fork at the source, so that the source's data is kept. It
// returns the part of a message that the fork begins with. Codes: not_found, conflict, invalid, exhausted.
func (s *store) fork(ctx context.Context, f *found, c creation) ([]byte, error) {
	source, err := s.lookup(ctx, f.Account, c.fork.from)
	if err != nil {
		return nil, err
	}
	e, err := s.end(ctx, source)
	if err != nil {
		return nil, err
	}
	at := c.fork.seq
	if c.fork.at == "" {
		at = e.seq
	}
	switch {
	case source.Ended:
		return nil, refuse(http.StatusConflict, schemas.Conflict, "the stream to fork was deleted")
	case c.contentType != "" && mediaType(c.contentType) != mediaType(source.ContentType):
		return nil, refuse(http.StatusConflict, schemas.Conflict, "a fork has the content type of its source, which is %s",
			schemas.Quotable(source.ContentType))
	case at > e.seq:
		return nil, schemas.Invalidf(headerForkAt, "is behind the end of the stream to fork")
	case len(source.Inherited) >= maxLevels:
		return nil, refuse(http.StatusTooManyRequests, schemas.Exhausted, "a fork may be at most %d forks away from its first source", maxLevels)
	}
	copied, err := s.part(ctx, source, at, c.fork.sub)
	if err != nil {
		return nil, err
	}
	if _, err := s.change(ctx, source.Account, source.Path, source.ID, func(r *Record) error { return r.hold(f.ID, f.Path) }); err != nil {
		return nil, err
	}
	if c.ttl == nil && c.expires.IsZero() {
		f.TTL, f.Expires = source.TTL, source.Expires
	}
	f.ContentType = source.ContentType
	f.Origin = &Origin{Path: source.Path, ID: source.ID, Offset: c.fork.at, Sub: c.fork.sub}
	f.Inherited = source.inherit(at)
	return copied, nil
}

// hold records that a fork of the stream exists, so that its data is kept. It fails if the stream was deleted or has too many forks.
func (r *Record) hold(id, path string) error {
	switch {
	case r.Ended:
		return refuse(http.StatusConflict, schemas.Conflict, "the stream to fork was deleted")
	case len(r.Forks) >= maxForks:
		return refuse(http.StatusTooManyRequests, schemas.Exhausted, "a stream may have %d forks: delete some", maxForks)
	}
	r.note(id, path)
	return nil
}

// note records a fork that exists, without the checks of hold.
func (r *Record) note(id, path string) {
	r.Forks = maps.Clone(r.Forks)
	if r.Forks == nil {
		r.Forks = map[string]string{}
	}
	r.Forks[id] = path
}

// part returns the first sub bytes, or JSON values, of the message after at.
func (s *store) part(ctx context.Context, f found, at, sub uint64) ([]byte, error) {
	for after := at; sub > 0; {
		p, err := s.read(ctx, f, after)
		if err != nil {
			return nil, err
		}
		for _, m := range p.messages {
			if len(m.data) > 0 {
				return firstOf(f.ContentType, m.data, sub)
			}
		}
		if p.upToDate {
			return nil, schemas.Invalidf(headerForkSub, "there is nothing behind the offset")
		}
		after = p.next
	}
	return nil, nil
}

// firstOf returns the first n values of a JSON message, or the first n bytes of any other.
func firstOf(contentType string, data []byte, n uint64) ([]byte, error) {
	if !isJSON(contentType) {
		if n > uint64(len(data)) {
			return nil, schemas.Invalidf(headerForkSub, "the append there has %d bytes", len(data))
		}
		return data[:n], nil
	}
	var first []byte
	count := uint64(0)
	for v := range elements(data) {
		if count == n {
			break
		}
		if count++; count > 1 {
			first = append(first, ',')
		}
		first = append(first, v...)
	}
	if count < n {
		return nil, schemas.Invalidf(headerForkSub, "the append there has %d values", count)
	}
	return first, nil
}

// firstData returns the first data of a new stream: the part that a fork copies, followed by the body.
func firstData(contentType string, copied, body []byte, most int) ([]byte, error) {
	data := body
	if isJSON(contentType) && len(body) > 0 {
		var err error
		if data, _, err = flatten(body); err != nil {
			return nil, err
		}
	}
	if isJSON(contentType) && len(copied) > 0 && len(data) > 0 {
		copied = append(slices.Clip(copied), ',')
	}
	data = append(slices.Clip(copied), data...)
	if len(data) > most {
		return nil, tooLarge(most)
	}
	return data, nil
}

func tooLarge(most int) error {
	return refuse(http.StatusRequestEntityTooLarge, schemas.Invalid, "one request may carry %d bytes: send more of them", most)
}
