package streams_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const spoken schemas.ConversationID = "chat/7"

// said is a commit with one message.
func said(text string) schemas.Commit {
	return schemas.Commit{
		ID: schemas.NewID(schemas.CommitPrefix), Turn: "turn_1", At: time.Now(),
		Entries: []schemas.Entry{{Kind: schemas.EntryIn, Begins: true, Taken: []string{text[:1]}, Messages: []schemas.ModelMessage{
			{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: text}}},
		}}},
	}
}

func textOf(c schemas.Commit) string { return c.Entries[0].Messages[0].Blocks[0].Text }

// transcript reads the texts of a conversation, and where its last commit is.
func transcript(t testing.TB, b *streams.Bus, c schemas.ConversationID) (texts []string, tail uint64) {
	t.Helper()
	for k, err := range streams.ReadTranscript(t.Context(), b, account, c) {
		testwait.OK(t, err)
		if k.Seq <= tail || k.Stored.IsZero() || k.Size == 0 {
			t.Fatalf("commit %+v after %d", k, tail)
		}
		texts, tail = append(texts, textOf(k.Commit)), k.Seq
	}
	return texts, tail
}

//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestATranscriptIsWrittenBehindItsTail(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		add := func(c schemas.ConversationID, after, from uint64, commit schemas.Commit) (uint64, error) {
			return streams.AppendCommit(t.Context(), b, account, c, after, from, commit)
		}
		if texts, _ := transcript(t, b, spoken); texts != nil {
			t.Errorf("of a conversation that has none: %q", texts)
		}
		a, again := said("a"), said("b")
		first := testwait.Must(add(spoken, 0, 0, a))(t)
		testwait.Must(add("another", 0, 0, said("x")))(t)
		second := testwait.Must(add(spoken, first, 0, again))(t)
		for name, after := range map[string]uint64{"nothing": 0, "an older commit": first, "one to come": second + 9} {
			if _, err := add(spoken, after, 0, said("no")); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("append behind %s: %v; want a conflict", name, err)
			}
		}
		// Whose confirmation was lost appends again: the commit is found, also when another has written behind it.
		third := testwait.Must(add(spoken, second, 0, said("c")))(t)
		for _, again := range []struct {
			after, want uint64
			commit      schemas.Commit
		}{{0, first, a}, {first, second, again}} {
			if seq, err := add(spoken, again.after, 0, again.commit); err != nil || seq != again.want {
				t.Errorf("again behind %d: %d, %v; want %d", again.after, seq, err, again.want)
			}
		}
		if texts, tail := transcript(t, b, spoken); strings.Join(texts, "") != "abc" || tail != third {
			t.Errorf("read %q up to %d", texts, tail)
		}
		testwait.Must(add(spoken, third, second, said("d")))(t)
		if texts, _ := transcript(t, b, spoken); strings.Join(texts, "") != "bcd" {
			t.Errorf("read %q from %d", texts, second)
		}
		for name, bad := range map[string]schemas.Commit{"no entries": {ID: a.ID, Turn: a.Turn, At: a.At}, "no id": {Turn: a.Turn}} {
			if _, err := add(spoken, third, 0, bad); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("append with %s: %v", name, err)
			}
		}
		if _, err := streams.AppendCommit(t.Context(), b, "acct.*", spoken, 0, 0, a); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("append for an account with a wildcard: %v", err)
		}
	}, natstest.Shards(3))
}

// Of many who append behind the same tail one is let through, each time.
//
//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestTwoWritersOfATranscript(t *testing.T) {
	l := natstest.Start(t)
	const writers, each = 4, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				commit := said(fmt.Sprintf("%d.%d", w, n))
				_, tail := transcript(t, l.Bus, spoken)
				for {
					_, err := streams.AppendCommit(t.Context(), l.Bus, account, spoken, tail, 0, commit)
					if err == nil {
						break
					}
					if errors.Is(err, schemas.ErrConflict) {
						_, tail = transcript(t, l.Bus, spoken)
					} else if !errors.Is(err, schemas.ErrUnavailable) { // then the same again, behind the same
						t.Errorf("behind %d: %v", tail, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	next := [writers]int{}
	texts, _ := transcript(t, l.Bus, spoken)
	for _, text := range texts {
		var w, n int
		testwait.Must(fmt.Sscanf(text, "%d.%d", &w, &n))(t)
		if n != next[w] {
			t.Errorf("writer %d: %d after %d", w, n, next[w])
		}
		next[w]++
	}
	if len(texts) != writers*each {
		t.Errorf("%d commits", len(texts))
	}
}

// A transcript outlives its server; a commit that is larger than a message is kept beside it, and found by its id.
//
//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestATranscriptAfterARestart(t *testing.T) {
	l := natstest.Start(t, natstest.Dir(t.TempDir()))
	large := said("L" + strings.Repeat("x", 3<<20))
	first := testwait.Must(streams.AppendCommit(t.Context(), l.Bus, account, spoken, 0, 0, said("a")))(t)
	second := testwait.Must(streams.AppendCommit(t.Context(), l.Bus, account, spoken, first, 0, large))(t)
	l.Restart()
	again := func(after uint64, c schemas.Commit) (seq uint64) { // until it is known whether it is stored
		testwait.Eventually(t, "it is stored", func() bool {
			var err error
			seq, err = streams.AppendCommit(t.Context(), l.Bus, account, spoken, after, 0, c)
			if err != nil && !errors.Is(err, schemas.ErrUnavailable) {
				t.Error(err)
			}
			return err == nil
		})
		return seq
	}
	if seq := again(first, large); seq != second {
		t.Errorf("again: %d; want %d", seq, second)
	}
	again(second, said("c"))
	texts, _ := transcript(t, l.Bus, spoken)
	if len(texts) != 3 || texts[1] != textOf(large) {
		t.Errorf("%d commits", len(texts))
	}
}

//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestALongTranscriptIsReadWholeAndFromItsSummary(t *testing.T) {
	many := 2500
	if longtest.Asked() {
		many = 10_000
	}
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		tail, middle := uint64(0), uint64(0)
		for n := range many {
			from := uint64(0)
			if n == many-1 {
				from = middle
			}
			if n == many-1 {
				texts, _ := transcript(t, b, spoken)
				if len(texts) != n || texts[n-1] != fmt.Sprint(n-1) {
					t.Errorf("%d commits", len(texts))
				}
			}
			tail = testwait.Must(streams.AppendCommit(t.Context(), b, account, spoken, tail, from, said(fmt.Sprint(n))))(t)
			if n == many-10 {
				middle = tail
			}
		}
		if texts, _ := transcript(t, b, spoken); len(texts) != 10 || texts[0] != fmt.Sprint(many-10) {
			t.Errorf("from the summary: %q", texts)
		}
	})
}

//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestTheTranscriptsOfAnAccountGoWithIt(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const other schemas.AccountID = "acct_other"
		first := testwait.Must(streams.AppendCommit(t.Context(), b, account, spoken, 0, 0, said("a")))(t)
		testwait.Must(streams.AppendCommit(t.Context(), b, other, spoken, 0, 0, said("a")))(t)
		gone := func(_ context.Context, a schemas.AccountID) bool { return a == account }
		stop := retain(t, &streams.Retention{Bus: b, Gone: gone, Every: time.Minute})
		testwait.Eventually(t, "the transcript is gone", func() bool { texts, _ := transcript(t, b, spoken); return texts == nil })
		stop()
		if _, err := streams.AppendCommit(t.Context(), b, account, spoken, first, 0, said("b")); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("append to a transcript that was removed: %v; want a conflict", err)
		}
		testwait.Must(streams.AppendCommit(t.Context(), b, account, spoken, 0, 0, said("b")))(t)
		n := 0
		for range streams.ReadTranscript(t.Context(), b, other, spoken) {
			n++
		}
		if n != 1 {
			t.Errorf("another account has %d commits", n)
		}
	})
}
