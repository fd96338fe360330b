package providertest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func jobStdin(t *testing.T, s jobSubject) {
	cmd := s.in(s.box, "cat; echo over")
	cmd.Stdin = []byte("first\n")
	j := s.begin(t, cmd)
	j.awaitWord(t, "first\n")
	j.write(t, "second\x00\xff\n", false)
	j.awaitWord(t, "second")
	j.write(t, strings.Repeat("y", 20000), true)
	e := j.wantEnd(t, 0)
	want(t, "printed", string(e.Tail), "first\nsecond\x00\xff\n"+strings.Repeat("y", 20000)+"over\n")

	closed := s.start(t, "cat; until [ -e go ]; do sleep 0.02; done")
	closed.write(t, "", true)
	_, err := s.control.WriteJob(t.Context(), closed.ref, []byte("x"), false)
	wantCode(t, err, schemas.Conflict)
	s.sh(t, "touch go")
	closed.wantEnd(t, 0)
}

func (j *job) write(t *testing.T, data string, eof bool) {
	t.Helper()
	n, err := j.s.control.WriteJob(t.Context(), j.ref, []byte(data), eof)
	if err != nil || n != len(data) {
		t.Errorf("WriteJob: %d of %d bytes, %v", n, len(data), err)
	}
}

func jobStdinSlow(t *testing.T, s jobSubject) {
	j := s.start(t, "exec sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for range 100 { // a pipe holds a few of these
		n, err := s.control.WriteJob(ctx, j.ref, bytes.Repeat([]byte("x"), schemas.MaxJobStdin), false)
		if err == nil {
			continue
		}
		wantCode(t, err, schemas.Timeout)
		if n < 0 || n >= schemas.MaxJobStdin {
			t.Errorf("%d of %d bytes were taken", n, schemas.MaxJobStdin)
		}
		j.stop(t, time.Second)
		want(t, "Stopped", j.end(t).Stopped, true)
		return
	}
	t.Error("a job that reads nothing takes all")
}

func jobStdinClosed(t *testing.T, s jobSubject) {
	j := s.start(t, "exec <&-; echo closed; until [ -e go ]; do sleep 0.02; done")
	j.awaitWord(t, "closed")
	_, err := s.control.WriteJob(t.Context(), j.ref, []byte("x"), false)
	wantCode(t, err, schemas.Conflict)
	s.sh(t, "touch go")
	j.wantEnd(t, 0)
}
