package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	recordWriters = 32
	perAccount    = 100 // number of sandboxes of an account
)

// Records measures the in-memory copy of the records: resolving requests on one core, reading n records at the start, and how soon another
// process sees a change.
func Records(ctx context.Context, n, rounds int) (Report, error) {
	o, err := openOurs(ctx)
	if err != nil {
		return Report{}, err
	}
	defer o.close(ctx)
	r := Report{Title: fmt.Sprintf("Records, %d of them", n), Machine: machine()}
	store, err := records.Open(ctx, o.bus, nil, benchProviders())
	if err != nil {
		return r, fmt.Errorf("records: %w", err)
	}
	made, err := store.Accounts.Ensure(ctx, records.Bootstrap{Account: benchAccount, Key: benchKey, Provider: benchProvider})
	if err != nil {
		return r, fmt.Errorf("account: %w", err)
	}
	rates, err := resolving(ctx, store, made.ID, rounds)
	if err != nil {
		return r, err
	}
	if err := fill(ctx, o.bus, n); err != nil {
		return r, err
	}
	var opened []time.Duration
	for range rounds {
		began := time.Now()
		if store, err = records.Open(ctx, o.bus, nil, benchProviders()); err != nil {
			return r, fmt.Errorf("records: %w", err)
		}
		opened = append(opened, time.Since(began))
	}
	seen, err := changesSeen(ctx, o.bus, store, made.ID)
	if err != nil {
		return r, err
	}
	r.Rows = append(rates,
		durations("read all of them at the start", time.Millisecond, opened),
		durations("a change is seen by another copy", time.Millisecond, seen))
	r.Notes = []string{"Aims: at least 1,000,000 requests a second on one core, a start within 3 s, a change within 1 s."}
	return r, nil
}

// resolving measures how many requests per second one goroutine resolves: requests that have ids, and requests that get them.
func resolving(ctx context.Context, store *records.Store, a schemas.AccountID, rounds int) ([]Row, error) {
	const each = 200_000
	own := schemas.Request{ID: "bench", Conversation: "bench", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"go test ./..."}`)}
	made := own
	made.ID, made.Conversation = "", ""
	var rows []Row
	for _, c := range []struct {
		name    string
		request schemas.Request
	}{{"resolve, ids given", own}, {"resolve, ids made", made}} {
		var rates []float64
		for range rounds {
			began := time.Now()
			for range each {
				if _, err := store.Resolve(ctx, a, c.request); err != nil {
					return nil, fmt.Errorf("resolve: %w", err)
				}
			}
			rates = append(rates, each/time.Since(began).Seconds())
		}
		rows = append(rows, row(c.name, "requests/s", rates))
	}
	return rows, nil
}

// fill writes n sandboxes directly to the bucket, without the checks of the API.
func fill(ctx context.Context, bus *streams.Bus, n int) error {
	bucket := streams.OpenBucket[map[string]schemas.Sandbox](bus, streams.Records)
	var wg sync.WaitGroup
	errs := make([]error, recordWriters)
	for w := range recordWriters {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += recordWriters {
				s := schemas.Sandbox{
					ID: schemas.SandboxID(fmt.Sprintf("sb_%07d", i)), Account: schemas.AccountID(fmt.Sprintf("acct_%d", i/perAccount)),
					Name: fmt.Sprintf("sandbox %d", i), Provider: benchProvider, Network: schemas.Network{Mode: schemas.DenyAll},
					PermissionMode: schemas.PermissionAsk, Timeout: schemas.Duration(schemas.DefaultTimeout), Created: time.Now().UTC(),
				}
				_, errs[w] = bucket.Put(ctx, "sandbox."+string(s.Account)+"."+string(s.ID), map[string]schemas.Sandbox{"sandbox": s})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// changesSeen measures the time from the start of a change in one copy until another copy has it.
func changesSeen(ctx context.Context, bus *streams.Bus, here *records.Store, a schemas.AccountID) ([]time.Duration, error) {
	const changes, within, look = 100, 10 * time.Second, 50 * time.Microsecond
	ctx, cancel := context.WithCancel(ctx)
	there, err := records.Open(ctx, bus, nil, benchProviders())
	if err != nil {
		cancel()
		return nil, fmt.Errorf("records: %w", err)
	}
	running := make(chan error, 1)
	go func() { running <- there.Run(ctx) }()
	defer func() { cancel(); <-running }() //nolint:errcheck // it was stopped
	d, err := here.Documents.Add(ctx, a, schemas.Sandboxes, []byte(`{"name":"changed"}`))
	if err != nil {
		return nil, fmt.Errorf("add: %w", err)
	}
	var out []time.Duration
	for i := range changes {
		began := time.Now()
		if d, err = here.Documents.Patch(ctx, a, schemas.Sandboxes, d.ID, fmt.Appendf(nil, `{"config":{"timeout":%d}}`, i+1), 0); err != nil {
			return nil, fmt.Errorf("change: %w", err)
		}
		for {
			seen, err := there.Documents.Get(ctx, a, schemas.Sandboxes, d.ID)
			if err == nil && seen.Revision >= d.Revision {
				break
			}
			if time.Since(began) > within {
				return nil, schemas.Errorf(schemas.Timeout, "a change was not seen within %s", within)
			}
			time.Sleep(look)
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}

// benchProviders returns a catalog with the one provider of the benchmarks.
func benchProviders() schemas.Catalog {
	return schemas.Catalog{{
		Name: benchProvider, Networks: []schemas.NetworkMode{schemas.DenyAll}, MaxTimeout: schemas.Duration(schemas.MaxTimeout),
		MaxMemory: schemas.MaxMemoryLimit << 20, MaxOutput: schemas.MaxOutputLimit, Persistent: true, Jobs: true,
	}}
}
