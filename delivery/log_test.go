package delivery

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
)

// TestTriesThatFailAreLoggedOnceAMinute: a receiver that fails for thousands of deliveries has one log line per minute, another receiver
// has its own, and the lines left out are counted.
//
//guarantee:bounds
func TestTriesThatFailAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		d := &Deliverer{Log: slog.New(slog.NewTextHandler(&text, nil)), Metrics: Metrics{}.orQuiet(), logs: new(sometimes.Counted)}
		failed := func(endpoint schemas.EndpointID, kind Kind) {
			d.report(schemas.Delivery{ID: "msg_1", Account: "acct_1", Endpoint: endpoint}, schemas.DeliveryTry{Status: 500}, Verdict{Kind: kind}, time.Now())
		}
		for range 1000 {
			failed("wh_1", Failed)
			failed("wh_2", Failed)
			failed("wh_2", Dropped)
			failed("wh_2", Delivered)
		}
		if n := strings.Count(text.String(), "\n"); n != 3 || strings.Contains(text.String(), "left_out") {
			t.Fatalf("%d lines, want 3:\n%.1000s", n, text.String())
		}
		time.Sleep(time.Minute)
		text.Reset()
		failed("wh_1", Failed)
		if !strings.Contains(text.String(), "left_out=999") {
			t.Errorf("after a minute: %s", text.String())
		}
		d.Log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		text.Reset()
		failed("wh_1", Failed)
		if !strings.Contains(text.String(), "delivery attempt failed") {
			t.Errorf("for debugging: %s", text.String())
		}
	})
}
