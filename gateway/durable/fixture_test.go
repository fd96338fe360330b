package durable_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	within = 90 * time.Second

	alice schemas.AccountID = "acct_alice"
	bob   schemas.AccountID = "acct_bob"
)

const keyPrefix = "sk_"

// book is the records of a test: each key is an account.
type book struct{ gateway.Records }

func (book) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	if a, ok := strings.CutPrefix(key, keyPrefix); ok {
		return schemas.AccountID(a), nil
	}
	return "", schemas.Errorf(schemas.Denied, "no")
}

// serveAs serves a gateway of its own, to whom every request is made with the key of an account, and
// returns the URL of streams. Wait is how long its long polls last.
func serveAs(t *testing.T, bus *streams.Bus, a schemas.AccountID, wait time.Duration) string {
	t.Helper()
	gw := gateway.New(gateway.Options{
		Bus: bus, Records: book{}, Version: "1.0.0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Origins: []string{"https://example.com"}, DurableStreams: true, DurableWait: wait,
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+keyPrefix+string(a))
		gw.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		gw.Drain()
		srv.Close()
	})
	return srv.URL + "/v1/streams/"
}

// answer is what a request brought.
type answer struct {
	status int
	header http.Header
	body   string
}

// do asks; headers are names and values in turn.
func do(t *testing.T, method, url, body string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}
