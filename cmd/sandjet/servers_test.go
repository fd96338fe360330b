package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
	"github.com/sandjet/sandjet/internal/redistest"
)

// receiver starts an HTTP server that receives webhooks and writes their IDs and the types of their events to a file.
func receiver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: receiver FILE VAR")
	}
	file, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Type string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Webhook-Signature") == "" {
			http.Error(w, "this is no webhook", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(file, r.Header.Get("Webhook-Id"), body.Type)
	}))
	ts.Defer(func() {
		srv.Close()
		_ = file.Close()
	})
	ts.Setenv(args[1], srv.URL)
}

// telegramDouble starts a simulated Telegram server and writes the messages that it receives to a file.
func telegramDouble(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: telegram FILE VAR TOKEN")
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, nil, 0o600))
	double := telegramtest.New(telegramtest.Options{Token: args[2]})
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		double.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		var text strings.Builder
		for _, m := range double.Messages() {
			fmt.Fprintln(&text, m.Place, m.Text)
		}
		_ = os.WriteFile(path, []byte(text.String()), 0o600) // the script misses what is not there
	}))
	ts.Defer(func() {
		double.Close()
		srv.Close()
	})
	ts.Setenv(args[1], srv.URL)
}

// redisServers has the Redis servers of the scripts, one per script.
type redisServers struct {
	t  *testing.T
	mu sync.Mutex
	by map[string]*redistest.Server // by the script's folder
}

func (r *redisServers) do(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: redis start|kill|restart")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.by[ts.Getenv("WORK")]
	switch {
	case args[0] == "start" && s == nil:
		s = redistest.Start(r.t)
		if r.by == nil {
			r.by = map[string]*redistest.Server{}
		}
		r.by[ts.Getenv("WORK")] = s
		ts.Setenv("REDIS", s.URL())
	case args[0] == "kill" && s != nil:
		s.Kill()
	case args[0] == "restart" && s != nil:
		s.Restart()
	default:
		ts.Fatalf("redis %s: start comes first, and once", args[0])
	}
}
