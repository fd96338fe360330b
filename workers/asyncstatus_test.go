package workers

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func TestAsyncStatus(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		w.employ(h) // either may get the question
		job := w.publish(w.background("one", "print hello\nread\nsleep 1h"))
		w.want(job, schemas.Completed)
		n := 0
		ask := func(input string) schemas.Result {
			t.Helper()
			n++
			return w.result(w.publish(w.ask("ask_"+string(rune('a'+n)), job, input)))
		}
		expect := func(input string, s schemas.Status, parts ...string) {
			t.Helper()
			r := ask(input)
			for _, p := range parts {
				if r.Status != s || !strings.Contains(r.Text, p) {
					t.Errorf("%s is answered %s: %q, want %s with %q", input, r.Status, r.Text, s, p)
				}
			}
		}
		expect("", schemas.Completed, "running (job job_one, since 2000-", ", 6 bytes of output). You will be notified when it ends: do not poll.")
		expect(`,"action":"logs"`, schemas.Completed, "hello\n[bytes 0 to 6 of 6. The job runs", "begins at offset 6")
		expect(`,"action":"stdin","data":"typed\n"`, schemas.Completed, "Wrote 6 bytes to job job_one.")
		w.until("it has read", func() bool { return strings.Contains(ask(`,"action":"logs","offset":6`).Text, "read typed") })
		expect(`,"action":"signal","signal":"USR1"`, schemas.Completed, "Sent USR1 to job job_one.")
		expect(`,"action":"stop"`, schemas.Completed, "Stopped job job_one")
		w.until("it is on record", func() bool { return w.recordOf(job).State == schemas.JobStopped })
		if done := w.ended(job); done.Reason != "the agent asked for its end" {
			t.Errorf("it is stopped because of %q", done.Reason)
		}
		expect("", schemas.Completed, "stopped (exit 143) — the agent asked for its end\nhello\nread typed\nsignal USR1")
		expect(`,"action":"logs"`, schemas.Completed, "The job has ended: there is no more]")
		expect(`,"action":"stop"`, schemas.Failed, "the job has ended already: it is stopped")
		expect(`,"action":"stdin","data":"x"`, schemas.Failed, "the job has ended already")
	})
}

func TestAsyncStatusKnowsOnlyJobsOfItsConversation(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.employ(h)
		job := w.publish(w.background("one", "sleep 10m"))
		w.want(job, schemas.Completed)
		ask := func(id string, change ...func(*schemas.Call)) schemas.Result {
			t.Helper()
			return w.want(w.publish(w.ask(id, job, "", change...)), schemas.Failed)
		}
		other := ask("b", func(c *schemas.Call) { c.Conversation = "c-other" })
		foreign := ask("c", func(c *schemas.Call) { c.Account = "acct_2" })
		job.Job = "job_none"
		never := ask("d")
		want := "unknown — no record of \"job_one\" in this conversation"
		for _, r := range []schemas.Result{other, foreign, never} {
			text := strings.Replace(r.Text, "job_none", "job_one", 1)
			if strings.ReplaceAll(text, `"`, "") != strings.ReplaceAll(want, `"`, "") || r.Error.Code != schemas.NotFound {
				t.Errorf("it says %q (%s), want %q", r.Text, r.Error.Code, want)
			}
		}
	})
}

// Reading the result of a job of a group takes it out of the follow-up, in one step.
func TestAResultThatWasReadIsObserved(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		group := func(c *schemas.Call) { c.Group = &schemas.GroupRef{ID: "g", Size: 2} }
		job := w.publish(w.background("one", "print hello\nexit 3", group))
		w.want(job, schemas.Completed)
		w.until("it is final", func() bool { return w.recordOf(job).State.Final() })
		if got := w.recordOf(job).FollowUp; got != "" {
			t.Fatalf("its result is claimed by %q before its group is whole", got)
		}
		if r := w.want(w.publish(w.ask("ask", job, "")), schemas.Completed); !strings.HasPrefix(r.Text, "failed (exit 3)\nhello") {
			t.Errorf("the result reads %q", r.Text)
		}
		if got := w.recordOf(job).FollowUp; got != schemas.Observed {
			t.Errorf("its follow-up is %q, want observed", got)
		}
	})
}

func TestLogsOfAJobWhoseWorkerIsGone(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		first := w.employ(h)
		call := w.publish(w.background("one", "print hello\nsleep 1m"))
		w.want(call, schemas.Completed)
		w.ended(call)
		w.until("it is final", func() bool { return w.recordOf(call).State.Final() })
		first.retire()
		cmd := schemas.JobCommand{Account: call.Account, Job: call.Job, Action: schemas.JobActionLogs, Offset: 2}
		reply, err := lifecycle.ControlJob(t.Context(), w.bus, cmd)
		if err != nil || string(reply.Data) != "llo\n" || reply.Offset != 2 || !reply.Ended {
			t.Errorf("the logs are %+v, %v", reply, err)
		}
	})
}

func TestStatusTexts(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	live := schemas.Job{ID: "job_1", State: schemas.JobRunning, Launched: since}
	ended := func(c schemas.Completion) schemas.Job {
		return schemas.Job{ID: "job_1", State: c.State, Completion: &c}
	}
	for _, c := range []struct {
		job     schemas.Job
		printed int64
		want    string
	}{
		{schemas.Job{ID: "job_1", State: schemas.JobWaiting}, 0, "waiting (job job_1). You will be notified when it ends: do not poll."},
		{live, 0, "running (job job_1, since 2026-01-02T03:04:05Z). You will be notified when it ends: do not poll."},
		{live, 7, "running (job job_1, since 2026-01-02T03:04:05Z, 7 bytes of output). You will be notified when it ends: do not poll."},
		{ended(schemas.Completion{State: schemas.JobCompleted, ExitCode: code(0), Logs: "a\nb\n", LogBytes: 4}), 0, "completed (exit 0)\na\nb"},
		{ended(schemas.Completion{State: schemas.JobFailed, ExitCode: code(137), OOMKilled: true, ChildrenLeft: 2}), 0, "failed (exit 137)\n[killed: out of memory]\n[2 processes that it left behind were ended]"},
		{ended(schemas.Completion{State: schemas.JobLost, Reason: "its sandbox is gone", Logs: "b", LogBytes: 9, LogTruncated: true}), 0, "lost — its sandbox is gone\n[the last 1 of 9 bytes]\nb"},
		{ended(schemas.Completion{State: schemas.JobUnstarted, Reason: "no"}), 0, "not started — no"},
	} {
		if got := statusText(c.job, c.printed); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestLogTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		from  int64
		reply schemas.JobReply
		want  string
		next  int64
	}{
		{"all of a job that runs", 0, schemas.JobReply{Data: []byte("ab\n"), Size: 3}, "ab\n[bytes 0 to 3 of 3. The job runs: what it prints next begins at offset 3. " + lifecycle.TextNotified + "]", 3},
		{"a page", 0, schemas.JobReply{Data: []byte("ab"), Size: 9, Ended: true}, "ab\n[bytes 0 to 2 of 9. Read on with offset 2]", 2},
		{"the last page", 7, schemas.JobReply{Data: []byte("yz"), Offset: 7, Size: 9, Ended: true}, "yz\n[bytes 7 to 9 of 9. The job has ended: there is no more]", 9},
		{"a character cut in two waits for the rest", 0, schemas.JobReply{Data: []byte("aé")[:2], Size: 9}, "a\n[bytes 0 to 1 of 9. Read on with offset 1]", 1},
		{"at the very end it does not", 0, schemas.JobReply{Data: []byte("aé")[:2], Size: 2, Ended: true}, "a\uFFFD\n[bytes 0 to 2 of 2. The job has ended: there is no more]", 2},
		{"a lone piece of a character goes on", 3, schemas.JobReply{Data: []byte("\xc3"), Offset: 3, Size: 9}, "\uFFFD\n[bytes 3 to 4 of 9. Read on with offset 4]", 4},
		{"what is no longer kept", 2, schemas.JobReply{Data: []byte("z"), Offset: 8, Size: 9, Ended: true}, "[bytes 2 to 8 are no longer kept]\nz\n[bytes 8 to 9 of 9. The job has ended: there is no more]", 9},
		{"nothing", 0, schemas.JobReply{}, "[bytes 0 to 0 of 0. The job runs: what it prints next begins at offset 0. " + lifecycle.TextNotified + "]", 0},
	} {
		got, page := logsText(c.from, c.reply)
		if got != c.want || page.Next != c.next {
			t.Errorf("%s: next %d, got\n%q\nwant %d\n%q", c.name, page.Next, got, c.next, c.want)
		}
	}
}
