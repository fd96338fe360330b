package durable

import (
	"net/http"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of one stream.
const (
	maxBytes     = 1 << 30 // of data
	maxProducers = 1000    // that ever wrote to the stream
)

// producer is a writer that numbers its appends, so that repeated ones are detected, with the epoch and number that it has reached.
type producer struct {
	ID    string `json:"id"`
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// state is what a stream's messages add up to. Each message stores the state after it.
type state struct {
	Closed    bool      `json:"closed,omitzero"`
	Seq       string    `json:"seq,omitzero"` // the greatest Stream-Seq
	Bytes     int       `json:"bytes,omitzero"`
	Producers int       `json:"producers,omitzero"` // how many have written
	Producer  *producer `json:"producer,omitzero"`  // the producer that wrote this message
}

// decide returns the state after an append of data bytes to a stream in state s. Before is what the append's producer has reached, nil if
// it never wrote. Duplicate means that the append was done before. It is pure.
//
// The order of the checks is that of the protocol: a producer that was replaced gets that error before any other, and a retry succeeds
// even if the first attempt closed the stream.
func decide(s state, before *producer, a addition, data int) (next state, duplicate bool, err error) {
	p := a.producer
	if p != nil && before != nil {
		switch {
		case p.Epoch < before.Epoch:
			return s, false, refuse(http.StatusForbidden, schemas.Denied, "another has taken over this producer with a higher epoch").
				with(headerEpoch, strconv.FormatUint(before.Epoch, 10))
		case p.Epoch == before.Epoch && p.Seq <= before.Seq:
			return s, true, nil
		}
	}
	if s.Closed {
		if p == nil && a.closed && data == 0 {
			return s, true, nil
		}
		return s, false, refuse(http.StatusConflict, schemas.Conflict, "the stream is closed").with(headerClosed, valueTrue)
	}
	if err := checkOrder(s, before, a); err != nil {
		return s, false, err
	}
	next = state{Closed: a.closed, Seq: s.Seq, Bytes: s.Bytes + data, Producers: s.Producers, Producer: p}
	if a.seq != "" {
		next.Seq = a.seq
	}
	if p != nil && before == nil {
		next.Producers++
	}
	switch {
	case next.Bytes > maxBytes:
		return s, false, refuse(http.StatusRequestEntityTooLarge, schemas.Exhausted, "the stream is full: begin another")
	case next.Producers > maxProducers:
		return s, false, refuse(http.StatusTooManyRequests, schemas.Exhausted, "too many producers have written to this stream: begin another")
	}
	return next, false, nil
}

// checkOrder checks that the append has the producer's next number, and a greater Stream-Seq than the last. Codes: invalid, conflict.
func checkOrder(s state, before *producer, a addition) error {
	if p := a.producer; p != nil {
		expected := uint64(0)
		if before != nil && p.Epoch == before.Epoch {
			expected = before.Seq + 1
		}
		switch {
		case p.Seq == expected:
		case before != nil && p.Epoch > before.Epoch:
			return schemas.Invalidf(headerPSeq, "a new epoch begins with 0")
		default:
			return refuse(http.StatusConflict, schemas.Conflict, "appends before this one are missing").
				with(headerExpected, strconv.FormatUint(expected, 10)).with(headerReceived, strconv.FormatUint(p.Seq, 10))
		}
	}
	if a.seq != "" && a.seq <= s.Seq {
		return refuse(http.StatusConflict, schemas.Conflict, "Stream-Seq must be greater than the last one")
	}
	return nil
}

// RefusalError is an error with an HTTP status and headers beside its code.
type RefusalError struct {
	status int
	header http.Header
	err    error
}

func refuse(status int, code schemas.Code, format string, args ...any) *RefusalError {
	return &RefusalError{status: status, header: http.Header{}, err: schemas.Errorf(code, format, args...)}
}

func (r *RefusalError) with(name, value string) *RefusalError {
	r.header.Set(name, value)
	return r
}

// HTTPStatus returns the status of the response.
func (r *RefusalError) HTTPStatus() int { return r.status }

func (r *RefusalError) Error() string { return r.err.Error() }
func (r *RefusalError) Unwrap() error { return r.err }
