package streams_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const hour = time.Hour

// retain runs a Retention until the returned function is called.
func retain(t *testing.T, r *streams.Retention) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the end of Run: %v; want nil", err)
		}
	}
}

// publish puts an event of a call or job on a conversation.
func publish(t *testing.T, b *streams.Bus, conv schemas.ConversationID, subject string, typ schemas.EventType, data any) {
	t.Helper()
	c := callOf(subject)
	c.Conversation = conv
	testwait.OK(t, streams.Events.Publish(t.Context(), b, schemas.NewEvent(c, typ, schemas.NewID("e_"), time.Now(), data)))
}

// kept is what a conversation holds: subject and type of each event.
func kept(t *testing.T, b *streams.Bus, conv schemas.ConversationID) []string {
	t.Helper()
	var all []string
	after := schemas.Cursor{}
	for {
		p := testwait.Must(streams.Page(t.Context(), b, account, conv, after, 0))(t)
		for _, e := range p.Events {
			all = append(all, e.Value.Subject+" "+string(e.Value.Type))
		}
		if after = p.Next; p.UpToDate {
			return all
		}
	}
}

func TestWhatHasEndedGoesByAgeAndWhatRunsStays(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		stop := retain(t, &streams.Retention{Bus: b, Keep: 2 * hour})
		publish(t, b, "c_old", "a", schemas.CallAccepted, schemas.AcceptedData{})
		publish(t, b, "c_old", "a", schemas.CallFinished, schemas.Result{})
		publish(t, b, "c_job", "m", schemas.Message, struct{}{})
		publish(t, b, "c_job", "b", schemas.CallAccepted, schemas.AcceptedData{})
		publish(t, b, "c_job", "job_1", schemas.JobStarted, schemas.JobStartedData{Call: "b"})
		publish(t, b, "c_job", "b", schemas.CallFinished, schemas.Result{})
		publish(t, b, "c_both", "m", schemas.Message, struct{}{})
		last := testwait.Must(streams.Page(t.Context(), b, account, "c_old", schemas.Cursor{}, 0))(t).Events[0].Cursor
		time.Sleep(hour + 50*time.Minute)
		publish(t, b, "c_both", "c", schemas.CallAccepted, schemas.AcceptedData{})
		synctest.Wait()
		if got := kept(t, b, "c_old"); len(got) != 2 {
			t.Errorf("before its time: %q", got)
		}
		time.Sleep(hour)
		synctest.Wait()
		for conv, want := range map[schemas.ConversationID][]string{
			"c_old":  nil,
			"c_job":  {"b call.accepted", "job_1 job.started", "b call.finished"},
			"c_both": {"c call.accepted"},
		} {
			if got := kept(t, b, conv); !slices.Equal(got, want) {
				t.Errorf("%s holds %q; want %q", conv, got, want)
			}
		}
		p := testwait.Must(streams.Page(t.Context(), b, account, "c_old", last, 0))(t)
		if p.Recovered || p.Gap == nil || p.Gap.From != last {
			t.Errorf("a reader behind the cut is told %+v; want a gap", p)
		}
		time.Sleep(5 * hour)
		synctest.Wait()
		if got := kept(t, b, "c_job"); len(got) != 3 {
			t.Errorf("while its job runs, c_job holds %q", got)
		}
		publish(t, b, "c_job", "job_1", schemas.JobFinished, struct{}{})
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, "c_job"); !slices.Equal(got, []string{"job_1 job.finished"}) {
			t.Errorf("after its job, c_job holds %q", got)
		}
		stop()
	}, natstest.Shards(3))
}

// TestTheGapReachesUpToWhatIsKept: also where another conversation holds the beginning of the stream.
//
//guarantee:a-conversation-has-no-holes
func TestTheGapReachesUpToWhatIsKept(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const conv, kept, all = "c_1", 10, 30
		for n := range all {
			publish(t, b, conv, fmt.Sprint("m", n), schemas.Message, struct{}{})
			if n == 5 { // the stream begins with it, in the end
				publish(t, b, "c_other", "m", schemas.Message, struct{}{})
			}
		}
		had := testwait.Must(streams.Page(t.Context(), b, account, conv, schemas.Cursor{}, 0))(t).Events
		stop := retain(t, &streams.Retention{Bus: b, Count: kept})
		time.Sleep(hour)
		synctest.Wait()
		stop()
		for n := range had {
			p := testwait.Must(streams.Page(t.Context(), b, account, conv, had[n].Cursor, 0))(t)
			next := max(n+1, all-kept) // the first that is there
			if want := all - next; len(p.Events) != want {
				t.Errorf("after event %d: %d events, want %d", n, len(p.Events), want)
			}
			switch lost := n+1 < all-kept; {
			case p.Recovered == lost:
				t.Errorf("after event %d: recovered %t", n, p.Recovered)
			case lost && (p.Gap.From != had[n].Cursor || p.Gap.To.Seq != had[next].Cursor.Seq-1):
				t.Errorf("after event %d: the gap %+v, want one up to %s", n, p.Gap, had[next].Cursor)
			}
		}
	})
}

func TestAConversationKeepsSoManyEventsAndWhatRuns(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		stop := retain(t, &streams.Retention{Bus: b, Count: 10})
		for n := range 15 {
			publish(t, b, "c_idle", fmt.Sprint("m", n), schemas.Message, struct{}{})
			publish(t, b, "c_few", fmt.Sprint("m", n/2), schemas.Message, struct{}{})
		}
		publish(t, b, "c_runs", "m", schemas.Message, struct{}{})
		publish(t, b, "c_runs", "a", schemas.CallAccepted, schemas.AcceptedData{})
		for range 30 {
			publish(t, b, "c_runs", "a", schemas.CallOutput, schemas.OutputData{Text: "x"})
		}
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, "c_idle"); len(got) != 10 || got[0] != "m5 message" {
			t.Errorf("c_idle holds %q; want the last 10", got)
		}
		if got := kept(t, b, "c_runs"); len(got) != 31 || got[0] != "a call.accepted" {
			t.Errorf("c_runs holds %d from %q on; want 31 from the call on", len(got), got[0])
		}
		publish(t, b, "c_runs", "a", schemas.CallFinished, schemas.Result{})
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, "c_runs"); len(got) != 10 || got[9] != "a call.finished" {
			t.Errorf("after its end, c_runs holds %q; want the last 10", got)
		}
		stop()
	})
}

// TestAnEndedCallStaysUntilItsWorkerHasAcknowledgedIt: a worker dies between the result and its acknowledgement, so that the call is
// redelivered. The worker that gets it must find the result.
//
//guarantee:side-effects-are-started-at-most-once
func TestAnEndedCallStaysUntilItsWorkerHasAcknowledgedIt(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		done := make(chan struct{})
		queue := consume(t, b, streams.Calls, local, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
			if d.Value.ID == "b" {
				select {
				case <-done:
				case <-ctx.Done():
				}
			}
			return nil
		})
		unserved := callOf("c")
		unserved.Provider = "nobody"
		const conv = "c_1"
		for _, c := range []schemas.Call{callOf("a"), callOf("b"), unserved} {
			c.Conversation = conv + "_" + schemas.ConversationID(c.ID)
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
			publish(t, b, c.Conversation, "m", schemas.Message, struct{}{})
			publish(t, b, c.Conversation, string(c.ID), schemas.CallAccepted, schemas.AcceptedData{})
			publish(t, b, c.Conversation, string(c.ID), schemas.CallStarted, schemas.StartedData{})
			publish(t, b, c.Conversation, string(c.ID), schemas.CallFinished, schemas.Result{})
			for range 20 {
				publish(t, b, c.Conversation, "m", schemas.Message, struct{}{})
			}
		}
		stop := retain(t, &streams.Retention{Bus: b, Count: 5, Keep: 2 * hour})
		time.Sleep(hour)
		synctest.Wait()
		for id, want := range map[schemas.ConversationID]int{"a": 5, "b": 23, "c": 23} {
			if got := kept(t, b, conv+"_"+id); len(got) != want {
				t.Errorf("of call %s: %d events from %q on; want %d", id, len(got), got[0], want)
			}
		}
		time.Sleep(5 * hour) // they are old by now
		synctest.Wait()
		for id, want := range map[schemas.ConversationID]int{"a": 0, "b": 23, "c": 23} {
			if got := kept(t, b, conv+"_"+id); len(got) != want {
				t.Errorf("of call %s, which is old: %d events; want %d", id, len(got), want)
			}
		}
		close(done)
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, conv+"_b"); len(got) != 0 {
			t.Errorf("acknowledged, %d events stay", len(got))
		}
		stop()
		queue()
	})
}

// TestLargeEventsAreNotReadToBeRemoved: what runs is known without the payloads that lie in the object store.
//
//guarantee:side-effects-are-started-at-most-once
func TestLargeEventsAreNotReadToBeRemoved(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		text := strings.Repeat("x", 3<<20)
		for n := range 3 {
			publish(t, b, "c_runs", fmt.Sprint("m", n), schemas.Message, map[string]string{"text": text})
		}
		publish(t, b, "c_runs", "a", schemas.CallAccepted, schemas.AcceptedData{Tool: schemas.Tool(text)})
		publish(t, b, "c_runs", "m", schemas.Message, struct{}{})
		publish(t, b, "c_runs", "job_1", schemas.JobStarted, schemas.JobStartedData{Call: "a", Command: text})
		publish(t, b, "c_runs", "a", schemas.CallFinished, map[string]string{"text": text})
		for range 30 {
			publish(t, b, "c_runs", "m", schemas.Message, struct{}{})
		}
		var read atomic.Int64
		testwait.OK(t, b.Requests("$JS.API.DIRECT.GET.*", func(subject string, _ []byte) {
			if strings.Contains(subject, ".OBJ_") {
				read.Add(1)
			}
		}))
		look := func(want int, first string) {
			t.Helper()
			before := read.Load()
			stop := retain(t, &streams.Retention{Bus: b, Count: 10})
			time.Sleep(hour)
			synctest.Wait()
			stop()
			if n := read.Load() - before; n != 0 {
				t.Errorf("payloads were read %d times", n)
			}
			if got := kept(t, b, "c_runs"); len(got) != want || got[0] != first {
				t.Errorf("it holds %d from %q on; want %d from %q on", len(got), got[0], want, first)
			}
		}
		look(34, "a call.accepted") // the call that launched what runs
		publish(t, b, "c_runs", "job_1", schemas.JobFinished, struct{}{})
		look(10, "m message")
		if read.Load() == 0 {
			t.Error("the test does not see payloads that are read")
		}
	})
}

// TestAConversationThatCannotBeReadNowIsLeft: what cannot be read may be the beginning of what runs. Others are trimmed.
//
//guarantee:side-effects-are-started-at-most-once
func TestAConversationThatCannotBeReadNowIsLeft(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		large := schemas.JobStartedData{Call: "b", Command: strings.Repeat("x", 3<<20)}
		publish(t, b, "c_runs", "m", schemas.Message, struct{}{})
		c := callOf("job_1")
		c.Conversation = "c_runs"
		testwait.OK(t, streams.EventsWithoutOutline().Publish(t.Context(), b, schemas.NewEvent(c, schemas.JobStarted, "e_1", time.Now(), large)))
		for range 30 {
			publish(t, b, "c_runs", "m", schemas.Message, struct{}{})
			publish(t, b, "c_idle", "m", schemas.Message, struct{}{})
		}
		mend := testwait.Must(b.SpoilPayload(t.Context(), "payloads_39d"))(t)
		stop := retain(t, &streams.Retention{Bus: b, Count: 10})
		time.Sleep(hour)
		synctest.Wait()
		stop()
		if got := kept(t, b, "c_idle"); len(got) != 10 {
			t.Errorf("another conversation holds %d; want 10", len(got))
		}
		testwait.OK(t, mend())
		if got := kept(t, b, "c_runs"); len(got) != 32 || got[1] != "job_1 job.started" {
			t.Errorf("it holds %d from %q on; want all 32", len(got), got[0])
		}
		stop = retain(t, &streams.Retention{Bus: b, Count: 10})
		time.Sleep(hour)
		synctest.Wait()
		stop()
		if got := kept(t, b, "c_runs"); len(got) != 31 || got[0] != "job_1 job.started" {
			t.Errorf("it holds %d from %q on; want 31 from the job on", len(got), got[0])
		}
	})
}

// Two of them, one of which is stopped at any time and begun again, do no more than one.
func TestRetentionMayBeStoppedAnywhere(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const conversations = 20
		for n := range conversations {
			conv := schemas.ConversationID(fmt.Sprint("c_", n))
			publish(t, b, conv, "m", schemas.Message, struct{}{})
			if n%2 == 0 {
				publish(t, b, conv, "t", schemas.AgentStarted, struct{}{})
			}
		}
		time.Sleep(3 * hour)
		second := retain(t, &streams.Retention{Bus: b, Keep: 2 * hour, Every: time.Minute})
		for round := range 8 {
			stop := retain(t, &streams.Retention{Bus: b, Keep: 2 * hour, Every: 50 * time.Microsecond})
			time.Sleep(time.Duration(round) * 30 * time.Microsecond)
			stop()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		second()
		for n := range conversations {
			var want []string
			if n%2 == 0 {
				want = []string{"t agent.started"}
			}
			if got := kept(t, b, schemas.ConversationID(fmt.Sprint("c_", n))); !slices.Equal(got, want) {
				t.Errorf("c_%d holds %q; want %q", n, got, want)
			}
		}
	})
}

// Where the host's clock is a day ahead, nothing is a day older for it, also at the start.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAHostWhoseClockIsAheadRemovesNothingBeforeItsTime(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		stop := retain(t, &streams.Retention{Bus: b, Keep: 2 * hour})
		publish(t, b, "c_1", "a", schemas.Message, struct{}{})
		time.Sleep(3 * hour) // by the log's clock the event is not there yet
		synctest.Wait()
		if got := kept(t, b, "c_1"); len(got) != 1 {
			t.Errorf("it went before its time: %q", got)
		}
		time.Sleep(24 * hour)
		synctest.Wait()
		if got := kept(t, b, "c_1"); len(got) != 0 {
			t.Errorf("it stays: %q", got)
		}
		stop()
	}, skewed(24*hour))
}

// TestConversationsOfAnAccountThatIsGoneGo: at the next look, whatever their age; what still runs of it has its time.
func TestConversationsOfAnAccountThatIsGoneGo(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		isGone := false
		stop := retain(t, &streams.Retention{Bus: b, Gone: func(_ context.Context, a schemas.AccountID) bool { return isGone && a == account }})
		publish(t, b, "c_ended", "a", schemas.CallAccepted, schemas.AcceptedData{})
		publish(t, b, "c_ended", "a", schemas.CallFinished, schemas.Result{})
		publish(t, b, "c_runs", "b", schemas.CallAccepted, schemas.AcceptedData{})
		other := callOf("d")
		other.Account = neighbour
		testwait.OK(t, streams.Events.Publish(t.Context(), b, eventOf(other, "end", schemas.CallFinished, schemas.Result{})))
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, "c_ended"); len(got) != 2 {
			t.Errorf("of an account that is there: %q", got)
		}
		isGone = true
		time.Sleep(hour)
		synctest.Wait()
		if got := kept(t, b, "c_ended"); len(got) != 0 {
			t.Errorf("what has ended: %q", got)
		}
		if got := kept(t, b, "c_runs"); len(got) != 1 {
			t.Errorf("what runs: %q", got)
		}
		if p := testwait.Must(streams.Page(t.Context(), b, neighbour, other.Conversation, schemas.Cursor{}, 0))(t); len(p.Events) != 1 {
			t.Errorf("the neighbour's: %d events", len(p.Events))
		}
		stop()
	})
}

// purges notes whose conversations are removed, in their order: "<account>.<conversation>" for each.
func purges(t *testing.T, b *streams.Bus) func() []string {
	t.Helper()
	var mu sync.Mutex
	var all []string
	testwait.OK(t, b.Requests("$JS.API.STREAM.PURGE.*", func(_ string, body []byte) {
		var r struct {
			Filter string `json:"filter"`
		}
		if json.Unmarshal(body, &r) != nil {
			return
		}
		tokens := strings.Split(r.Filter, ".")
		conversation, err := base64.RawURLEncoding.DecodeString(tokens[len(tokens)-1])
		if err != nil || len(tokens) < 2 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, tokens[len(tokens)-2]+"."+string(conversation))
	}))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// publishMany puts so many messages on a conversation.
func publishMany(t *testing.T, b *streams.Bus, a schemas.AccountID, conv schemas.ConversationID, n int) {
	t.Helper()
	var last streams.Future
	for i := range n {
		c := callOf("m")
		c.Account, c.Conversation = a, conv
		e := schemas.NewEvent(c, schemas.Message, fmt.Sprint(a, conv, i), time.Now(), struct{}{})
		last = testwait.Must(streams.Events.PublishAsync(t.Context(), b, e))(t)
	}
	testwait.OK(t, last.Wait(t.Context()))
}

// TestConversationsAreRemovedInTurnBetweenAccounts: one account has hundreds of conversations that are old, more than a list has room
// for or not. Another's few are removed behind as many of the first.
//
//guarantee:what-one-tenant-can-do-to-another
func TestConversationsAreRemovedInTurnBetweenAccounts(t *testing.T) {
	natstest.Hours(t)
	for name, listed := range map[string]int{"all at once": 4096, "some at a time": 16} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				const many, few = 200, 3
				for n := range many {
					publishMany(t, b, account, schemas.ConversationID(fmt.Sprint("c_", n)), 2)
				}
				for n := range few {
					publishMany(t, b, neighbour, schemas.ConversationID(fmt.Sprint("c_", n)), 2)
				}
				time.Sleep(hour)
				removed := purges(t, b)
				testwait.OK(t, b.RemoveOld(t.Context(), 0, time.Now(), listed, nil))
				synctest.Wait()
				got := removed()
				last := -1
				for i, c := range got {
					if strings.HasPrefix(c, string(neighbour)) {
						last = i
					}
				}
				if len(got) != many+few || last >= 2*few || last < 0 {
					t.Errorf("%d conversations were removed, want %d; the neighbour's last was number %d", len(got), many+few, last+1)
				}
			})
		})
	}
}

// TestALargeConversationIsRemovedInSlices: while conversations of thousands of events are read to be removed, others are removed, and two
// accounts' large ones take turns.
//
//guarantee:what-one-tenant-can-do-to-another
func TestALargeConversationIsRemovedInSlices(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const large = 6000
		for n := range 3 {
			publishMany(t, b, account, schemas.ConversationID(fmt.Sprint("c_large_", n)), large)
		}
		publishMany(t, b, account, "c_small", 1)
		publishMany(t, b, neighbour, "c_large", large)
		publishMany(t, b, neighbour, "c_small", 1)
		time.Sleep(3 * hour)
		removed := purges(t, b)
		stop := retain(t, &streams.Retention{Bus: b, Keep: 2 * hour})
		time.Sleep(hour)
		synctest.Wait()
		stop()
		got := removed()
		at := func(a schemas.AccountID, c string) int { return slices.Index(got, string(a)+"."+c) }
		if len(got) != 6 || at(neighbour, "c_small") > 1 || at(account, "c_small") > 1 || at(neighbour, "c_large") > 3 {
			t.Errorf("removed: %q", got)
		}
	})
}
