package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

func TestRowSumsUp(t *testing.T) {
	r := durations("x", time.Millisecond, []time.Duration{4 * time.Millisecond, time.Millisecond, 3 * time.Millisecond,
		2 * time.Millisecond, 100 * time.Millisecond})
	if r.N != 5 || r.Min != 1 || r.Median != 3 || r.Max != 100 || r.Unit != "ms" {
		t.Errorf("got %+v", r)
	}
	if r.P95 < 4 || r.P95 > 100 {
		t.Errorf("p95 is %v, want it between the last two", r.P95)
	}
	if empty := row("none", "ms", nil); empty.N != 0 || empty.Median != 0 {
		t.Errorf("no samples: got %+v", empty)
	}
}

func TestRatioIsPairByPair(t *testing.T) {
	r := ratio("a/b", "", []float64{2, 30, 8}, []float64{1, 10, 2})
	if r.Min != 2 || r.Median != 3 || r.Max != 4 {
		t.Errorf("got %+v; want 2, 3, 4", r)
	}
	if r := ratio("a/0", "", []float64{1}, []float64{0}); r.Median != 0 {
		t.Errorf("a zero must not divide: %+v", r)
	}
}

// TestEveryCallIsMeasured runs each benchmark once at a small size: all its calls must reach the log and come back, and the report must
// have all rows.
func TestEveryCallIsMeasured(t *testing.T) {
	const calls = 300
	size := Size{Calls: calls, Rounds: 1}
	for name, run := range map[string]func() (Report, error){
		"throughput": func() (Report, error) { return Throughput(t.Context(), size, 8) },
		"latency":    func() (Report, error) { return Latency(t.Context(), 5) },
		"footprint":  func() (Report, error) { return Footprint(t.Context(), calls, 20) },
		"backlog":    func() (Report, error) { return Backlog(t.Context(), calls, 8) },
		"chats":      func() (Report, error) { return Chats(t.Context(), size) },
		"settle":     func() (Report, error) { return Settle(t.Context(), size) },
		"files":      func() (Report, error) { return Files(t.Context(), 1<<20, 1) },
		"mcp":        func() (Report, error) { return MCP(t.Context(), 5) },
		"job end":    func() (Report, error) { return JobEnd(t.Context(), 5) },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := run()
			if err != nil {
				t.Fatal(err)
			}
			printed(t, r)
		})
	}
}

func TestLocalIsMeasured(t *testing.T) {
	r, err := Local(t.Context(), 2, local.Options{})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	printed(t, r)
}

func TestNetworkIsMeasured(t *testing.T) {
	r, err := Network(t.Context(), 2, local.Options{})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	printed(t, r)
}

func printed(t *testing.T, r Report) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.N == 0 || row.Median == 0 {
			t.Errorf("%s has no figure: %+v", row.Name, row)
		}
		if !strings.Contains(b.String(), row.Name) {
			t.Errorf("%s is not printed", row.Name)
		}
	}
}
