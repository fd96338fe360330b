package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func key(n int) laneKey { return laneKey{"acct_1", schemas.EndpointID(fmt.Sprintf("wh_%d", n))} }

func enter(ctx context.Context, l *lanes, k laneKey, most int) (*lane, delivery.Verdict) {
	return l.enter(ctx, k, receiverOf("u"), most)
}

// enterNow enters a lane or says why it cannot, without waiting.
func enterNow(t *testing.T, l *lanes, k laneKey, most int) (*lane, delivery.Verdict) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return enter(ctx, l, k, most)
}

func TestALaneTakesAsManyAsItsEndpointDeserves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		fill := func(want int) (in []*lane) {
			t.Helper()
			for {
				p, v := enterNow(t, l, key(1), 6)
				if p == nil {
					if len(in) != want || v.Kind != delivery.Busy {
						t.Errorf("%d places, then %+v; want %d and busy", len(in), v, want)
					}
					return in
				}
				in = append(in, p)
			}
		}
		leave := func(in []*lane, o outcome, took time.Duration) {
			for _, p := range in {
				l.leave(p, o, took, 0)
			}
		}
		leave(fill(suspectLane), accepted, time.Millisecond)
		leave(fill(6), refused, time.Millisecond) // more than enough to open the breaker
		time.Sleep(firstRest)
		probe, _ := enterNow(t, l, key(1), 6)
		leave([]*lane{probe}, accepted, time.Millisecond)
		leave(fill(6), accepted, prompt+time.Second)
		leave(fill(commonLane), unanswered, time.Millisecond)
		leave(fill(suspectLane)[:1], unanswered, time.Millisecond)
		if _, v := enterNow(t, l, key(1), 6); v.Kind != delivery.Held || v.After != firstRest {
			t.Errorf("after five failures: %+v, want it held", v)
		}
		l.leave(l.find(key(1)), unknown, 0, 0)
		if l.suspects.all != 0 || l.waiters.all != 0 || l.find(key(1)).inFlight != 0 {
			t.Errorf("empty, but counted: %d suspects, %d waiters", l.suspects.all, l.waiters.all)
		}
		time.Sleep(laneKept + time.Minute)
		enterNow(t, l, key(2), 1)
		if l.find(key(1)) != nil {
			t.Error("an idle lane is kept for ever")
		}
	})
}

// TestLanesOfAnAccountAreBounded: one that makes and removes endpoints, or changes their URLs, without end has so many lanes, and takes
// none from others.
//
//guarantee:bounds
func TestLanesOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		other := laneKey{"acct_2", "wh_1"}
		p, _ := enterNow(t, l, other, 4)
		l.leave(p, accepted, time.Millisecond, 0)
		for n := range 10 * lanesAtMost {
			p, v := enterNow(t, l, key(n), 4)
			if p == nil {
				t.Fatalf("endpoint %d: %+v", n, v)
			}
			l.leave(p, unanswered, time.Millisecond, 0)
			if n%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if len(l.all["acct_1"]) != lanesAtMost || l.find(key(10*lanesAtMost-1)) == nil || l.find(other) == nil {
			t.Errorf("%d lanes are kept, want %d, the last one and another's", len(l.all["acct_1"]), lanesAtMost)
		}
		for n := range 1000 {
			p, _ := l.enter(t.Context(), key(1), receiverOf(fmt.Sprint("https://example.com/", n)), 4)
			if p == nil {
				t.Fatalf("URL %d has no lane: what another receiver did counts for it", n)
			}
			for range tripAfter {
				p.breaker.record(time.Now(), false)
			}
			l.leave(p, unanswered, time.Millisecond, 0)
		}
		if n := len(l.all["acct_1"]); n != lanesAtMost {
			t.Errorf("%d lanes are kept when an endpoint has had a thousand URLs", n)
		}
		time.Sleep(laneKept + 2*time.Minute)
		p, _ = enterNow(t, l, other, 4)
		l.leave(p, accepted, time.Millisecond, 0)
		if len(l.all) != 1 || l.suspects.all != 0 || len(l.suspects.of) != 0 {
			t.Errorf("%d accounts have lanes when all were idle, %d suspects", len(l.all), l.suspects.all)
		}
	})
}

// TestALaneThatRestsIsNotForgotten: an endpoint that asked for an hour is not asked sooner.
//
//guarantee:bounds
func TestALaneThatRestsIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		p, _ := enterNow(t, l, key(1), 4)
		l.leave(p, refused, time.Millisecond, time.Hour)
		time.Sleep(30 * time.Minute)
		if _, v := enterNow(t, l, key(2), 4); v.Kind == delivery.Held {
			t.Errorf("another endpoint: %+v", v)
		}
		if _, v := enterNow(t, l, key(1), 4); v.Kind != delivery.Held || v.After != 30*time.Minute {
			t.Errorf("after half of its hour: %+v", v)
		}
	})
}

//guarantee:what-one-tenant-can-do-to-another
func TestSuspectsShareAPartOfThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		p, _ := enterNow(t, l, key(0), 4)
		l.leave(p, accepted, time.Millisecond, 0)
		const share = suspectsAtMost - suspectsAtMost/shareOfPlaces
		var entered []*lane
		fill := func(a schemas.AccountID) (n int) {
			for i := range lanesAtMost - 4 {
				k := key(i + 1)
				k.account = a
				if p, _ := enterNow(t, l, k, 4); p != nil {
					n++
					entered = append(entered, p)
				}
			}
			return n
		}
		if n := fill("acct_1"); n != share {
			t.Errorf("%d suspects of one account have places, want %d", n, share)
		}
		if n := fill("acct_2"); n != suspectsAtMost-share {
			t.Errorf("beside them %d of another account, want %d", n, suspectsAtMost-share)
		}
		if p, v := enterNow(t, l, key(0), 4); p == nil {
			t.Errorf("an endpoint that answers has no place beside them: %+v", v)
		}
		for _, p := range entered {
			l.leave(p, unknown, 0, 0)
		}
		if l.suspects.all != 0 || len(l.suspects.of) != 0 {
			t.Errorf("%d suspects are counted when all have left, %d accounts", l.suspects.all, len(l.suspects.of))
		}
	})
}

func TestWaitersAreLetInInTurnAndSentAwayWhenItFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		first, _ := enterNow(t, l, key(1), 1)
		l.leave(first, accepted, time.Millisecond, 0)
		first, _ = enterNow(t, l, key(1), 1)
		l.waiters.add("acct_2", waitersAtMost-8) // in other lanes: 4 of the rest are for this one
		others := l.waiters.all
		verdicts := make(chan *lane, 10)
		wait := func(ctx context.Context) {
			go func() {
				p, _ := enter(ctx, l, key(1), 1)
				verdicts <- p
			}()
			synctest.Wait()
		}
		tired, leave := context.WithCancel(t.Context())
		for range 3 {
			wait(t.Context())
		}
		wait(tired)
		if wait(t.Context()); len(verdicts) != 1 || <-verdicts != nil {
			t.Fatal("a waiter too many was kept")
		}
		if leave(); <-verdicts != nil || l.waiters.all != others+3 {
			t.Fatalf("one that went away: %d waiters are left", l.waiters.all)
		}
		l.leave(first, accepted, time.Millisecond, 0)
		second := <-verdicts
		if synctest.Wait(); second == nil || len(verdicts) != 0 {
			t.Fatalf("after a place was free: %v, and %d more", second, len(verdicts))
		}
		l.leave(second, unanswered, time.Millisecond, 0)
		for range 2 {
			if p := <-verdicts; p != nil {
				t.Error("let in to an endpoint that fails")
			}
		}
		if l.waiters.all != others || l.suspects.all != 0 {
			t.Errorf("%d waiters, %d suspects are counted", l.waiters.all-others, l.suspects.all)
		}
	})
}

func TestAPauseIsForAllThatGoThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Sender{Endpoints: endpointTo("https://well"), transport: roundTrip(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"120"}}, Body: http.NoBody}
		})}
		if _, v := s.Send(t.Context(), message()); v.Kind != delivery.Failed || v.After != 2*time.Minute {
			t.Fatalf("got %+v", v)
		}
		if _, v := s.Send(t.Context(), message()); v.Kind != delivery.Held || v.After != 2*time.Minute {
			t.Errorf("another delivery: %+v, want it held", v)
		}
		time.Sleep(2 * time.Minute)
		if _, v := s.Send(t.Context(), message()); v.Kind != delivery.Failed {
			t.Errorf("after the pause: %+v, want it tried", v)
		}
	})
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// world answers requests by the name of their host, without a network.
type world struct {
	mu      sync.Mutex
	arrived map[string]time.Time // the first arrival of each delivery
	flights map[string]int
	most    map[string]int // requests at the same time, by host
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.flights[r.URL.Host]++
	w.most[r.URL.Host] = max(w.most[r.URL.Host], w.flights[r.URL.Host])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.flights[r.URL.Host]--
		w.mu.Unlock()
	}()
	if strings.HasPrefix(r.URL.Host, "hole") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(50 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := r.Header.Get(HeaderID); w.arrived[id].IsZero() {
		w.arrived[id] = time.Now()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok"))}, nil
}

func TestBlackHolesDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const holes, toEach, well = 50, 20, 300
		w := &world{arrived: map[string]time.Time{}, flights: map[string]int{}, most: map[string]int{}}
		f := &fixed{all: map[schemas.EndpointID]schemas.Endpoint{}}
		add := func(id schemas.EndpointID, host string) {
			f.all[id] = schemas.Endpoint{ID: id, Account: "acct_1", URL: "https://" + host, Secrets: []schemas.EndpointSecret{{Key: NewSecret()}}}
		}
		made := map[string]time.Time{}
		publish := func(id string, to schemas.EndpointID) {
			made[id] = time.Now()
			d := schemas.Delivery{ID: schemas.DeliveryID(id), Account: "acct_1", Channel: schemas.WebhookChannel, Endpoint: to,
				Body: body, Created: time.Now()}
			if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
				t.Fatal(err)
			}
		}
		add("wh_well", "well")
		for i := range holes {
			add(schemas.EndpointID(fmt.Sprintf("wh_%d", i)), fmt.Sprintf("hole%d", i))
			for j := range toEach {
				publish(fmt.Sprintf("msg_%d_%d", i, j), schemas.EndpointID(fmt.Sprintf("wh_%d", i)))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		sender := &Sender{Endpoints: f, transport: w}
		go func() { done <- (&delivery.Deliverer{Bus: b, Sender: sender}).Run(ctx) }()
		for i := range well {
			publish(fmt.Sprintf("msg_well_%d", i), "wh_well")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		var took []time.Duration
		for id, at := range w.arrived {
			took = append(took, at.Sub(made[id]))
		}
		slices.Sort(took)
		if len(took) != well {
			t.Fatalf("%d of %d deliveries arrived", len(took), well)
		}
		if p99 := took[well*99/100]; p99 > time.Second {
			t.Errorf("beside %d black holes the 99th of 100 took %s (median %s, longest %s)", holes, p99, took[well/2], took[well-1])
		}
		for host, n := range w.most {
			if n > commonLane {
				t.Errorf("%s had %d requests at the same time", host, n)
			}
		}
		t.Logf("median %s, p99 %s, longest %s", took[well/2], took[well*99/100], took[well-1])
	})
}

// A burst to one endpoint is limited by the endpoint, not by how deliveries come back to it.
func TestABurstKeepsItsLaneFull(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const many = 400
		w := &world{arrived: map[string]time.Time{}, flights: map[string]int{}, most: map[string]int{}}
		f := endpointTo("https://well")
		for i := range many {
			d := message()
			d.ID = schemas.DeliveryID(fmt.Sprintf("msg_%d", i))
			if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&delivery.Deliverer{Bus: b, Sender: &Sender{Endpoints: f, transport: w}}).Run(ctx) }()
		count := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.arrived)
		}
		for count() < many && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		// Four at a time of 50 ms each are 5 s at best.
		if took := time.Since(began); count() != many || took > time.Minute {
			t.Errorf("%d of %d arrived in %s", count(), many, took)
		} else {
			t.Logf("%d deliveries in %s", many, took)
		}
	})
}
