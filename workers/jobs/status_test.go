package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

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
		{ended(schemas.Completion{State: schemas.JobFailed, ExitCode: code(137), OOMKilled: true, ChildrenLeft: 2}), 0,
			"failed (exit 137)\n[killed: out of memory]\n[2 processes that it left behind were ended]"},
		{ended(schemas.Completion{State: schemas.JobLost, Reason: "its sandbox is gone", Logs: "b", LogBytes: 9, LogTruncated: true}), 0,
			"lost — its sandbox is gone\n[the last 1 of 9 bytes]\nb"},
		{ended(schemas.Completion{State: schemas.JobCompleted, ExitCode: code(0), Logs: "\uFFFD\n", LogBytes: 4, LogInvalidBytes: 3}), 0,
			"completed (exit 0)\n\uFFFD\n[3 bytes of the output were not UTF-8: shown as U+FFFD]"},
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
		{"all of a job that runs", 0, schemas.JobReply{Data: []byte("ab\n"), Size: 3},
			"ab\n[bytes 0 to 3 of 3. The job runs: what it prints next begins at offset 3. " + lifecycle.TextNotified + "]", 3},
		{"a page", 0, schemas.JobReply{Data: []byte("ab"), Size: 9, Ended: true}, "ab\n[bytes 0 to 2 of 9. Read on with offset 2]", 2},
		{"the last page", 7, schemas.JobReply{Data: []byte("yz"), Offset: 7, Size: 9, Ended: true},
			"yz\n[bytes 7 to 9 of 9. The job has ended: there is no more]", 9},
		{"a character cut in two waits for the rest", 0, schemas.JobReply{Data: []byte("aé")[:2], Size: 9},
			"a\n[bytes 0 to 1 of 9. Read on with offset 1]", 1},
		{"at the very end it does not", 0, schemas.JobReply{Data: []byte("aé")[:2], Size: 2, Ended: true},
			"a\uFFFD\n[1 byte of the output was not UTF-8: shown as U+FFFD]\n[bytes 0 to 2 of 2. The job has ended: there is no more]", 2},
		{"a lone piece of a character goes on", 3, schemas.JobReply{Data: []byte("\xc3"), Offset: 3, Size: 9},
			"\uFFFD\n[1 byte of the output was not UTF-8: shown as U+FFFD]\n[bytes 3 to 4 of 9. Read on with offset 4]", 4},
		{"what is no text", 0, schemas.JobReply{Data: []byte("d\xe9j\xe0\n"), Size: 5, Ended: true},
			"d\uFFFDj\uFFFD\n[2 bytes of the output were not UTF-8: shown as U+FFFD]\n[bytes 0 to 5 of 5. The job has ended: there is no more]", 5},
		{"what is no longer kept", 2, schemas.JobReply{Data: []byte("z"), Offset: 8, Size: 9, Ended: true},
			"[bytes 2 to 8 are no longer kept]\nz\n[bytes 8 to 9 of 9. The job has ended: there is no more]", 9},
		{"nothing", 0, schemas.JobReply{}, "[bytes 0 to 0 of 0. The job runs: what it prints next begins at offset 0. " +
			lifecycle.TextNotified + "]", 0},
	} {
		got, page := logsText(c.from, c.reply)
		if got != c.want || page.Next != c.next || (page.InvalidBytes > 0) != strings.Contains(c.want, "not UTF-8") {
			t.Errorf("%s: next %d, got\n%q\nwant %d\n%q", c.name, page.Next, got, c.next, c.want)
		}
	}
}
