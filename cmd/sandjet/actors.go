package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// actor is one long-lived part of a process. run blocks until its context ends. An actor with last set is stopped only when all others
// have ended.
type actor struct {
	name string
	run  func(context.Context) error
	last bool
}

// linger is how long the last actors keep running after the others have ended, so that final results of those still reach waiting
// requests.
const linger = 250 * time.Millisecond

// runAll runs actors until ctx ends or the first of them does, stops the others and waits for all. It returns the error of the first that
// ended by itself, nil when all ended because of ctx.
func runAll(ctx context.Context, actors []actor) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	late, stopLate := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLate()
	var (
		others, lasts sync.WaitGroup
		first         sync.Once
		cause         error
	)
	start := func(wg *sync.WaitGroup, ctx context.Context, a actor) {
		wg.Go(func() {
			if err := ended(ctx, a, a.run(ctx)); err != nil {
				first.Do(func() { cause = err })
			}
			stop()
		})
	}
	for _, a := range actors {
		if a.last {
			start(&lasts, late, a)
		} else {
			start(&others, ctx, a)
		}
	}
	<-ctx.Done()
	others.Wait()
	time.AfterFunc(linger, stopLate)
	lasts.Wait()
	return cause
}

// ended returns the error with which an actor ended: nil if ctx is done and the actor returned nil or context.Canceled. Returning nil
// before ctx is done is an error.
func ended(ctx context.Context, a actor, err error) error {
	told := ctx.Err() != nil
	switch {
	case told && (err == nil || errors.Is(err, context.Canceled)):
		return nil
	case err == nil:
		return fmt.Errorf("%s ended by itself", a.name)
	}
	return fmt.Errorf("%s: %w", a.name, err)
}
