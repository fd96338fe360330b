package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/internal/redistest"
)

// receiver starts an HTTP server that takes webhooks and writes down which.
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

// redisServers are those of the scripts, one each.
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
