package jobs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// away is a provider whose sandboxes cannot be reached.
type away struct{ providers.JobController }

func (away) JobStatus(context.Context, schemas.JobRef) (providers.JobStatus, error) {
	return providers.JobStatus{}, errors.New("no route to host")
}

// TestAJobThatCannotBeReachedIsLoggedOnceInAWhile and not in each round.
func TestAJobThatCannotBeReachedIsLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		m := &Manager{
			options: Options{Log: slog.New(slog.NewTextHandler(&lines, nil))}, controller: away{},
			logs: sometimes.Keyed{Every: repeatedAfter},
		}
		const rounds = 25 // a minute apart
		for range rounds {
			for _, id := range []schemas.JobID{"one", "two"} {
				if l, _ := m.refresh(t.Context(), schemas.Job{Account: "acme", ID: id}); l != probeUnreachable {
					t.Fatalf("it looks %v", l)
				}
			}
			time.Sleep(time.Minute)
		}
		if n := strings.Count(lines.String(), "job=one"); n != 3 {
			t.Errorf("%d lines about one job in %d minutes, want 3:\n%s", n, rounds, &lines)
		}
	})
}
