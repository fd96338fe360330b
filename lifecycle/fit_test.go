package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// separator takes three bytes in JSON that comes in, and six in what is written.
const separator = "\u2028"

// worst is an origin as large as one may be.
func worst() *schemas.Origin {
	kind := strings.Repeat("c", schemas.MaxChannel)
	route := strings.Repeat(separator, (schemas.MaxOrigin-len(kind)-len(`{"a":""}`))/len(separator))
	return &schemas.Origin{Kind: schemas.OriginChannel, Channel: kind, Route: json.RawMessage(`{"a":"` + route + `"}`)}
}

// worstArtifacts are the most that a job can have, under the longest names.
func worstArtifacts(c schemas.Call) (a schemas.JobArtifacts) {
	for n := range schemas.MaxArtifacts {
		name := fmt.Sprintf("%02d", n) + strings.Repeat(separator, (schemas.MaxFilePath-2)/len(separator))
		a.Artifacts = append(a.Artifacts, schemas.NewArtifact(c, name, 1, strings.Repeat("a", 64), nil, time.Now()))
	}
	for range schemas.MaxArtifactsSkipped {
		a.SkippedArtifacts = append(a.SkippedArtifacts, schemas.SkippedArtifact{Path: a.Artifacts[0].Path, Reason: schemas.SkipLink})
	}
	a.SkippedArtifacts = append(a.SkippedArtifacts, schemas.SkippedArtifact{Reason: schemas.SkipLink, Count: 7})
	return a
}

// TestTheRecordOfAJobFitsItsBucket: from its start to its end, whatever bytes it is made of.
//
//guarantee:bounds
func TestTheRecordOfAJobFitsItsBucket(t *testing.T) {
	t.Parallel()
	for _, bytes := range []string{"\x01", "\\", separator, "<", "ü"} {
		t.Run(fmt.Sprintf("%q", bytes), func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				input, err := json.Marshal(map[string]any{"command": strings.Repeat(bytes, schemas.MaxJobCommand+1), "background": true})
				if err != nil {
					t.Fatal(err)
				}
				c := asked("worst")
				c.Approval, c.Job, c.Input, c.Origin = "", "job_1", input, worst()
				c.Group = &schemas.GroupRef{ID: strings.Repeat("g", schemas.MaxCallID), Size: schemas.MaxGroup}
				p, err := lifecycle.EnsureJob(t.Context(), b, c)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(p.Value.Command, "…") {
					t.Errorf("a command of %d bytes does not say that it was cut", len(p.Value.Command))
				}
				end := completion(schemas.JobFailed)
				end.Logs, end.Reason = strings.Repeat(bytes, schemas.MaxJobLogs), strings.Repeat(bytes, schemas.MaxJobReason+1)
				end.JobArtifacts = worstArtifacts(c)
				p.Value.Outputs = &schemas.JobOutputs{Patterns: []string{strings.Repeat("x", schemas.MaxJobPatterns-len(`[""]`))}}
				if p.Revision, err = lifecycle.OpenJobs(b).Update(t.Context(), p.Key, p.Value, p.Revision); err != nil || p.Value.Outputs.Validate() != nil {
					t.Fatal(err)
				}
				old := p.Value // as a version before this one has written it
				old.Command = strings.Repeat(bytes, schemas.MaxJobCommand/len(bytes))
				for _, j := range []schemas.Job{p.Value, old} {
					j = lifecycle.Settled(j, end)
					if p.Revision, err = lifecycle.OpenJobs(b).UpdateFor(t.Context(), p.Key, j, p.Revision, streams.SettledKept); err != nil {
						t.Fatal(err)
					}
					if got := *j.Completion; got.Logs == "" || got.State != schemas.JobFailed || !strings.HasSuffix(got.Reason, "…") ||
						got.LogTruncated != (len(got.Logs) < len(end.Logs)) {
						t.Errorf("%d bytes of output, truncated %v, %d of a reason", len(got.Logs), got.LogTruncated, len(got.Reason))
					}
					a := j.Completion.JobArtifacts
					if len(a.Artifacts) == 0 || len(a.Artifacts)+a.MoreArtifacts != schemas.MaxArtifacts || j.Outputs != nil {
						t.Errorf("%d artifacts and %d more", len(a.Artifacts), a.MoreArtifacts)
					}
				}
			})
		})
	}
}

// TestAParkedCallAlwaysHasItsQuestion: the record of an approval fits its bucket, whatever bytes its call is made of, and so does its
// answer.
//
//guarantee:bounds
func TestAParkedCallAlwaysHasItsQuestion(t *testing.T) {
	t.Parallel()
	for _, bytes := range []string{"\x01", separator, "<", "ü"} {
		t.Run(fmt.Sprintf("%q", bytes), func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				text, err := schemas.EncodeJSON(bytes)
				if err != nil {
					t.Fatal(err)
				}
				one := string(text[1 : len(text)-1])
				if bytes == separator {
					one = separator // JSON may have it as it is
				}
				c := asked("worst")
				c.Input = json.RawMessage(`{"command":"` + strings.Repeat(one, (schemas.MaxApprovalInput-len(`{"command":""}`))/len(one)) + `"}`)
				c.Origin = worst()
				for range schemas.MaxArtifactPatterns {
					c.Artifacts = append(c.Artifacts, strings.Repeat(bytes, schemas.MaxArtifactPattern/len(bytes)))
				}
				p, err := lifecycle.EnsureApproval(t.Context(), b, c)
				if err != nil {
					t.Fatal(err)
				}
				if err := lifecycle.Ask(t.Context(), b, p, b.Absent()); err != nil {
					t.Fatal(err)
				}
				p, _, err = lifecycle.Decide(t.Context(), b, c.Account, c.Approval, lifecycle.Decision{
					State: schemas.ApprovalDenied, By: lifecycle.ByChat, Reason: strings.Repeat(bytes, 1<<20),
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := lifecycle.FinishDecision(t.Context(), b, p, b.Absent()); err != nil {
					t.Fatal(err)
				}
				p, err = lifecycle.FindApproval(t.Context(), b, c.Account, c.Approval)
				if err != nil || !p.Value.Done || !strings.HasSuffix(p.Value.Reason, "…") {
					t.Errorf("done %v, %d bytes of a reason, %v", p.Value.Done, len(p.Value.Reason), err)
				}
			})
		})
	}
}

// TestAMessageWithManyFilesIsReceived: the note of a message of a chat fits its bucket, whatever its files are called and whyever they
// are not stored.
func TestAMessageWithManyFilesIsReceived(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		long := func(n int) string { return strings.Repeat("\x01", n) }
		chat := schemas.Chat{
			Account: "acct_1", Channel: "chan_1", Kind: "telegram", Name: schemas.ChatName("chan_1", "tg:1"), Route: worst().Route, User: long(1 << 20),
		}
		if _, err := lifecycle.NoteChat(t.Context(), b, chat, true, "tg:7"); err != nil {
			t.Fatal(err)
		}
		m := schemas.ChatMessage{Channel: "chan_1", Kind: "telegram", Event: "tg:7", Place: "1", Text: "a", Received: time.Now().UTC()}
		for range schemas.MaxChatFiles {
			m.Files = append(m.Files, schemas.ChatFile{
				Name: long(2 * schemas.MaxChatFileName), Type: long(schemas.MaxChatFileType), Ref: long(schemas.MaxChatFileRef), Reason: long(64 << 10),
			})
		}
		turn := schemas.MessageTurn(chat, "agent_1", m)
		for range 2 {
			if err := lifecycle.Receive(t.Context(), b, turn, nil); err != nil {
				t.Fatal(err)
			}
		}
		page, err := streams.ReadEvents(t.Context(), b, turn.Account, turn.Conversation, 0, 0)
		if err != nil || len(page.Events) != 1 || page.Events[0].Value.Type != schemas.MessageReceived {
			t.Errorf("%d events, %v", len(page.Events), err)
		}
	})
}

// TestSettledFits lets a job report anything at all: its record must be able to keep it.
func TestSettledFits(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"x", "\x00", "\xff", "ü", "\"", "\n", "<", "\u2028", "\U0001F680"})
		c := completion(schemas.JobFailed)
		c.Logs = strings.Repeat(piece.Draw(t, "logs"), rapid.IntRange(0, 40_000).Draw(t, "times"))
		c.Reason = piece.Draw(t, "before") + strings.Repeat(piece.Draw(t, "reason"), rapid.IntRange(0, 10_000).Draw(t, "times"))
		c.LogBytes = int64(len(c.Logs))
		j := lifecycle.Settled(schemas.Job{ID: "job_1", Account: "acct_1", Origin: worst()}, c)
		f := *j.Completion
		if n := schemas.JSONSize(f.Logs); n > schemas.MaxJobLogsJSON || len(f.Logs) > schemas.MaxJobLogs {
			t.Fatalf("%d bytes of logs, %d as JSON", len(f.Logs), n)
		}
		if len(f.Reason) > schemas.MaxJobReason || !utf8.ValidString(f.Reason) || !utf8.ValidString(f.Logs) {
			t.Fatalf("%d bytes of reason, or no text", len(f.Reason))
		}
		if len(c.Logs) > 0 && f.Logs == "" {
			t.Fatal("nothing is left of the logs")
		}
	})
}
