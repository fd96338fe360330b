package providertest

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func jobOrder(t *testing.T, s jobSubject) {
	e := s.start(t, "echo a; echo b >&2; echo c; printf d >&2").wantEnd(t, 0)
	want(t, "printed", string(e.Tail), "a\nb\nc\nd")
	want(t, "LogTruncated", e.LogTruncated, false)
}

func jobBinary(t *testing.T, s jobSubject) {
	j := s.start(t, `printf 'a\000\001\377\376\r\n\303'`)
	want(t, "the end", string(j.wantEnd(t, 0).Tail), "a\x00\x01\xff\xfe\r\n\xc3")
	want(t, "the log", string(j.logs(t, 0, 100).Data), "a\x00\x01\xff\xfe\r\n\xc3")
}

func jobFlood(t *testing.T, s jobSubject) {
	size := int64(200 << 20) // more than is kept
	if os.Getenv("SANDJET_TESTS") == "long" {
		size = 1 << 30
	}
	cmd := s.in(s.box, fmt.Sprintf("head -c %d /dev/zero; echo end", size))
	cmd.Timeout = time.Hour // a slow disk slows it down
	j := s.begin(t, cmd)
	e := j.wantEnd(t, 0)
	want(t, "LogBytes", e.LogBytes, size+4)
	want(t, "LogTruncated", e.LogTruncated, true)
	want(t, "the last bytes", string(j.logs(t, -1, 5).Data), "\x00end\n")
	if len(e.Tail) > schemas.MaxJobLogs || !bytes.HasSuffix(e.Tail, []byte("\x00end\n")) {
		t.Errorf("the tail has %d bytes and ends with %q", len(e.Tail), e.Tail[max(0, len(e.Tail)-8):])
	}
	first := j.logs(t, 0, 1000)
	want(t, "Size", first.Size, size+4)
	want(t, "a page", len(first.Data), 1000)
	if kept := first.Size - first.Offset; kept > schemas.MaxJobOutput || kept < schemas.MaxJobOutput/8 { // the box's disk may be small
		t.Errorf("%d bytes are kept, want at most %d and no less than an eighth of it", kept, schemas.MaxJobOutput)
	}
}

func jobLogPages(t *testing.T, s jobSubject) {
	j := s.start(t, "echo one; echo two; echo three")
	want(t, "LogBytes", j.wantEnd(t, 0).LogBytes, 14)
	for _, c := range []struct {
		offset int64
		limit  int
		data   string
		at     int64
	}{
		{0, 100, "one\ntwo\nthree\n", 0},
		{0, 5, "one\nt", 0},
		{5, 4, "wo\nt", 5},
		{8, 100, "three\n", 8},
		{14, 100, "", 14},
		{-1, 6, "three\n", 8},
		{-1, 100, "one\ntwo\nthree\n", 0},
	} {
		l := j.logs(t, c.offset, c.limit)
		if string(l.Data) != c.data || l.Offset != c.at || l.Size != 14 || !l.Ended {
			t.Errorf("offset %d, limit %d: %q at %d of %d, ended %v", c.offset, c.limit, l.Data, l.Offset, l.Size, l.Ended)
		}
	}
	want(t, "behind the end", len(j.logs(t, 1000, 100).Data), 0)
}

func jobLogsLive(t *testing.T, s jobSubject) {
	j := s.start(t, "echo one; until [ -e go ]; do sleep 0.02; done; echo two")
	j.awaitWord(t, "one\n")
	l := j.logs(t, 0, 100)
	want(t, "Size", l.Size, 4)
	want(t, "Ended", l.Ended, false)
	st := j.status(t)
	want(t, "Running", st.Running, true)
	want(t, "Instance", st.Instance, j.ref.Instance)
	want(t, "LogBytes", st.LogBytes, 4)
	s.sh(t, "touch go")
	j.wantEnd(t, 0)
	want(t, "the rest", string(j.logs(t, l.Size, 100).Data), "two\n")
}

func jobClosesOutput(t *testing.T, s jobSubject) {
	e := s.start(t, "echo before; exec >&- 2>&- <&-; sleep 0.2; touch done; exit 7").wantEnd(t, 7)
	want(t, "printed", string(e.Tail), "before\n")
	want(t, "files", s.sh(t, "ls"), "done")
}
