package workers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/leases"
)

// Storer is a provider whose workspaces are files that several workers must share.
type Storer interface {
	// WorkspaceStore identifies where they lie: the same for all who see the same files.
	WorkspaceStore() string
}

// storeOf is the identity of a provider's workspaces, empty where that is no matter.
func storeOf(p providers.Provider) string {
	if s, ok := providers.As[Storer](p); ok {
		return s.WorkspaceStore()
	}
	return ""
}

// store is the identity of the files that this worker works on without S3.
func (s *workerRun) store() string {
	if s.OnlyS3 {
		return ""
	}
	return storeOf(s.Provider)
}

// foreign returns a worker of the same provider whose workspaces are others than mine and who was there before me.
func foreign(mine leases.Record, all []leases.Record) (other leases.Record, found bool) {
	for _, s := range all {
		older := cmp.Or(s.Started.Compare(mine.Started), cmp.Compare(s.Worker, mine.Worker)) < 0
		if s.Provider == mine.Provider && s.Store != "" && mine.Store != "" && s.Store != mine.Store && s.Worker != mine.Worker && older {
			return s, true
		}
	}
	return leases.Record{}, false
}

// checkStore refuses to work beside others of the provider with workspaces of one's own: every second call would see
// other files. One that has just died still has its lease for a moment. Code: conflict.
func (s *workerRun) checkStore(ctx context.Context) error {
	if s.lease.Record().Store == "" {
		return nil
	}
	end := time.Now().Add(2 * leases.TTL)
	for {
		other, found, err := s.findForeign(ctx)
		if err == nil && !found {
			return nil
		}
		// A lease that is being renewed may be missing in a list, so who was seen is asked for by name.
		for held := found; held; {
			if time.Now().After(end) {
				return &schemas.Error{Code: schemas.Conflict, Field: "workspaces", Message: fmt.Sprintf(
					"worker %s of the provider %s has workspaces in another folder than this one: calls would see the files of one or of the other. "+
						"Mount the same folder workspaces in the data folders of all workers, or stop the others", other.Worker, s.Name)}
			}
			if !wait.Sleep(ctx, leases.Renew/2) {
				return nil
			}
			if is, err := s.lease.Held(ctx, other.Worker); err == nil {
				held = is
			}
		}
		if !wait.Sleep(ctx, leases.Renew/2) {
			return nil
		}
	}
}

// findForeign looks through the leases, more than once: one that is just being renewed may be missing in a list.
func (s *workerRun) findForeign(ctx context.Context) (other leases.Record, found bool, err error) {
	const looks = 3
	for range looks {
		all, err := s.lease.All(ctx)
		if err != nil {
			return other, false, fmt.Errorf("look for workers with other workspaces: %w", err)
		}
		if other, found = foreign(s.lease.Record(), all); found {
			return other, true, nil
		}
	}
	return other, false, nil
}
