package schemas_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func exampleCommit() schemas.Commit {
	text := func(s string) []schemas.Block { return []schemas.Block{{Type: schemas.BlockText, Text: s}} }
	return schemas.Commit{
		ID: "commit_1", Turn: "turn_1", Owner: "turns-7", At: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC),
		Entries: []schemas.Entry{
			{Kind: schemas.EntryIn, Begins: true, Taken: []string{"e1"},
				Messages: []schemas.ModelMessage{{Role: schemas.RoleUser, Blocks: text("hi")}}},
			{Kind: schemas.EntryOpen, Step: 1, Reserved: 100, Prefix: "abc"},
			{Kind: schemas.EntrySpent, Step: 1, Attempt: 1, Model: "m", Reason: "overloaded",
				Usage: schemas.TokenUsage{In: 3}, Again: time.Unix(9, 0)},
			{Kind: schemas.EntryAnswer, Step: 1, Attempt: 2, Model: "m", Stop: "tool_use", Blocks: append(text("look"),
				schemas.Block{Type: schemas.BlockToolUse, Use: "u1", Name: "bash", Input: json.RawMessage(`{"command":"ls"}`),
					Raw: json.RawMessage(`{"type":"tool_use","x":[1]}`), Wire: schemas.WireAnthropic, Model: "m"}),
				Calls: []schemas.UsedCall{{Use: "u1", Call: "call_1"}}},
			{Kind: schemas.EntryResults, Step: 1,
				Results: []schemas.UsedResult{{Use: "u1", Call: "call_1", Status: schemas.StatusCompleted, Text: "a"}}},
			{Kind: schemas.EntrySummary, Step: 2, Attempt: 1, Text: "so far", Before: 7, Carry: &schemas.Carry{Steps: 1, Taken: []string{"e1"}}},
			{Kind: schemas.EntryEnd, Status: schemas.TurnCompleted, Usage: schemas.TokenUsage{In: 3, Out: 4}},
		},
	}
}

func TestACommitIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	first, err := schemas.EncodeCommit(exampleCommit())
	if err != nil {
		t.Fatal(err)
	}
	c, err := schemas.DecodeCommit(first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := schemas.EncodeCommit(c)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("%v\n%s\nbecame\n%s", err, first, again)
	}
	newer := `{"id":"commit_1","turn":"turn_1","at":"2026-11-23T12:00:00Z","new":1,"entries":[{"kind":"dream","of":[{}]},{"kind":"end","status":"x"}]}`
	if c, err = schemas.DecodeCommit([]byte(newer)); err != nil || len(c.Entries) != 2 || c.Entries[0].Kind != "dream" {
		t.Errorf("a newer commit: %+v, %v", c, err)
	}
}

//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func TestWhatNoCommitMayHave(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(c *schemas.Commit){
		"id":                             func(c *schemas.Commit) { c.ID = "c.1" },
		"turn":                           func(c *schemas.Commit) { c.Turn = "" },
		"at":                             func(c *schemas.Commit) { c.At = time.Time{} },
		"entries":                        func(c *schemas.Commit) { c.Entries = nil },
		"entries[].kind":                 func(c *schemas.Commit) { c.Entries[0].Kind = "dream" },
		"entries[].messages":             func(c *schemas.Commit) { c.Entries[0].Messages = nil },
		"entries[].messages.role":        func(c *schemas.Commit) { c.Entries[0].Messages[0].Role = schemas.RoleAssistant },
		"entries[].messages.blocks.type": func(c *schemas.Commit) { c.Entries[0].Messages[0].Blocks[0].Type = schemas.BlockToolResult },
		"entries[].taken":                func(c *schemas.Commit) { c.Entries[0].Taken = make([]string, schemas.MaxTaken+1) },
		"entries[].step":                 func(c *schemas.Commit) { c.Entries[1].Step = 0 },
		"entries[].purpose":              func(c *schemas.Commit) { c.Entries[1].Purpose = "fun" },
		"entries[].reason":               func(c *schemas.Commit) { c.Entries[2].Reason = strings.Repeat("x", schemas.MaxDescription+1) },
		"entries[].usage":                func(c *schemas.Commit) { c.Entries[2].Usage.Out = -1 },
		"entries[].attempt":              func(c *schemas.Commit) { c.Entries[3].Attempt = 0 },
		"entries[].calls":                func(c *schemas.Commit) { c.Entries[3].Calls = nil },
		"entries[].calls[].id":           func(c *schemas.Commit) { c.Entries[3].Calls[0].Call = "a b" },
		"entries[].blocks.use":           func(c *schemas.Commit) { c.Entries[3].Blocks[1].Use = "" },
		"entries[].blocks.type":          func(c *schemas.Commit) { c.Entries[3].Blocks[0].Type = schemas.BlockToolResult },
		"entries[].results":              func(c *schemas.Commit) { c.Entries[4].Results = nil },
		"entries[].results.use":          func(c *schemas.Commit) { c.Entries[4].Results[0].Use = "" },
		"entries[].results.status":       func(c *schemas.Commit) { c.Entries[4].Results[0].Status = "" },
		"entries[].before":               func(c *schemas.Commit) { c.Entries[5].Before = 0 },
		"entries[].text":                 func(c *schemas.Commit) { c.Entries[5].Text = "" },
		"entries[].status":               func(c *schemas.Commit) { c.Entries[6].Status = "bored" },
	} {
		c := exampleCommit()
		spoil(&c)
		_, err := schemas.EncodeCommit(c)
		if schemas.CodeOf(err) != schemas.Invalid || schemas.Public(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// What is read from the log is a commit or an error of code invalid, and what is a commit is written as it was.
//
//guarantee:a-transcript-has-one-order-and-nothing-in-it-is-partly-there
func FuzzDecodeCommit(f *testing.F) {
	first, err := schemas.EncodeCommit(exampleCommit())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first)
	f.Add([]byte(`{"id":"commit_1","turn":"turn_1","entries":[{"kind":"answer","blocks":[{"type":"other","raw":[[[]]]}]}]}`))
	f.Add([]byte(`{"id":"commit_1","turn":"turn_1","entries":[{"usage":{"in":-1}}],"at":"never"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := schemas.DecodeCommit(b)
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Fatalf("code %s: %v", schemas.CodeOf(err), err)
			}
			return
		}
		written, err := schemas.EncodeCommit(c)
		if err != nil {
			return
		}
		again, err := schemas.DecodeCommit(written)
		if err != nil {
			t.Fatalf("%s\nis refused: %v", written, err)
		}
		if twice, err := schemas.EncodeCommit(again); err != nil || !bytes.Equal(written, twice) {
			t.Fatalf("%v\n%s\nbecame\n%s", err, written, twice)
		}
	})
}
