//go:build linux

package local_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:what-one-tenant-can-do-to-another
func TestWhatLeftOversOwe(t *testing.T) {
	const sample, since = 200 * time.Millisecond, 5 * time.Second
	for _, tc := range []struct{ before, used, want time.Duration }{
		{0, 0, 0},
		{time.Second, 0, 750 * time.Millisecond},   // the free share pays it back
		{0, 10 * time.Millisecond, 0},              // a twentieth of a processor is free
		{0, sample, since - 250*time.Millisecond},  // one processor
		{0, 2 * sample, 10*time.Second - since/20}, // two
		{time.Minute, sample, time.Minute + since - since/20},
	} {
		if got := local.Owed(tc.before, tc.used, sample, since); got != tc.want {
			t.Errorf("owed(%s, %s) = %s, want %s", tc.before, tc.used, got, tc.want)
		}
	}
}

// TestLeftOversEndPool: what a call leaves behind may rest in its box and may not burn the host's processors. The meter is run by
// hand, as if each look stood for a minute.
//
//guarantee:what-one-tenant-can-do-to-another
func TestLeftOversEndPool(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.Pool, o.LeftoverCPU = -1, 20*time.Second })
	quiet, busy := kept(t, p, "quiet", nil), kept(t, p, "busy", nil)
	runIn := func(cmd providers.Command, script string) {
		t.Helper()
		cmd.Script, cmd.Timeout = script, time.Minute
		if res, err := p.Run(t.Context(), cmd); err != nil || res.ExitCode != 0 {
			t.Fatalf("%q: %+v, %v", script, res, err)
		}
	}
	runIn(quiet, "nohup sleep 600 >/dev/null 2>&1 & echo started")
	runIn(busy, "for i in 1 2 3; do (while :; do :; done) >/dev/null 2>&1 & done; echo started")
	for end := time.Now().Add(time.Minute); p.Keeps("busy") && time.Now().Before(end); {
		p.LookForLeftovers(time.Minute)
	}
	if p.Keeps("busy") {
		t.Error("busy loops go on in a box in which no call is")
	}
	if !p.Keeps("quiet") {
		t.Error("a process that waits was ended too")
	}
	busy.Script = "true"
	if _, err := p.Run(t.Context(), busy); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("the next run: %v, want not_found: the box is reserved anew", err)
	}
	// While a run is in the box, what is used may be its own.
	working := kept(t, p, "working", nil)
	ran := make(chan error, 1)
	go func() {
		cmd := working
		cmd.Script, cmd.Timeout = "timeout 2 bash -c 'while :; do :; done'; true", time.Minute
		_, err := p.Run(t.Context(), cmd)
		ran <- err
	}()
	for {
		select {
		case err := <-ran:
			if err != nil {
				t.Errorf("a run that works: %v", err)
			}
			return
		default:
			p.LookForLeftovers(time.Minute)
		}
	}
}

// TestKeptBoxesAreBoundedPool: of an account and in all; idle ones make room, those in use do not.
//
//guarantee:what-one-tenant-can-do-to-another
func TestKeptBoxesAreBoundedPool(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.Pool, o.Boxes, o.AccountBoxes = -1, 3, 2 })
	reserve := func(account schemas.AccountID, key string) (providers.Command, error) {
		cmd := command("")
		cmd.Mounts, cmd.Spec.Mounts, cmd.Spec.Account = nil, nil, account
		ref, err := p.Reserve(t.Context(), key, cmd.Spec)
		cmd.Sandbox = ref
		return cmd, err
	}
	must := func(account schemas.AccountID, key string) providers.Command {
		t.Helper()
		cmd, err := reserve(account, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return cmd
	}
	wantKept := func(want ...string) {
		t.Helper()
		got := fmt.Sprint(p.Keeps("a1"), p.Keeps("a2"), p.Keeps("a3"), p.Keeps("b1"), p.Keeps("c1"))
		all := map[string]bool{}
		for _, w := range want {
			all[w] = true
		}
		if w := fmt.Sprint(all["a1"], all["a2"], all["a3"], all["b1"], all["c1"]); got != w {
			t.Errorf("kept a1 a2 a3 b1 c1: %s, want %s", got, w)
		}
	}
	must("acct_a", "a1")
	must("acct_a", "a2")
	must("acct_b", "b1")
	a3 := must("acct_a", "a3") // the account's own oldest goes
	wantKept("a2", "a3", "b1")
	must("acct_c", "c1") // of all, one of the account that has the most
	wantKept("a3", "b1", "c1")

	inside, leave := make(chan struct{}), make(chan struct{})
	ran := make(chan error, 2)
	hold := func(cmd providers.Command) {
		cmd.Script, cmd.Timeout = "echo in; sleep 600", time.Minute
		cmd.Output = func(providers.Chunk) { inside <- struct{}{}; <-leave }
		_, err := p.Run(t.Context(), cmd)
		ran <- err
	}
	go hold(a3)
	<-inside
	a1 := must("acct_a", "a1") // the account has one idle place by now, and takes the oldest idle box
	go hold(a1)
	<-inside
	if _, err := reserve("acct_a", "a2"); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("beyond the account's boxes that are all in use: %v", err)
	}
	if !p.Keeps("a1") || !p.Keeps("a3") {
		t.Error("a box in use was ended")
	}
	close(leave)
	for _, cmd := range []providers.Command{a1, a3} {
		if err := p.Release(t.Context(), cmd.Sandbox); err != nil {
			t.Error(err)
		}
	}
	<-ran
	<-ran
}
