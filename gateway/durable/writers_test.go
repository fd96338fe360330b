package durable_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// value is what the writers of these tests append.
type value struct{ W, N int }

// readAll reads a JSON stream page by page.
func readAll(t *testing.T, url string) []value {
	t.Helper()
	var all []value
	for offset, deadline := "-1", time.Now().Add(2*within); ; {
		a := do(t, http.MethodGet, url+"?offset="+offset, "")
		if a.status == http.StatusServiceUnavailable && time.Now().Before(deadline) {
			continue // the server is being restarted
		}
		var some []value
		if err := json.Unmarshal([]byte(a.body), &some); a.status != http.StatusOK || err != nil {
			t.Fatalf("read from %s: %d, %v", offset, a.status, err)
		}
		all = append(all, some...)
		if offset = a.header.Get("Stream-Next-Offset"); a.header.Get("Stream-Up-To-Date") == "true" {
			return all
		}
	}
}

// wantOnce wants every writer's values once each and in order.
func wantOnce(t *testing.T, got []value, writers, each int) {
	t.Helper()
	next := map[int]int{}
	for _, v := range got {
		if v.N != next[v.W] {
			t.Errorf("of writer %d came %d where %d belongs", v.W, v.N, next[v.W])
		}
		next[v.W] = v.N + 1
	}
	for w := range writers {
		if next[w] != each {
			t.Errorf("of writer %d there are %d values, of %d", w, next[w], each)
		}
	}
}

// TestProducersThatRetryThroughTwoGatewaysWriteOnce sends every append twice, at the same time and
// through gateways that know nothing of one another.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestProducersThatRetryThroughTwoGatewaysWriteOnce(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 25
	log := natstest.Start(t)
	gateways := []string{serveAs(t, log.Bus, alice, time.Second), serveAs(t, log.Open(), alice, time.Second)}
	if a := do(t, http.MethodPut, gateways[0]+"race", "", "Content-Type", "application/json"); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				var twice sync.WaitGroup
				var status [2]int
				var unheard atomic.Bool // a log that is slow to answer may have stored what was not acknowledged
				for i, g := range gateways {
					twice.Go(func() {
						for end := time.Now().Add(within); ; unheard.Store(true) {
							status[i] = do(t, http.MethodPost, g+"race", fmt.Sprintf(`{"W":%d,"N":%d}`, w, n), "Content-Type", "application/json",
								"Producer-Id", fmt.Sprintf("writer %d", w), "Producer-Epoch", "0", "Producer-Seq", strconv.Itoa(n)).status
							if status[i] != http.StatusServiceUnavailable || time.Now().After(end) {
								return
							}
						}
					})
				}
				twice.Wait()
				if status != [2]int{200, 204} && status != [2]int{204, 200} && (!unheard.Load() || status != [2]int{204, 204}) {
					t.Errorf("writer %d, append %d: %v; want one to store and one to find it there", w, n, status)
				}
			}
		})
	}
	all.Wait()
	wantOnce(t, readAll(t, gateways[1]+"race"), writers, each)
}

// TestAppendsSurviveRestartsOfTheServer restarts the server under producers that try again until they get an answer.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestAppendsSurviveRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "ten seconds of restarts")
	const writers, each = 3, 30
	log := natstest.Start(t, natstest.OnDisk())
	gateways := []string{serveAs(t, log.Bus, alice, time.Second), serveAs(t, log.Open(), alice, time.Second)}
	if a := do(t, http.MethodPut, gateways[0]+"restart", "", "Content-Type", "application/json"); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	half := make(chan struct{}, writers*each)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				for deadline := time.Now().Add(2 * within); ; {
					a := do(t, http.MethodPost, gateways[rand.IntN(2)]+"restart", fmt.Sprintf(`[{"W":%d,"N":%d}]`, w, n),
						"Content-Type", "application/json",
						"Producer-Id", fmt.Sprintf("writer %d", w), "Producer-Epoch", "0", "Producer-Seq", strconv.Itoa(n))
					if a.status == http.StatusOK || a.status == http.StatusNoContent {
						break
					}
					if a.status < 500 || time.Now().After(deadline) {
						t.Errorf("writer %d, append %d: %d %s", w, n, a.status, a.body)
						return
					}
				}
				half <- struct{}{}
			}
		})
	}
	for restarts := range 2 {
		for range writers * each / 4 {
			<-half
		}
		log.Restart()
		t.Logf("restart %d", restarts)
	}
	all.Wait()
	wantOnce(t, readAll(t, gateways[0]+"restart"), writers, each)
}

func TestStreamsBelongToTheirAccount(t *testing.T) {
	t.Parallel()
	log := natstest.Start(t)
	hers, his := serveAs(t, log.Bus, alice, time.Second), serveAs(t, log.Bus, bob, time.Second)
	if a := do(t, http.MethodPut, hers+"notes/1", "secret", "Content-Type", "text/plain"); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
		if a := do(t, method, his+"notes/1", ""); a.status != http.StatusNotFound {
			t.Errorf("%s of another's stream: %d %s", method, a.status, a.body)
		}
	}
	if a := do(t, http.MethodPost, his+"notes/1", "x", "Content-Type", "text/plain"); a.status != http.StatusNotFound {
		t.Errorf("append to another's stream: %d %s", a.status, a.body)
	}
	if a := do(t, http.MethodPut, his+"copy", "", "Stream-Forked-From", "/v1/streams/notes/1"); a.status != http.StatusNotFound {
		t.Errorf("fork of another's stream: %d %s", a.status, a.body)
	}
	if a := do(t, http.MethodPut, his+"notes/1", "mine", "Content-Type", "text/plain"); a.status != http.StatusCreated {
		t.Errorf("a stream at the same path of another account: %d %s", a.status, a.body)
	}
	if a := do(t, http.MethodGet, hers+"notes/1", ""); a.body != "secret" {
		t.Errorf("her stream holds %q", a.body)
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	log := natstest.Start(t)
	url := serveAs(t, log.Bus, alice, time.Second)
	large := strings.Repeat("x", streams.OpenDurable(log.Bus).MaxData()+1)
	if a := do(t, http.MethodPut, url+"full", large[1:], "Content-Type", "text/plain"); a.status != http.StatusCreated {
		t.Errorf("as much as is allowed: %d %.200s", a.status, a.body)
	}
	if a := do(t, http.MethodGet, url+"full", ""); a.body != large[1:] {
		t.Errorf("%d bytes are read of %d", len(a.body), len(large)-1)
	}
	if a := do(t, http.MethodPut, url+"large", large, "Content-Type", "text/plain"); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("PUT: %d %.200s", a.status, a.body)
	}
	do(t, http.MethodPut, url+"large", "", "Content-Type", "text/plain")
	if a := do(t, http.MethodPost, url+"large", large, "Content-Type", "text/plain"); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("POST: %d %.200s", a.status, a.body)
	}
	if a := do(t, http.MethodPut, url+strings.Repeat("p", 257), ""); a.status != http.StatusBadRequest {
		t.Errorf("a long path: %d %.200s", a.status, a.body)
	}
	if a := do(t, http.MethodPut, url+"__ds/subscriptions/1", ""); a.status != http.StatusNotFound {
		t.Errorf("a reserved path: %d %.200s", a.status, a.body)
	}
}
