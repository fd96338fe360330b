package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	// ArtifactChunk is how many bytes of an artifact are in each but its last chunk.
	ArtifactChunk = 256 << 10
	// artifactsLonger is how much longer artifacts are kept than events. So the bytes outlast the event that names them.
	artifactsLonger = day
)

// KeptArtifact is an artifact as stored on the log. Chunks are stored under their own digests, so writing the same chunk again, by any
// process, only renews its age.
type KeptArtifact struct {
	Artifact schemas.Artifact `json:"artifact"`
	// Chunks are the digests of its bytes, [ArtifactChunk] of them each.
	Chunks []string `json:"chunks"`

	seq uint64
}

// artifactSubject is the subject of an artifact's description. It has the size, so that the sizes of a conversation can be added up
// without reading messages.
func artifactSubject(a schemas.AccountID, k schemas.Artifact) string {
	return artifactsOf(a, subjects.Token(string(k.Conversation)), subjects.Token(string(k.Call)), string(k.ID), strconv.FormatInt(k.Size, 10))
}

func artifactsOf(a schemas.AccountID, conversation, call, id, size string) string {
	return subjects.Artifacts + string(a) + ".of." + conversation + "." + call + "." + id + "." + size
}

func chunkSubject(a schemas.AccountID, name string) string {
	return subjects.Artifacts + string(a) + ".bytes." + name
}

// sizeOfArtifact reads the size in the subject of an artifact, 0 where there is none.
func sizeOfArtifact(subject string) int64 {
	n, err := strconv.ParseInt(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// StoreArtifactChunk stores a chunk of an account's and returns its name. It does not ask whether there is room: see [Bus.RoomFor].
// It may be called again. Codes: invalid (too large), unavailable, timeout.
func StoreArtifactChunk(ctx context.Context, b *Bus, a schemas.AccountID, chunk []byte) (name string, err error) {
	if len(chunk) > min(ArtifactChunk, b.payloads.Limit()) {
		return "", schemas.Invalidf("", "a chunk has %d bytes: at most %d", len(chunk), min(ArtifactChunk, b.payloads.Limit()))
	}
	sum := sha256.Sum256(chunk)
	name = hex.EncodeToString(sum[:])
	m := nats.NewMsg(chunkSubject(a, name))
	m.Data = chunk
	_, err = b.writer.store(ctx, m)
	return name, err
}

// ReadArtifactChunk reads a chunk. Codes: not_found, unavailable, internal (what is kept is something else).
func ReadArtifactChunk(ctx context.Context, b *Bus, a schemas.AccountID, name string) ([]byte, error) {
	m, err := b.reader.GetLast(ctx, streamArtifacts, chunkSubject(a, name))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(m.Data); hex.EncodeToString(sum[:]) != name {
		return nil, schemas.OpErrorf(schemas.Internal, "read an artifact", "what is kept there is not what belongs there")
	}
	return m.Data, nil
}

// StoreArtifact stores the description of an artifact. Its chunks must be stored before. It may be repeated. Codes: unavailable, timeout.
func StoreArtifact(ctx context.Context, b *Bus, a schemas.AccountID, k KeptArtifact) error {
	data, err := schemas.EncodeJSON(k)
	if err != nil {
		return schemas.Wrap(schemas.Internal, "store an artifact", "it cannot be written", err)
	}
	m := nats.NewMsg(artifactSubject(a, k.Artifact))
	m.Data = data
	_, err = b.writer.store(ctx, m)
	return err
}

// decodeArtifact reads what [StoreArtifact] has stored.
func decodeArtifact(m direct.Message) (KeptArtifact, error) {
	k := KeptArtifact{seq: m.Seq}
	const most = 64 << 10 // bytes: above what the chunks of the largest take, and a long path
	if err := schemas.DecodeStrict(m.Data, most, &k); err != nil {
		return k, schemas.Wrap(schemas.Internal, "read an artifact", "what is kept there is not what belongs there", err)
	}
	want := (k.Artifact.Size + ArtifactChunk - 1) / ArtifactChunk
	if k.Artifact.Size < 0 || want != int64(len(k.Chunks)) {
		return k, schemas.OpErrorf(schemas.Internal, "read an artifact", "it has %d bytes and %d chunks", k.Artifact.Size, len(k.Chunks))
	}
	return k, nil
}

// FindArtifact reads the description of an artifact. Codes: not_found, unavailable.
func FindArtifact(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.ArtifactID) (KeptArtifact, error) {
	if err := errors.Join(a.Validate(), id.Validate()); err != nil { // they become a subject
		return KeptArtifact{}, schemas.OpErrorf(schemas.NotFound, "find an artifact", "there is no such artifact")
	}
	m, err := b.reader.GetNewest(ctx, streamArtifacts, direct.Request{Last: artifactsOf(a, "*", "*", string(id), "*")})
	if errors.Is(err, schemas.ErrNotFound) {
		return KeptArtifact{}, schemas.OpErrorf(schemas.NotFound, "find an artifact",
			"there is no such artifact: it was removed, it has gone with its age, or there never was one")
	}
	if err != nil {
		return KeptArtifact{}, err
	}
	return decodeArtifact(m)
}

// ListArtifacts returns at most limit artifacts of a conversation, in the order in which they were stored, beginning after one of them
// (empty: at the first). more reports whether others follow. Codes: not_found (after does not exist), unavailable.
func ListArtifacts(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, after schemas.ArtifactID, limit int) (
	list []schemas.Artifact, more bool, err error,
) {
	from := uint64(1)
	if after != "" {
		k, err := FindArtifact(ctx, b, a, after)
		if err != nil {
			return nil, false, err
		}
		from = k.seq + 1
	}
	kept, more, err := readArtifacts(ctx, b, artifactsOf(a, subjects.Token(string(c)), "*", "*", "*"), from, limit)
	list = make([]schemas.Artifact, len(kept))
	for i, k := range kept {
		list[i] = k.Artifact
	}
	return list, more, err
}

// ArtifactsOfCall reads the artifacts of a call that are stored.
func ArtifactsOfCall(ctx context.Context, b *Bus, c schemas.Call) ([]schemas.Artifact, error) {
	kept, _, err := readArtifacts(ctx, b, artifactsOf(c.Account, subjects.Token(string(c.Conversation)), subjects.Token(string(c.ID)), "*", "*"), 1,
		schemas.MaxArtifacts)
	list := make([]schemas.Artifact, len(kept))
	for i, k := range kept {
		list[i] = k.Artifact
	}
	return list, err
}

func readArtifacts(ctx context.Context, b *Bus, subject string, from uint64, limit int) (list []KeptArtifact, more bool, err error) {
	for {
		page, behind, err := b.reader.GetPage(ctx, streamArtifacts, subject, from, nil, limit-len(list))
		if err != nil {
			return nil, false, err
		}
		for _, m := range page {
			from = m.Seq + 1
			k, err := decodeArtifact(m)
			if err != nil {
				b.log.Error("stored message is not an artifact, skipped", "seq", m.Seq, "error", err)
				continue
			}
			list = append(list, k)
		}
		if !behind || len(page) == 0 || len(list) >= limit {
			return list, behind && len(page) > 0, nil
		}
	}
}

// ArtifactsKept returns the number and total bytes of a conversation's stored artifacts. Code: unavailable.
func ArtifactsKept(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID) (n int, size int64, err error) {
	const op = "count the artifacts of a conversation"
	all, _, err := b.reader.SubjectsPage(ctx, op, streamArtifacts, artifactsOf(a, subjects.Token(string(c)), "*", "*", "*"), 0, requestWithin)
	for subject := range all { // one page: there are fewer than it holds
		n, size = n+1, size+sizeOfArtifact(subject)
	}
	return n, size, natserr.Coded(op, err)
}

// DeleteArtifact removes the description of an artifact. Its chunks, which other artifacts may share, expire by age. An artifact that is
// already gone is no error. Code: unavailable.
func DeleteArtifact(ctx context.Context, b *Bus, a schemas.AccountID, k schemas.Artifact) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamArtifacts)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(artifactSubject(a, k)))
	}
	return natserr.Coded("remove an artifact", err)
}

// removeOldArtifacts removes what was stored before a time.
func removeOldArtifacts(ctx context.Context, b *Bus, before time.Time, t *Tenure) error {
	page, _, err := b.reader.GetPage(ctx, streamArtifacts, subjects.Artifacts+">", 1, &before, 1)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	info, err := b.reader.Info(ctx, streamArtifacts)
	if err != nil || info.State.Msgs == 0 {
		return err
	}
	first := info.State.LastSeq + 1 // all are older
	if len(page) > 0 {
		first = page[0].Seq
	}
	if first <= info.State.FirstSeq || len(page) == 0 && !info.State.LastTime.Before(before) { // stored since
		return nil
	}
	if held := t.Held(); held != nil {
		return held
	}
	ctx, cancel := context.WithTimeout(ctx, 3*requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamArtifacts)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(first))
	}
	return natserr.Coded("remove old artifacts", err)
}
