package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	// leastPlaceTTL is how long a job's places outlast the last renewal at least, see Options.ProbeEvery.
	leastPlaceTTL = time.Minute
	// placesEvery is how often places are renewed: as often as those of calls.
	placesEvery = 10 * time.Second / 3
)

// placeTTL returns how long a job's slot lives: three failed renewals are tolerated.
func placeTTL(probeEvery time.Duration) time.Duration { return max(leastPlaceTTL, 4*probeEvery) }

func leasesOf(j schemas.Job) []limits.Lease {
	leases := make([]limits.Lease, len(j.Places))
	for i, p := range j.Places {
		leases[i] = limits.Lease{Key: p.Key, Holder: j.Key(), Token: p.Token}
	}
	return leases
}

func (m *Manager) release(ctx context.Context, j schemas.Job) {
	if m.options.Limiter == nil || len(j.Places) == 0 {
		return
	}
	if err := m.options.Limiter.Release(ctx, leasesOf(j)...); err != nil {
		m.options.Log.Warn("slots of a job not released, they expire", "job", j.ID, "error", err, "after", placeTTL(m.options.ProbeEvery))
	}
}

// holdPlaces renews the slots of this worker's jobs until ctx ends, as often as those of calls, so that a limiter that has lost its store
// knows of them again within seconds.
func (m *Manager) holdPlaces(ctx context.Context) {
	for wait.Sleep(ctx, placesEvery) {
		m.mu.Lock()
		var mine []schemas.Job
		for _, j := range m.mine {
			if len(j.Places) > 0 {
				mine = append(mine, j)
			}
		}
		m.mu.Unlock()
		m.renew(ctx, mine)
	}
}

// renew renews the slots of jobs. A slot that the limiter has lost is taken again regardless of the cap, since the job is running and must
// be counted. That is how a limiter that lost its store recovers.
func (m *Manager) renew(ctx context.Context, jobs []schemas.Job) {
	if m.options.Limiter == nil {
		return
	}
	var leases []limits.Lease
	byHolder := make(map[string]schemas.Job, len(jobs))
	for _, j := range jobs {
		leases = append(leases, leasesOf(j)...)
		byHolder[j.Key()] = j
	}
	if len(leases) == 0 {
		return
	}
	lost, err := m.options.Limiter.Renew(ctx, placeTTL(m.options.ProbeEvery), leases...)
	if err != nil {
		m.options.LimiterAway(ctx, err)
		return
	}
	again := make(map[string][]schemas.JobPlace, len(lost))
	for _, l := range lost {
		taken, err := m.options.Limiter.Acquire(ctx, l.Key, l.Holder, limits.Regardless, placeTTL(m.options.ProbeEvery))
		if err != nil {
			m.options.LimiterAway(ctx, err)
			continue
		}
		again[l.Holder] = append(again[l.Holder], schemas.JobPlace{Key: taken.Key, Token: taken.Token})
	}
	for holder, places := range again {
		m.options.Log.Warn("slots of a job were lost, taking them again", "job", byHolder[holder].ID)
		_, err := m.change(ctx, byHolder[holder], func(have *schemas.Job) bool {
			for _, p := range places {
				if i := slices.IndexFunc(have.Places, func(h schemas.JobPlace) bool { return h.Key == p.Key }); i >= 0 {
					have.Places[i] = p
				}
			}
			return !have.State.Final()
		})
		if err != nil && ctx.Err() == nil {
			m.options.Log.Warn("slots of a job not recorded", "job", byHolder[holder].ID, "error", err)
		}
	}
}
