package bucket

import (
	"context"
	"crypto/md5" //nolint:gosec // it is what services make ETags of
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Sum identifies a content by its size, its SHA-256, and the ETag that it has after [Bucket.Put] on a service that derives ETags from MD5,
// as Amazon's does unless it encrypts with a KMS key. The content is written to it.
type Sum struct {
	sha   hash.Hash
	part  hash.Hash // MD5 of the last part
	parts []byte    // the MD5s of those before
	size  int64
}

// NewSum returns the sum of an empty content.
func NewSum() *Sum {
	return &Sum{sha: sha256.New(), part: md5.New()} //nolint:gosec // as above
}

// Write implements [io.Writer]. It never fails.
func (s *Sum) Write(p []byte) (int, error) {
	s.sha.Write(p)
	for rest := p; len(rest) > 0; {
		had := int(s.size % PartSize)
		if had == 0 && s.size > 0 {
			s.parts = s.part.Sum(s.parts)
			s.part.Reset()
		}
		n := min(len(rest), PartSize-had)
		s.part.Write(rest[:n])
		s.size += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// Size returns how many bytes were written.
func (s *Sum) Size() int64 { return s.size }

// Hash returns the SHA-256 in hexadecimal.
func (s *Sum) Hash() string { return hex.EncodeToString(s.sha.Sum(nil)) }

// Is reports whether an ETag certainly belongs to this content. False proves nothing: services choose ETags freely.
func (s *Sum) Is(etag string) bool {
	last := s.part.Sum(nil)
	own := hex.EncodeToString(last)
	if s.size > PartSize {
		all := append(append([]byte(nil), s.parts...), last...)
		whole := md5.Sum(all) //nolint:gosec // as above
		own = fmt.Sprintf("%x-%d", whole, len(all)/md5.Size)
	}
	return strings.Trim(etag, `"`) == own
}

// Holds reports whether a version of a file has the content of sum. It ignores the hash in its metadata, because other programs copy
// metadata to other contents. If size and ETag do not decide, it reads a version of at most limit bytes; for a larger one it returns
// false.
func (b *Bucket) Holds(ctx context.Context, o Object, sum *Sum, limit int64) (bool, error) {
	switch {
	case o.Size != sum.Size():
		return false, nil
	case sum.Is(o.ETag):
		return true, nil
	case o.Size > limit:
		return false, nil
	}
	theirs := NewSum()
	for theirs.Size() < o.Size {
		got := 0
		err := b.Part(ctx, o.Name, o.ETag, theirs.Size(), int(min(o.Size-theirs.Size(), PartSize)), func(data []byte, _ Object) error {
			got, _ = theirs.Write(data) // it never fails
			return nil
		})
		if code := schemas.CodeOf(err); code == schemas.Conflict || code == schemas.NotFound { // it is another by now
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if got == 0 {
			return false, schemas.OpErrorf(schemas.Unavailable, "s3", "read %s: it ended early", quoted(o.Name))
		}
	}
	return theirs.Hash() == sum.Hash(), nil
}
