package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// ended is how the program reports an end.
const ended = "code 137\nstopped 1\ntimed_out 0\nlost 0\nreason \nchildren_left 2\nfinished 1795000000.250000\n" +
	"instance 0123abcd\nfirst 10\ntotal 40\n\naGVsbG8K\n"

func TestStatusIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want providers.JobStatus
	}{
		"running": {"running 1\ninstance abc\nfirst 0\ntotal 7\n", providers.JobStatus{Running: true, Instance: "abc", LogBytes: 7}},
		"ended": {ended, providers.JobStatus{Instance: "0123abcd", LogBytes: 40, End: providers.JobEnd{
			ExitCode: 137, Stopped: true, ChildrenLeft: 2, LogBytes: 40, LogTruncated: true, Tail: []byte("hello\n"),
			Finished: time.Unix(1795000000, 250e6).UTC(),
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.status()
			if err != nil {
				t.Fatal(err)
			}
			if string(got.End.Tail) != string(c.want.End.Tail) {
				t.Errorf("tail %q, want %q", got.End.Tail, c.want.End.Tail)
			}
			got.End.Tail, c.want.End.Tail = nil, nil
			if g, w := got.End, c.want.End; got.Running != c.want.Running || got.Instance != c.want.Instance || got.LogBytes != c.want.LogBytes ||
				g.ExitCode != w.ExitCode || g.Stopped != w.Stopped || g.ChildrenLeft != w.ChildrenLeft || g.LogTruncated != w.LogTruncated ||
				!g.Finished.Equal(w.Finished) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAnswersThatLieAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":             "",
		"no counts":           "running 1\n",
		"a negative count":    "running 1\nfirst 0\ntotal -1\n",
		"a code out of range": strings.Replace(ended, "code 137", "code 1000", 1),
		"no code":             strings.Replace(ended, "code 137", "code x", 1),
		"no time":             strings.Replace(ended, "1795000000", "", 1),
		"no base64":           strings.Replace(ended, "aGVsbG8K", "?", 1),
		"a tail too long":     strings.Replace(ended, "aGVsbG8K", strings.Repeat("AAAA", schemas.MaxJobLogs), 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := parse([]byte(text))
			if err == nil {
				_, err = a.status()
			}
			if schemas.CodeOf(err) != schemas.Unavailable {
				t.Errorf("%v: want unavailable", err)
			}
		})
	}
}

func TestExitCodesMean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   string
		res  providers.Result
		code schemas.Code
	}{
		{"stop job", providers.Result{ExitCode: exitAway}, schemas.NotFound},
		{"start job", providers.Result{ExitCode: exitOld}, schemas.Unsupported},
		{"start job", providers.Result{ExitCode: exitRefused}, schemas.Denied},
		{"signal job", providers.Result{ExitCode: exitRefused}, schemas.Conflict},
		{"start job", providers.Result{ExitCode: exitFull}, schemas.Exhausted},
		{"start job", providers.Result{ExitCode: 1}, schemas.Interrupted},
		{"start job", providers.Result{ExitCode: 124, TimedOut: true}, schemas.Interrupted},
		{"stop job", providers.Result{ExitCode: 1}, schemas.Unavailable},
		{"stop job", providers.Result{ExitCode: 124, TimedOut: true}, schemas.Unavailable},
	} {
		if got := schemas.CodeOf(exitError(c.op, c.res)); got != c.code {
			t.Errorf("%s, exit code %d: %q, want %q", c.op, c.res.ExitCode, got, c.code)
		}
	}
}

func TestProgramFitsIntoAnArgument(t *testing.T) {
	t.Parallel()
	const most = 64 << 10 // of a Command's script that may be an argument
	if n := len(launcher()); n > most {
		t.Errorf("the launcher has %d bytes", n)
	}
}

// FuzzAnswer reads what a box may answer.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(ended))
	f.Add([]byte("running 1\ninstance abc\nfirst 0\ntotal 7\n"))
	f.Add([]byte("offset 3\ntotal 9\nended 1\n\naGVs\nbG8K\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b)
		if err != nil {
			return
		}
		if st, err := a.status(); err == nil && (st.LogBytes < 0 || st.End.ExitCode < 0 || len(st.End.Tail) > schemas.MaxJobLogs) {
			t.Errorf("%+v", st)
		}
		if l, err := a.logs(100); err == nil && (len(l.Data) > 100 || l.Offset < 0 || l.Offset+int64(len(l.Data)) > l.Size) {
			t.Errorf("%+v", l)
		}
	})
}
