package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

const (
	// SkillChunk is how many bytes of a bundle are in each but its last chunk.
	SkillChunk = 256 << 10
	// MaxSkillTar is the most bytes of a bundle's tar: its files, and what the tar adds to each.
	MaxSkillTar = schemas.MaxSkillBundle + (schemas.MaxSkillFiles*4+64)<<10
	// SkillsKept is how long a bundle is kept at least that no record names: above what an upload takes until its record is written, and
	// above what a call takes that has begun to read it.
	SkillsKept = time.Hour
)

// skillSubject is where a chunk of a bundle lies. Its size is in it, so that those of an account are summed up without reading one. Its
// content is always the same, as the digest is of the whole bundle: writing it again only makes it younger.
func skillSubject(a schemas.AccountID, digest, number, size string) string {
	return subjects.Skills + string(a) + "." + digest + "." + number + "." + size
}

// StoreSkill stores a bundle of an account's and returns its digest. No reader sees half of it: the record that names it is written after.
// It may be called again, also at the same time. It does not ask whether there is room. Codes: invalid (too large), unavailable, timeout.
func StoreSkill(ctx context.Context, b *Bus, a schemas.AccountID, tar []byte) (digest string, err error) {
	if len(tar) == 0 || len(tar) > MaxSkillTar {
		return "", schemas.Invalidf("", "a bundle has %d bytes: at most %d", len(tar), MaxSkillTar)
	}
	if err := a.Validate(); err != nil { // it becomes a subject
		return "", err
	}
	sum := sha256.Sum256(tar)
	digest = hex.EncodeToString(sum[:])
	for i := 0; len(tar) > 0; i++ {
		part := tar[:min(len(tar), SkillChunk)]
		tar = tar[len(part):]
		m := nats.NewMsg(skillSubject(a, digest, strconv.Itoa(i), strconv.Itoa(len(part))))
		m.Data = part
		if _, err := b.writer.store(ctx, m); err != nil {
			return "", fmt.Errorf("store a skill: %w", err)
		}
	}
	return digest, nil
}

// ReadSkill reads a bundle whose digest and size a record has. Codes: not_found (it was replaced, and is gone), unavailable, internal
// (what is kept is something else).
func ReadSkill(ctx context.Context, b *Bus, a schemas.AccountID, digest string, size int64) ([]byte, error) {
	const op = "read a skill"
	if size <= 0 || size > MaxSkillTar {
		return nil, schemas.OpErrorf(schemas.Internal, op, "its record says %d bytes", size)
	}
	tar := make([]byte, 0, size) // at once: while it grew it would be there twice
	for i := int64(0); i*SkillChunk < size; i++ {
		data, err := ReadSkillChunk(ctx, b, a, digest, size, i)
		if err != nil {
			return nil, err
		}
		tar = append(tar, data...)
	}
	if sum := sha256.Sum256(tar); hex.EncodeToString(sum[:]) != digest {
		return nil, schemas.OpErrorf(schemas.Internal, op, "what is kept there is not what belongs there")
	}
	return tar, nil
}

// ReadSkillChunk reads the n-th piece, of [SkillChunk] bytes but for the last, of a bundle. Codes: not_found, unavailable.
func ReadSkillChunk(ctx context.Context, b *Bus, a schemas.AccountID, digest string, size, n int64) ([]byte, error) {
	length := min(SkillChunk, size-n*SkillChunk)
	m, err := b.reader.GetLast(ctx, streamSkills, skillSubject(a, digest, strconv.FormatInt(n, 10), strconv.FormatInt(length, 10)))
	if err != nil {
		return nil, fmt.Errorf("read a skill: %w", err)
	}
	if int64(len(m.Data)) != length {
		return nil, schemas.OpErrorf(schemas.Internal, "read a skill", "what is kept there is not what belongs there")
	}
	return m.Data, nil
}

// SkillBytes is how many bytes of bundles are kept for an account, but for one digest. Codes: unavailable.
func SkillBytes(ctx context.Context, b *Bus, a schemas.AccountID, but string) (n int64, err error) {
	subjects, err := b.reader.Subjects(ctx, "count the bundles of skills", streamSkills, subjects.Skills+string(a)+".>")
	for subject := range subjects {
		if _, digest, size, ok := parseSkillSubject(subject); ok && digest != but {
			n += size
		}
	}
	return n, err
}

func parseSkillSubject(subject string) (a schemas.AccountID, digest string, size int64, ok bool) {
	t := strings.Split(strings.TrimPrefix(subject, subjects.Skills), ".")
	if len(t) != 4 { // account, digest, number, size
		return "", "", 0, false
	}
	size, err := strconv.ParseInt(t[3], 10, 64)
	return schemas.AccountID(t[0]), t[1], size, err == nil && size > 0
}

// StoredSkill is a bundle that is kept, whole or not.
type StoredSkill struct {
	Account schemas.AccountID
	Digest  string
}

// StoredSkills lists the bundles that are kept, sorted. Codes: unavailable.
func StoredSkills(ctx context.Context, b *Bus) ([]StoredSkill, error) {
	subjects, err := b.reader.Subjects(ctx, "count the bundles of skills", streamSkills, subjects.Skills+">")
	if err != nil {
		return nil, err
	}
	seen := map[StoredSkill]bool{}
	var list []StoredSkill
	for subject := range subjects {
		if a, digest, _, ok := parseSkillSubject(subject); ok && !seen[StoredSkill{a, digest}] {
			seen[StoredSkill{a, digest}] = true
			list = append(list, StoredSkill{a, digest})
		}
	}
	slices.SortFunc(list, func(a, b StoredSkill) int {
		return strings.Compare(string(a.Account)+a.Digest, string(b.Account)+b.Digest)
	})
	return list, nil
}

// RemoveSkill removes what is kept of a bundle, unless some of it was written after a time: then a record is about to name it. Kept says
// so. What is written while this runs stays. Codes: unavailable.
func RemoveSkill(ctx context.Context, b *Bus, k StoredSkill, before time.Time) (kept bool, err error) {
	const op = "remove a skill"
	filter := skillSubject(k.Account, k.Digest, "*", "*")
	var last uint64
	for from, more := uint64(1), true; more; {
		var page []direct.Message
		if page, more, err = b.reader.GetPage(ctx, streamSkills, filter, from, nil, 0); err != nil {
			return false, err
		}
		for _, m := range page {
			if !m.Time.Before(before) {
				return true, nil
			}
			last, from = m.Seq, m.Seq+1
		}
		more = more && len(page) > 0
	}
	if last == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamSkills)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(filter), jetstream.WithPurgeSequence(last+1))
	}
	return false, natserr.Coded(op, err)
}
