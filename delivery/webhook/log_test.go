package webhook_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/webhook"
	"github.com/sandjet/sandjet/schemas"
)

// unread are endpoints whose records cannot be read now.
type unread struct{ webhook.Endpoints }

func (unread) Get(context.Context, schemas.AccountID, schemas.EndpointID) (schemas.Endpoint, error) {
	return schemas.Endpoint{}, schemas.Errorf(schemas.Unavailable, "not now")
}

// TestUnreadEndpointsAreLoggedOnceAMinute: thousands of deliveries of an endpoint whose record cannot be read have one line, another has its own,
// and those that were left out are counted.
//
//guarantee:bounds
func TestUnreadEndpointsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &webhook.Sender{Endpoints: unread{}, Log: slog.New(slog.NewTextHandler(&text, nil))}
		defer s.Close()
		send := func(a schemas.AccountID) {
			t.Helper()
			d := schemas.Delivery{ID: "msg_1", Account: a, Endpoint: "wh_1"}
			if _, v := s.Send(t.Context(), d); v.Kind != delivery.Busy {
				t.Fatalf("verdict %+v", v)
			}
		}
		for range 1000 {
			send("acct_1")
			send("acct_2")
		}
		if n := strings.Count(text.String(), "\n"); n != 2 || strings.Contains(text.String(), "left_out") {
			t.Fatalf("%d lines, want 2:\n%.1000s", n, text.String())
		}
		time.Sleep(time.Minute)
		text.Reset()
		send("acct_1")
		if !strings.Contains(text.String(), "left_out=999") {
			t.Errorf("after a minute: %s", text.String())
		}
	})
}
