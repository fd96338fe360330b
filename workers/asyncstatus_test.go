package workers

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func TestAsyncStatus(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		w.employ(h) // either may get the question
		job := w.publish(w.background("one", "print hello\nread\nsleep 1h"))
		w.want(job, schemas.StatusCompleted)
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
		w.until("its output has been noticed", func() bool { return strings.Contains(ask("").Text, "bytes of output") })
		expect("", schemas.StatusCompleted, "running (job job_one, since 2000-",
			", 6 bytes of output). You will be notified when it ends: do not poll.")
		expect(`,"action":"logs"`, schemas.StatusCompleted, "hello\n[bytes 0 to 6 of 6. The job runs", "begins at offset 6")
		expect(`,"action":"stdin","data":"typed\n"`, schemas.StatusCompleted, "Wrote 6 bytes to job job_one.")
		w.until("it has read", func() bool { return strings.Contains(ask(`,"action":"logs","offset":6`).Text, "read typed") })
		expect(`,"action":"signal","signal":"USR1"`, schemas.StatusCompleted, "Sent USR1 to job job_one.")
		expect(`,"action":"stop"`, schemas.StatusCompleted, "Stopped job job_one")
		w.until("it is on record", func() bool { return w.recordOf(job).State == schemas.JobStopped })
		if done := w.ended(job); done.Reason != "the agent asked for its end" {
			t.Errorf("it is stopped because of %q", done.Reason)
		}
		expect("", schemas.StatusCompleted, "stopped (exit 143) — the agent asked for its end\nhello\nread typed\nsignal USR1")
		expect(`,"action":"logs"`, schemas.StatusCompleted, "The job has ended: there is no more]")
		expect(`,"action":"stop"`, schemas.StatusFailed, "the job has ended already: it is stopped")
		expect(`,"action":"stdin","data":"x"`, schemas.StatusFailed, "the job has ended already")
	})
}

func TestAsyncStatusKnowsOnlyJobsOfItsConversation(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.employ(h)
		job := w.publish(w.background("one", "sleep 10m"))
		w.want(job, schemas.StatusCompleted)
		ask := func(id string, change ...func(*schemas.Call)) schemas.Result {
			t.Helper()
			return w.want(w.publish(w.ask(id, job, "", change...)), schemas.StatusFailed)
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
//
//guarantee:a-result-of-a-job-reaches-the-agent-once
func TestAResultThatWasReadIsObserved(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		group := func(c *schemas.Call) { c.Group = &schemas.GroupRef{ID: "g", Size: 2} }
		job := w.publish(w.background("one", "print hello\nexit 3", group))
		w.want(job, schemas.StatusCompleted)
		w.until("it is final", func() bool { return w.recordOf(job).State.Final() })
		if got := w.recordOf(job).FollowUp; got != "" {
			t.Fatalf("its result is claimed by %q before its group is whole", got)
		}
		if r := w.want(w.publish(w.ask("ask", job, "")), schemas.StatusCompleted); !strings.HasPrefix(r.Text, "failed (exit 3)\nhello") {
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
		w.want(call, schemas.StatusCompleted)
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
