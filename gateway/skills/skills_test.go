package skills_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	gateway "github.com/sandjet/sandjet/gateway/skills"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
	"github.com/sandjet/sandjet/streams"
)

// one keeps one skill, the last that was put.
type one struct {
	skill schemas.Skill
	dies  bool // before the record
}

func (o *one) List(context.Context, schemas.AccountID) ([]schemas.Skill, error) { return nil, nil }

func (o *one) Get(context.Context, schemas.AccountID, string) (schemas.Skill, uint64, error) {
	if o.skill.Digest == "" {
		return o.skill, 0, schemas.ErrNotFound
	}
	return o.skill, 1, nil
}

func (o *one) Admit(context.Context, schemas.AccountID, schemas.SkillManifest, bool) error {
	return nil
}

func (o *one) Put(_ context.Context, k schemas.Skill, _ bool, _ uint64) (schemas.Skill, uint64, error) {
	if o.dies {
		return k, 0, errors.New("the process is gone")
	}
	o.skill = k
	return k, 1, nil
}

func (o *one) Remove(context.Context, schemas.AccountID, string, uint64) error { return nil }

func upload(t *testing.T, s *gateway.Skills, content []byte) error {
	t.Helper()
	b, err := skills.New([]skills.File{
		{Path: "SKILL.md", Content: []byte("---\nname: a\ndescription: b\n---\n")}, {Path: "data", Content: content},
	})
	if err != nil {
		t.Fatal(err)
	}
	tar, err := b.Tar()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v1/skills/a", bytes.NewReader(tar))
	r.SetPathValue("id", "a")
	return s.Put(httptest.NewRecorder(), r, "acct_1")
}

// TestAnAccountFillsWhatItMay: an account that uploads the same skill again and again with other bytes, whose former bundles are swept
// later, meets the limit, and other accounts do not. What is kept is below it all the time.
func TestAnAccountFillsWhatItMay(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const most, times = 200 << 10, 2000
		records := &one{}
		s := gateway.New(gateway.Options{Bus: b, Records: records, Most: most})
		taken, refused := 0, 0
		content := make([]byte, 10<<10)
		for range times {
			if _, err := rand.Read(content); err != nil {
				t.Fatal(err)
			}
			switch err := upload(t, s, content); {
			case err == nil:
				taken++
			case schemas.CodeOf(err) == schemas.Exhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
		kept, err := streams.SkillBytes(t.Context(), b, "acct_1", "")
		if err != nil || kept > most || kept < most/2 || taken+refused != times || taken > most/len(content) {
			t.Errorf("%d bytes are kept after %d uploads, %d were refused: %v", kept, taken, refused, err)
		}
		if other, err := streams.SkillBytes(t.Context(), b, "acct_2", ""); err != nil || other != 0 {
			t.Errorf("another account has %d bytes, %v", other, err)
		}
	})
}

// TestAnUploadThatDiesIsSentAgain: its bytes are there without a name, count for the account, and are the same when they come again.
func TestAnUploadThatDiesIsSentAgain(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		records := &one{dies: true}
		s := gateway.New(gateway.Options{Bus: b, Records: records})
		content := bytes.Repeat([]byte("x"), 700<<10)
		if err := upload(t, s, content); err == nil {
			t.Fatal("it did not die")
		}
		before, err := streams.SkillBytes(t.Context(), b, "acct_1", "")
		if err != nil || before < int64(len(content)) {
			t.Fatal(before, err)
		}
		records.dies = false
		if err := upload(t, s, content); err != nil {
			t.Fatal(err)
		}
		if after, err := streams.SkillBytes(t.Context(), b, "acct_1", ""); err != nil || after != before {
			t.Errorf("%d bytes, were %d: %v", after, before, err)
		}
		tar, err := streams.ReadSkill(t.Context(), b, "acct_1", records.skill.Digest, records.skill.Size)
		if err != nil || !bytes.Contains(tar, content) {
			t.Error(len(tar), err)
		}
	})
}

// held is records that admit no skill until they may.
type held struct {
	one

	mu       sync.Mutex
	admitted map[schemas.AccountID]int
	open     chan struct{}
}

func (h *held) Admit(_ context.Context, a schemas.AccountID, _ schemas.SkillManifest, _ bool) error {
	h.mu.Lock()
	h.admitted[a]++
	h.mu.Unlock()
	<-h.open
	return nil
}

func (h *held) Put(_ context.Context, k schemas.Skill, _ bool, _ uint64) (schemas.Skill, uint64, error) {
	return k, 1, nil
}

func (h *held) of(a schemas.AccountID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admitted[a]
}

// TestUploadsShareABudget: what was unpacked is counted until it is stored. One account's uploads have its share, whether they are large
// or may be, and another account's have theirs meanwhile. All are stored in the end.
//
//guarantee:bounds
func TestUploadsShareABudget(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const uploads, size = 12, 25 << 20
		h := &held{admitted: map[schemas.AccountID]int{}, open: make(chan struct{})}
		s := gateway.New(gateway.Options{Bus: b, Records: h})
		files := []skills.File{{Path: "SKILL.md", Content: []byte("---\nname: a\ndescription: b\n---\n")}}
		for n := range size / schemas.MaxSkillFile {
			files = append(files, skills.File{Path: fmt.Sprint("data/", n), Content: make([]byte, schemas.MaxSkillFile)})
		}
		bundle, err := skills.New(files)
		if err != nil {
			t.Fatal(err)
		}
		tar, err := bundle.Tar()
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(tar); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		var sent sync.WaitGroup
		send := func(a schemas.AccountID, body []byte) {
			sent.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v1/skills/a", bytes.NewReader(body))
				r.SetPathValue("id", "a")
				if err := s.Put(httptest.NewRecorder(), r, a); err != nil {
					t.Error(err)
				}
			})
		}
		for range uploads {
			send("acct_1", packed.Bytes())
		}
		send("acct_2", tar)
		time.Sleep(time.Second) // until nothing moves any more
		most := gateway.UploadBytesOfAccount / len(tar)
		if n := h.of("acct_1"); n < 1 || n > most {
			t.Errorf("%d uploads of one account have their tars in memory, %d fit its share", n, most)
		}
		if n := h.of("acct_2"); n != 1 {
			t.Errorf("%d uploads of another account came through", n)
		}
		close(h.open)
		sent.Wait()
		if n := h.of("acct_1"); n != uploads {
			t.Errorf("%d of %d were stored", n, uploads)
		}
	})
}
