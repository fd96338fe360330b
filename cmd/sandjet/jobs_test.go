package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestWaitingForAJobEndsWithItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state schemas.JobState
		exit  *int
		want  int
	}{
		{schemas.JobCompleted, new(0), exitOK},
		{schemas.JobCompleted, nil, exitOK},
		{schemas.JobFailed, new(3), 3},
		{schemas.JobFailed, nil, exitFailure},
		{schemas.JobStopped, new(143), 143},
		{schemas.JobStopped, nil, exitCancelled},
		{schemas.JobExpired, new(137), exitTimeout},
		{schemas.JobLost, nil, exitInterrupted},
		{schemas.JobUnstarted, nil, exitTryLater},
	} {
		if got := jobCode(schemas.Completion{State: c.state, ExitCode: c.exit}); got != c.want {
			t.Errorf("jobCode(%s, %v) = %d, want %d", c.state, c.exit, got, c.want)
		}
	}
}

func TestAJobTooManyIsTriedLater(t *testing.T) {
	t.Parallel()
	full := schemas.Result{Tool: schemas.ToolBash, Status: schemas.StatusFailed, Error: &schemas.Error{Code: schemas.Exhausted}}
	if got := resultCode(full); got != exitTryLater {
		t.Errorf("exit code %d, want %d", got, exitTryLater)
	}
}

// slowJob accepts only a few bytes of each write, as a full pipe does.
type slowJob struct {
	takes  int
	got    strings.Builder
	closed int
}

func (s *slowJob) Write(_ context.Context, _ schemas.JobID, data []byte, eof bool) (int, error) {
	if eof {
		s.closed++
	}
	if len(data) > schemas.MaxJobStdin {
		return 0, schemas.Invalidf("data", "is too long")
	}
	n := min(len(data), s.takes)
	s.got.Write(data[:n])
	return n, nil
}

func TestWriteJobCopiesAllAndClosesOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1000, schemas.MaxJobStdin, 2*schemas.MaxJobStdin + 5} {
		text := strings.Repeat("x", size)
		for _, eof := range []bool{true, false} {
			job := &slowJob{takes: 1 << 10}
			n, err := writeJob(t.Context(), job, "job_1", iotest.HalfReader(strings.NewReader(text)), eof)
			if err != nil || n != int64(size) || job.got.String() != text {
				t.Errorf("%d bytes: wrote %d, %v; the job has %d", size, n, err, job.got.Len())
			}
			if (job.closed == 1) != eof || job.closed > 1 {
				t.Errorf("%d bytes, eof %v: closed %d times", size, eof, job.closed)
			}
		}
	}
}

func TestWriteJobReportsHowFarItGot(t *testing.T) {
	t.Parallel()
	stuck := &slowJob{}
	if _, err := writeJob(t.Context(), stuck, "job_1", strings.NewReader("x"), true); !errors.Is(err, schemas.ErrTimeout) || stuck.closed > 0 {
		t.Errorf("a job that does not read: %v, closed %d times", err, stuck.closed)
	}
	broken := io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := writeJob(t.Context(), &slowJob{takes: 9}, "job_1", broken, true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("input that breaks off: %v", err)
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "2h": now.Add(-2 * time.Hour), "0s": now, "2026-11-21T08:00:00Z": now.Add(-4 * time.Hour),
		"2026-11-21T08:00:00+02:00": now.Add(-6 * time.Hour),
	} {
		if got, err := moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("moment(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-2h", "yesterday", "2026-11-21", "0001-01-01T00:00:00Z", "7"} {
		if got, err := moment(text, now); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("moment(%q) = %v, %v; want an invalid error", text, got, err)
		}
	}
}

func TestDescribeJobShowsAllAndNothingThatPlaysTricks(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	j := schemas.Job{
		ID: "job_1", State: schemas.JobFailed, Command: "make \x1b[2J\ntest", Call: "call_1", Conversation: "c_1", Created: at, Launched: at,
		Group: &schemas.GroupRef{ID: "g", Size: 2},
		Completion: &schemas.Completion{
			State: schemas.JobFailed, ExitCode: new(137), Reason: "why\x1b", OOMKilled: true, ChildrenLeft: 4, ReportedBy: schemas.ReportedByProbe,
			Logs: "out\x1b[31m\n", LogBytes: 9, Finished: at.Add(time.Second),
		},
	}
	got := describeJob(j, nil)
	for _, want := range []string{"failed", "exit code     137", "ran out of memory", "4 processes", "probe", "g of 2", "9 bytes", "\nout"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("it lets escapes through:\n%q", got)
	}
}

func TestCallbackURLs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "https://sandjet.example.com", "http://10.0.0.1:8080", "https://h/under/path"} {
		if err := checkCallback(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"h", "ftp://h", "https://", "https://h?x=1", "https://h#x", "https://u:hush@h", "://"} {
		if err := checkCallback(bad); !errors.Is(err, schemas.ErrInvalid) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v, want an invalid error that tells no password", bad, err)
		}
	}
}
