package clienttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// keys sign attach tokens; alice's key is good.
type keys struct{ *seal.Ring }

func (keys) KeyHashes(schemas.AccountID) []string {
	sum := sha256.Sum256([]byte(aliceKey))
	return []string{hex.EncodeToString(sum[:])}
}

// site is the server of a page: it has the account's key, and gives out attach tokens for one conversation that end after twenty seconds.
// A client is notified when half of that is over.
func site(t *testing.T, gatewayURL, conversation string, given *atomic.Int64) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := strings.NewReader(fmt.Sprintf(`{"conversations":[%q],"ttl":"20s"}`, conversation))
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, gatewayURL+"/v1/attach-tokens", body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+aliceKey)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		var made gateway.AttachToken
		if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || resp.StatusCode != http.StatusCreated {
			t.Errorf("%s, %v; want a token", resp.Status, err)
		}
		given.Add(1)
		_, _ = io.WriteString(w, made.Token)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestNodeRenewsItsTokenInBand: a late client sees finished calls whole and the rest live, on one connection that
// outlives several attach tokens.
func TestNodeRenewsItsTokenInBand(t *testing.T) {
	t.Parallel()
	long(t)
	node, dist := program(t, "node", "nodejs"), library(t)
	ring, err := seal.NewRing(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	bus := natstest.Start(t, natstest.Durability("os"), natstest.Shards(1)).Bus
	gw := gateway.New(gateway.Options{Bus: bus, Records: book{}, Keys: keys{ring}})
	srv := httptest.NewServer(gw)
	t.Cleanup(func() {
		gw.Drain()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	const conv, pieces, renewals = "support-7", 10, 2
	publish := func(call schemas.CallID, typ schemas.EventType, id string, data any) {
		ev := schemas.NewEvent(schemas.Call{ID: call, Account: alice, Conversation: conv}, typ, id, time.Now(), data)
		if err := streams.Events.Publish(t.Context(), bus, ev); err != nil {
			t.Error(err)
		}
	}
	piece := func(call schemas.CallID, n int) {
		publish(call, schemas.CallOutput, fmt.Sprintf("%s.%d", call, n), schemas.OutputData{
			Call: call, Stream: "stdout", Offset: int64(n), Text: "x", Bytes: 1, Attempt: 1,
		})
	}
	for n := range pieces {
		piece("over", n)
	}
	publish("over", schemas.CallFinished, "over.end", schemas.Result{Call: "over"})
	piece("runs", 0)
	want := []string{"over.end", "runs.0"}

	var given atomic.Int64
	job, err := json.Marshal(map[string]string{
		"gateway": srv.URL, "tokens": site(t, srv.URL, conv, &given).URL,
		"client": "file://" + filepath.Join(dist, "index.js"), "conversation": conv,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append(flags(ctx, node), filepath.Join("testdata", "tokens.mjs"), string(job))...)
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pace := time.NewTicker(200 * time.Millisecond)
	defer pace.Stop()
	for n := 1; given.Load() <= renewals && ctx.Err() == nil; n++ {
		<-pace.C
		piece("runs", n)
		want = append(want, fmt.Sprintf("runs.%d", n))
	}
	publish("runs", schemas.CallFinished, "last", schemas.Result{Call: "runs"})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, failed.String())
	}
	var r struct {
		Events                 []string
		Snapshots, Connections int
		Problems               []string
	}
	if err := json.Unmarshal(said.Bytes(), &r); err != nil {
		t.Fatalf("%v: %.200s", err, said.String())
	}
	if want = append(want, "last"); !slices.Equal(r.Events, want) || r.Snapshots > 0 {
		t.Errorf("it saw %v and %d snapshots, want %v", r.Events, r.Snapshots, want)
	}
	if r.Connections != 1 || len(r.Problems) > 0 {
		t.Errorf("%d connections, want 1 that outlives %d tokens; problems: %v", r.Connections, given.Load(), r.Problems)
	}
}
