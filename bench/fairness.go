package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers"
)

const (
	aloneAccount = schemas.AccountID("acct_alone")
	// loneCalls is the number of calls that are timed one after the other, undisturbed and beside the flood, in each round.
	loneCalls = 100
	// fairRun is the duration of a call's run: short enough that mainly the queue is measured.
	fairRun = 50 * time.Millisecond
)

// timed is a provider whose runs take some time but no processor.
type timed struct {
	providertest.Noop

	takes time.Duration
}

func (p timed) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	if !wait.Sleep(ctx, p.takes) {
		return providers.Result{Runtime: benchProvider, Started: true}, ctx.Err()
	}
	return p.Noop.Run(ctx, cmd)
}

// Fairness measures how long calls of one account take beside the flood of another account: flood calls that are all on the log before the
// first lone call is sent, on that many slots. In each round they are timed undisturbed and beside the flood, one call at a time, from
// acceptance to the result.
func Fairness(ctx context.Context, flood, rounds, slots int) (Report, error) {
	var alone, beside []time.Duration
	var middle, tail [2][]float64
	left := flood
	for range rounds {
		a, b, waiting, err := fairRound(ctx, flood, slots)
		if err != nil {
			return Report{}, err
		}
		left = min(left, waiting)
		alone, beside = append(alone, a...), append(beside, b...)
		for i, of := range [][]time.Duration{a, b} {
			slices.Sort(of)
			middle[i] = append(middle[i], of[len(of)/2].Seconds())
			tail[i] = append(tail[i], of[len(of)-1-len(of)/100].Seconds())
		}
	}
	return Report{
		Title:   fmt.Sprintf("A lone call beside a flood of %d, runs of %s, %d slots", flood, fairRun, slots),
		Machine: machine(),
		Rows: []Row{
			durations("undisturbed", time.Millisecond, alone), durations("beside the flood", time.Millisecond, beside),
		},
		Ratios: []Ratio{
			ratio("p50 beside the flood / undisturbed", "≤ 3", middle[1], middle[0]),
			ratio("p99 beside the flood / undisturbed", "≤ 3", tail[1], tail[0]),
		},
		Notes: []string{
			fmt.Sprintf("One ratio for each round of %d calls. The flood's calls are another account's. When the last lone call of a "+
				"round had ended, at least %d of them still waited.", loneCalls, left),
			"In the order of the log the first lone call would begin when the whole flood has.",
		},
	}, nil
}

// fairRound runs one round. waiting is the number of calls of the flood that had not ended by its end.
func fairRound(ctx context.Context, flood, slots int) (alone, beside []time.Duration, waiting int, err error) {
	o, err := openOurs(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	defer o.close(ctx)
	ended := make(chan struct{}, flood+2*loneCalls)
	working, stop := context.WithCancel(ctx)
	o.stop = stop
	w := workers.Worker{
		Bus: o.bus, Provider: timed{takes: fairRun}, Name: benchProvider, Specs: benchSpecs{}, Slots: slots,
		Metrics: workers.Metrics{Finished: finished(func() { ended <- struct{}{} })},
	}
	go func() { o.ended <- w.Run(working) }()
	if _, err = o.lone(ctx, 10); err == nil { // connects and warms up
		alone, err = o.lone(ctx, loneCalls)
	}
	if err == nil {
		err = produce(flood, producers, func() error { return o.accept(ctx) })
	}
	if err == nil {
		beside, err = o.lone(ctx, loneCalls)
	}
	return alone, beside, flood + 2*loneCalls + 10 - len(ended), err
}

// lone sends calls of one account, each after the result of the one before, and returns their durations.
func (o *ours) lone(ctx context.Context, n int) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		c := o.call()
		c.Account, c.Conversation = aloneAccount, schemas.ConversationID("alone_"+string(c.ID))
		begun := time.Now()
		absent := o.bus.Absent()
		if err := streams.Calls.Publish(ctx, o.bus, c); err != nil {
			return nil, err
		}
		if _, err := streams.StoreOnce(ctx, o.bus, schemas.AcceptedEvent(c), absent); err != nil {
			return nil, err
		}
		if _, err := o.bus.AwaitCall(ctx, c); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}
