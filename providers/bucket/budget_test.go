package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/schemas"
)

// stalled is a service that answers a request with a part of a file only when it is let go, and counts the bytes of those that it has.
type stalled struct {
	gate chan struct{} // one value for each request that may end

	mu      sync.Mutex
	bytes   map[string]int // by the first part of the key
	most    int            // of all, ever
	started []string       // keys, in their order
}

func (s *stalled) add(key string, n int) {
	account, _, _ := strings.Cut(key, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 {
		s.started = append(s.started, key)
	}
	s.bytes[account] += n
	all := 0
	for _, n := range s.bytes {
		all += n
	}
	s.most = max(s.most, all)
}

func (s *stalled) RoundTrip(r *http.Request) (*http.Response, error) {
	key := strings.TrimPrefix(r.URL.Path, "/files/")
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"e"`}}, Body: http.NoBody, Request: r}
	n := int(r.ContentLength)
	switch r.Method {
	case http.MethodHead:
		return answer, nil
	case http.MethodGet:
		var from, to int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
			return nil, err
		}
		n = to - from + 1
		answer.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, n))
		answer.Body, answer.ContentLength, answer.StatusCode = io.NopCloser(bytes.NewReader(make([]byte, n))), int64(n), http.StatusPartialContent
	}
	s.add(key, n)
	defer s.add(key, -n)
	select {
	case <-s.gate:
		return answer, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func openStalled(t *testing.T, account string, budget *Budget, via http.RoundTripper) *Bucket {
	t.Helper()
	b, err := Open(Options{Bucket: "files", Prefix: account + "/", Endpoint: "http://s3.example.com", PathStyle: true,
		Credentials: Static("a", "b", ""), Budget: budget, Account: account, transport: via})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTransfersShareABudget: however many transfers of however many accounts run at the same time, in and out, the files that they have in
// memory are within the budget, an account's within its share, and all transfers end.
//
//guarantee:bounds
func TestTransfersShareABudget(t *testing.T) {
	const parts, share, each = 4, 2, 6
	synctest.Test(t, func(t *testing.T) {
		s := &stalled{gate: make(chan struct{}), bytes: map[string]int{}}
		budget := NewBudget(parts*PartSize, share*PartSize)
		var work sync.WaitGroup
		var done, all int
		var mu sync.Mutex
		finish := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if done++; err != nil {
				t.Error(err)
			}
		}
		content := make([]byte, PartSize)
		hash := sha256.Sum256(content)
		for _, account := range []string{"one", "two", "three"} {
			b := openStalled(t, account, budget, s)
			for i := range each {
				name := fmt.Sprintf("in-%d", i)
				work.Go(func() {
					finish(b.Part(t.Context(), name, "", 0, PartSize, func(data []byte, _ Object) error {
						if len(data) != PartSize || cap(data) != PartSize {
							return fmt.Errorf("%d bytes in a buffer of %d", len(data), cap(data))
						}
						return nil
					}))
				})
				work.Go(func() {
					_, err := b.Put(t.Context(), "out"+name, "", hex.EncodeToString(hash[:]), bytes.NewReader(content), PartSize)
					finish(err)
				})
				all += 2
			}
		}
		for range all {
			synctest.Wait()
			s.mu.Lock()
			for account, n := range s.bytes {
				if n > share*PartSize {
					t.Errorf("%s has %d bytes at the same time, and may have %d", account, n, share*PartSize)
				}
			}
			s.mu.Unlock()
			s.gate <- struct{}{}
		}
		work.Wait()
		if s.most != parts*PartSize || done != all {
			t.Errorf("%d bytes at the same time, and %d may be; %d transfers of %d ended", s.most, parts*PartSize, done, all)
		}
		if free := budget.room.Free(); free != parts*PartSize {
			t.Errorf("%d bytes are left", free)
		}
	})
}

// TestAnAccountsFloodLeavesTurns: an account with any number of transfers whose service stalls keeps no other from its turn, and a
// transfer that stops waiting takes nothing with it.
//
//guarantee:bounds
func TestAnAccountsFloodLeavesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stalled{gate: make(chan struct{}), bytes: map[string]int{}}
		budget := NewBudget(3*PartSize, 2*PartSize)
		flood, other := openStalled(t, "flood", budget, s), openStalled(t, "other", budget, s)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for i := range 1000 {
			work.Go(func() {
				err := flood.Part(ctx, fmt.Sprint(i), "", 0, PartSize, func([]byte, Object) error { return nil })
				if err == nil || !errors.Is(err, context.Canceled) {
					t.Errorf("a transfer whose context ended: %v", err)
				}
			})
		}
		synctest.Wait()
		work.Go(func() {
			if err := other.Part(t.Context(), "x", "", 0, PartSize, func([]byte, Object) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		s.mu.Lock()
		if s.bytes["flood"] != 2*PartSize || s.bytes["other"] != PartSize {
			t.Errorf("in flight: %v", s.bytes)
		}
		s.mu.Unlock()
		cancel()
		synctest.Wait()
		s.gate <- struct{}{}
		work.Wait()
		if free := budget.room.Free(); free != 3*PartSize {
			t.Errorf("%d bytes are left", free)
		}
	})
}

// TestSmallFilesDoNotPassALargeOne: a part that waits for room is next however many small files come after it, and a small file takes
// little of the budget.
//
//guarantee:bounds
func TestSmallFilesDoNotPassALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(PartSize, PartSize)
		var order []string
		var mu sync.Mutex
		var work sync.WaitGroup
		take := func(account, what string, n int64) (done func()) {
			done, err := budget.take(t.Context(), account, n)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
			return done
		}
		small := []func(){take("c", "first", 1), take("c", "first", leastHeld)}
		work.Go(func() { take("a", "large", PartSize)() })
		synctest.Wait()
		for range 3 {
			work.Go(func() { take("a", "small", 1)() })
			work.Go(func() { take("b", "small", 1)() })
		}
		synctest.Wait()
		for _, done := range small {
			done()
		}
		work.Wait()
		if got := fmt.Sprint(order[:3]); got != "[first first large]" || len(order) != 9 {
			t.Errorf("the order is %v", order)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := take("a", "last", PartSize)
		if _, err := budget.take(ctx, "b", 1); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("without room: %v", err)
		}
		done()
	})
}
