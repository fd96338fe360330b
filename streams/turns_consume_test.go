package streams_test

import (
	"context"
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
	"github.com/sandjet/sandjet/streams/fair"
)

// TestTensOfThousandsOfOneAccountLeaveOthersTheirTurn: in virtual time, one account has 30,000 calls waiting, more than a consumer used
// to nak, when the call of another account arrives. That call is started after as many calls as were in flight, and every call ends once.
//
//guarantee:one-result-for-every-accepted-call
//guarantee:what-one-tenant-can-do-to-another
func TestTensOfThousandsOfOneAccountLeaveOthersTheirTurn(t *testing.T) {
	longtest.Only(t, "30,000 calls of one account; hundreds are in a test of the call worker")
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const flood, slots, each = 30_000, 16, 100 * time.Millisecond
		calls := make([]schemas.Call, flood)
		publish := func(account schemas.AccountID, id string) {
			c := callOf(id)
			c.Account, c.Deadline = account, time.Now().Add(20*time.Hour)
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
		}
		var writers sync.WaitGroup
		for part := range 16 {
			writers.Go(func() {
				for i := part; i < len(calls); i += 16 {
					publish(account, fmt.Sprint("flood_", i))
				}
			})
		}
		writers.Wait()
		var mu sync.Mutex
		begun, done, before := 0, map[string]int{}, map[string]int{}
		stop := consume(t, b, streams.Calls, streams.ConsumeOptions{Name: "w-p", Filter: callOf("x").Provider, Slots: slots, Turns: true,
			MaxAttempts: 1 << 20, MaxPending: 100_000},
			func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
				mu.Lock()
				begun++
				if d.Account == otherAccount {
					before[string(d.Value.ID)] = begun
				}
				mu.Unlock()
				time.Sleep(each)
				mu.Lock()
				done[string(d.Account)+"."+string(d.Value.ID)]++
				mu.Unlock()
				return nil
			})
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return begun
		}
		for n := range 20 { // while the flood continues
			at := count()
			id := fmt.Sprint("other_", n)
			publish(otherAccount, id)
			time.Sleep(5 * time.Second)
			mu.Lock()
			if behind := before[id] - at; before[id] == 0 || behind > 10*slots {
				t.Errorf("%s was begun behind %d of the other account's calls that had not begun; want no more than %d", id, behind, 10*slots)
			}
			mu.Unlock()
		}
		begin := time.Now()
		for count() < flood+20 && time.Since(begin) < 10*time.Hour {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		stop()
		if len(done) != flood+20 {
			t.Errorf("%d calls ended; want %d", len(done), flood+20)
		}
		for id, n := range done {
			if n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
		if took, ideal := time.Since(begin), flood*each/slots; took > 3*ideal {
			t.Errorf("all of it took %s; want no more than three times %s", took, ideal)
		} else {
			t.Logf("all of it took %s; without a pause %s", took, ideal)
		}
	})
}

// TestALoneCallIsNotSearchedForTwice: in virtual time, another account sends its calls one after the other beside a flood. Once the
// first was found behind the flood, no other waits for longer than a slot takes.
//
//guarantee:what-one-tenant-can-do-to-another
func TestALoneCallIsNotSearchedForTwice(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const flood, slots, each, lone = 2000, 8, 100 * time.Millisecond, 80
		publish := func(account schemas.AccountID, id string) {
			c := callOf(id)
			c.Account, c.Deadline = account, time.Now().Add(20*time.Hour)
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
		}
		for i := range flood {
			publish(account, fmt.Sprint("flood_", i))
		}
		var mu sync.Mutex
		begun, at, runs := 0, map[schemas.CallID]int{}, map[schemas.CallID]int{}
		ended := make(chan struct{}, 1)
		stop := consume(t, b, streams.Calls, streams.ConsumeOptions{Name: "w-p", Filter: callOf("x").Provider, Slots: slots, Turns: true,
			MaxAttempts: 1 << 20, MaxPending: streams.ManyPending},
			func(_ context.Context, d streams.Delivery[schemas.Call]) error {
				mu.Lock()
				if runs[d.Value.ID]++; d.Account == otherAccount {
					at[d.Value.ID] = begun
				} else {
					begun++
				}
				mu.Unlock()
				time.Sleep(each)
				if d.Account == otherAccount {
					ended <- struct{}{}
				}
				return nil
			})
		time.Sleep(time.Second)
		behind := func(n int) int {
			mu.Lock()
			before := begun
			mu.Unlock()
			id := fmt.Sprint("other_", n)
			publish(otherAccount, id)
			<-ended
			mu.Lock()
			defer mu.Unlock()
			return at[schemas.CallID(id)] - before
		}
		t.Logf("the first call was begun behind %d of the flood that had not begun", behind(0))
		for n := range lone {
			if m := behind(n + 1); m > slots {
				t.Errorf("call %d was begun behind %d of the flood that had not begun; want no more than %d", n+1, m, slots)
			}
		}
		stop()
		for id, n := range runs {
			if n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
	})
}

// TestLargeCallsAreHandledAFewAtATime: 16 slots do not hold 8 calls of 6 MiB, and a neighbour's small call does not wait for them.
//
//guarantee:bounds
func TestLargeCallsAreHandledAFewAtATime(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		const large, slots, calls = 6 << 20, 16, 8
		text := strings.Repeat("x", large)
		for n := range calls {
			c := callOf(fmt.Sprint("large_", n))
			c.Input = []byte(`{"command":"` + text + `"}`)
			testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		}
		var mu sync.Mutex
		now, most, ended := 0, 0, 0
		var neighbours time.Time
		begun := time.Now()
		var consumer sync.WaitGroup
		consumer.Go(func() {
			_ = streams.Calls.Consume(ctx, b, streams.ConsumeOptions{Name: "w", Filter: "local", Slots: slots, Turns: true, MaxAttempts: 1000},
				func(_ context.Context, d streams.Delivery[schemas.Call]) error {
					mu.Lock()
					if d.Account == neighbour {
						neighbours = time.Now()
						mu.Unlock()
						return nil
					}
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Minute)
					mu.Lock()
					defer mu.Unlock()
					now--
					ended++
					return nil
				})
		})
		time.Sleep(10 * time.Second)
		c := callOf("small")
		c.Account = neighbour
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		time.Sleep(time.Hour)
		stop()
		consumer.Wait()
		if most*large > fair.MaxLargeInProgress || most < 2 || ended != calls {
			t.Errorf("%d of %d ended, %d at a time", ended, calls, most)
		}
		if d := neighbours.Sub(begun); neighbours.IsZero() || d > 20*time.Second {
			t.Errorf("the neighbour's call came after %s", d)
		}
	})
}
