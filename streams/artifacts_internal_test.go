package streams

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

func FuzzDecodeArtifact(f *testing.F) {
	f.Add([]byte(`{"artifact":{"id":"art_1","size":1},"chunks":["aa"]}`))
	f.Add([]byte(`{"artifact":{"size":-1},"chunks":null}`))
	f.Add([]byte(`{"artifact":{"size":9223372036854775807}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := decodeArtifact(direct.Message{Data: data, Seq: 7})
		if err == nil && (k.Artifact.Size < 0 || (k.Artifact.Size+ArtifactChunk-1)/ArtifactChunk != int64(len(k.Chunks)) || k.seq != 7) {
			t.Errorf("%+v", k)
		}
	})
}

func FuzzSizeOfArtifact(f *testing.F) {
	f.Add("sandjet.artifacts.a.of.b.c.d.12")
	f.Add("")
	f.Fuzz(func(t *testing.T, subject string) {
		if n := sizeOfArtifact(subject); n < 0 {
			t.Error(n)
		}
	})
}

// TestSubjectsOfArtifacts: the account is found in each, and no id of a client's is more than one token.
func TestSubjectsOfArtifacts(t *testing.T) {
	t.Parallel()
	k := schemas.Artifact{ID: "art_1", Call: "a.b:c", Conversation: "x/y.z", Size: 12}
	for subject, tokens := range map[string]int{artifactSubject("acct_1", k): 8, chunkSubject("acct_1", "aa"): 5} {
		if a := subjects.AccountOf(subject); a != "acct_1" {
			t.Errorf("%s is of %q", subject, a)
		}
		if a, class := usageOf(subject); a != "acct_1" || class != usage.Events {
			t.Errorf("%s counts for %q as %d", subject, a, class)
		}
		if n := strings.Count(subject, ".") + 1; n != tokens {
			t.Errorf("%s has %d tokens, want %d", subject, n, tokens)
		}
	}
	if n := sizeOfArtifact(artifactSubject("acct_1", k)); n != 12 {
		t.Errorf("size %d", n)
	}
}

// TestArtifactsFitTheirRecord: what describes the largest artifact under the longest path can be read back.
func TestArtifactsFitTheirRecord(t *testing.T) {
	t.Parallel()
	k := KeptArtifact{Artifact: schemas.Artifact{Path: strings.Repeat("\u2028", schemas.MaxFilePath/3), Size: schemas.MaxArtifactSize}}
	for range schemas.MaxArtifactSize / ArtifactChunk {
		k.Chunks = append(k.Chunks, strings.Repeat("a", 64))
	}
	k.Artifact.Name = k.Artifact.Path
	text, err := schemas.EncodeJSON(k)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeArtifact(direct.Message{Data: text})
	if err != nil || len(got.Chunks) != len(k.Chunks) || !bytes.Equal([]byte(got.Artifact.Path), []byte(k.Artifact.Path)) {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}
