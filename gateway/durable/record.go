package durable

import (
	"encoding/base64"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Record is the metadata of a stream, stored in a bucket.
type Record struct {
	ID          string            `json:"id"` // names its data; a stream that is deleted and made again gets another
	Account     schemas.AccountID `json:"account"`
	Path        string            `json:"path"`
	ContentType string            `json:"content_type"`
	Created     time.Time         `json:"created"`
	// TTL in seconds counts from Touched; Expires is fixed. At most one is set.
	TTL     *int64    `json:"ttl,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Touched time.Time `json:"touched,omitzero"`
	// Ended streams are kept for their forks only.
	Ended bool `json:"ended,omitzero"`
	// Forks are the paths of its forks by their ids.
	Forks map[string]string `json:"forks,omitzero"`
	// Origin is the stream that a fork was made from, Inherited the segments of its data that precede the fork's own.
	Origin    *Origin   `json:"origin,omitzero"`
	Inherited []Segment `json:"inherited,omitzero"`
}

// Origin is the stream, and the position in it, that a fork was made from.
type Origin struct {
	Path   string `json:"path"`
	ID     string `json:"id"`
	Offset string `json:"offset,omitzero"` // as in the request
	Sub    uint64 `json:"sub,omitzero"`
}

// Segment is a part of the data that a fork inherits: the messages of one stream up to a sequence.
type Segment struct {
	ID   string `json:"id"`
	Upto uint64 `json:"upto"`
}

// touchEvery: a use is written to the record once 1/16 of the TTL has passed since the last. The same time is added to the TTL, so a
// stream never expires early, and at most that much late.
const touchEvery = 16

// expired reports whether the stream has expired at now. It is pure.
func (r *Record) expired(now time.Time) bool {
	if r.TTL != nil {
		ttl := time.Duration(*r.TTL) * time.Second
		return now.After(r.Touched.Add(ttl + ttl/touchEvery))
	}
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// stale reports whether a use at now must be written to the record.
func (r *Record) stale(now time.Time) bool {
	return r.TTL != nil && now.Sub(r.Touched) > time.Duration(*r.TTL)*time.Second/touchEvery
}

// matches reports whether the stream has the settings of c, so that a repeated PUT succeeds.
func (r *Record) matches(c creation, closed bool) bool {
	sameType := mediaType(r.ContentType) == mediaType(orDefault(c.contentType, typeBytes))
	if c.fork != nil {
		o := r.Origin
		if o == nil || o.Path != c.fork.from || o.Offset != c.fork.at || o.Sub != c.fork.sub {
			return false
		}
		sameType = sameType || c.contentType == ""
	}
	inherits := c.fork != nil && c.ttl == nil && c.expires.IsZero()
	sameLife := inherits || r.Expires.Equal(c.expires) && (r.TTL == nil) == (c.ttl == nil) && (r.TTL == nil || *r.TTL == *c.ttl)
	return sameType && sameLife && closed == c.closed && (r.Origin == nil) == (c.fork == nil)
}

// inherit returns the segments that a fork of r at a sequence inherits: all data of r up to it.
func (r *Record) inherit(at uint64) []Segment {
	var out []Segment
	for _, s := range r.Inherited {
		if len(out) > 0 && out[len(out)-1].Upto >= at {
			break
		}
		out = append(out, Segment{s.ID, min(s.Upto, at)})
	}
	if len(out) == 0 || out[len(out)-1].Upto < at {
		out = append(out, Segment{r.ID, at})
	}
	return out
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func recordKey(a schemas.AccountID, path string) string {
	return string(a) + "." + base64.RawURLEncoding.EncodeToString([]byte(path))
}
