package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// askmode DIR MODE sets the permission mode of every sandbox on a running Sandjet's log.
func askmode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: askmode DIR MODE")
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	r, err := readJSON[role](dataDir(ts.MkAbs(args[0])).roleFile())
	ts.Check(err)
	bus, err := streams.Open(ctx, streams.Options{URL: r.URL, User: r.User, Password: r.Password})
	ts.Check(err)
	defer bus.Close(ctx)
	records := streams.OpenBucket[map[string]json.RawMessage](bus, streams.Records)
	keys, err := records.Keys(ctx)
	ts.Check(err)
	for _, key := range keys {
		p, err := records.Get(ctx, key)
		ts.Check(err)
		if p.Value["sandbox"] == nil {
			continue
		}
		box := map[string]any{}
		ts.Check(json.Unmarshal(p.Value["sandbox"], &box))
		box["permission_mode"] = args[1]
		p.Value["sandbox"], err = json.Marshal(box)
		ts.Check(err)
		_, err = records.Update(ctx, key, p.Value, p.Revision)
		ts.Check(err)
	}
}

func TestDescribeApprovalShowsAllAndNothingThatPlaysTricks(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	a := schemas.Approval{
		ID: "appr_1", State: schemas.ApprovalDenied, Reason: "no\x1b[2J", Requested: at, Decided: at, DecidedBy: "api", InputSize: 20,
		Call: schemas.Call{ID: "x", Conversation: "c", Tool: schemas.ToolBash, Sandbox: "sb_1", Workspace: "ws_1", Provider: "local",
			Input: json.RawMessage(`{"command":"a\u001b\u202e \u003e x","timeout":"5s"}`)},
	}
	text := describeApproval(a, nil)
	for _, want := range []string{"approval      appr_1", "state         denied", "by api", "reason        no", "call          x",
		"tool          bash", "\na\\u{001b}\\u{202e} > x\n", `with {"timeout":"5s"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("it says nowhere %q:\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("something that cannot be seen: %q", text)
	}
	a.Call.Input = json.RawMessage("null")
	if text := describeApproval(a, nil); !strings.Contains(text, "20 bytes, which are no longer kept") {
		t.Error(text)
	}
}
