//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func TestPickChoosesWhatFollowsOneAnother(t *testing.T) {
	t.Parallel()
	whole := []segment{{0, 10}, {10, 10}, {20, 5}}
	later := []segment{{10, 10}, {20, 5}}
	holed := []segment{{0, 10}, {15, 10}} // 5 bytes were refused by the disk
	for name, c := range map[string]struct {
		segments      []segment
		total         int64
		offset, limit int64
		at            int64
		pieces        []piece
	}{
		"nothing printed":              {nil, 0, 0, 9, 0, nil},
		"nothing kept":                 {nil, 30, 5, 9, 30, nil},
		"the beginning":                {whole, 25, 0, 4, 0, []piece{{whole[0], 0, 4}}},
		"across segments":              {whole, 25, 8, 14, 8, []piece{{whole[0], 8, 2}, {whole[1], 0, 10}, {whole[2], 0, 2}}},
		"to the end":                   {whole, 25, 22, 99, 22, []piece{{whole[2], 2, 3}}},
		"at the end":                   {whole, 25, 25, 99, 25, nil},
		"behind the end":               {whole, 25, 26, 99, 25, nil},
		"the last ones":                {whole, 25, -1, 7, 18, []piece{{whole[1], 8, 2}, {whole[2], 0, 5}}},
		"the last ones are all":        {whole, 25, -1, 99, 0, []piece{{whole[0], 0, 10}, {whole[1], 0, 10}, {whole[2], 0, 5}}},
		"no limit left":                {whole, 25, 3, 0, 3, nil},
		"the beginning is gone":        {later, 25, 3, 4, 10, []piece{{later[0], 0, 4}}},
		"up to a hole":                 {holed, 25, 2, 99, 2, []piece{{holed[0], 2, 8}}},
		"from a hole on":               {holed, 25, 12, 4, 15, []piece{{holed[1], 0, 4}}},
		"the last ones begin in one":   {holed, 25, -1, 12, 15, []piece{{holed[1], 0, 10}}},
		"at a border":                  {whole, 25, 10, 3, 10, []piece{{whole[1], 0, 3}}},
		"the end was refused":          {whole, 40, 30, 9, 40, nil},
		"the end was refused, at last": {whole, 40, -1, 20, 20, []piece{{whole[2], 0, 5}}},
	} {
		if at, pieces := pick(c.segments, c.total, c.offset, c.limit); at != c.at || !slices.Equal(pieces, c.pieces) {
			t.Errorf("%s: %v at %d, want %v at %d", name, pieces, at, c.pieces, c.at)
		}
	}
}

func TestLogKeepsTheEndAndCountsAll(t *testing.T) {
	t.Parallel()
	l := &jobLog{dir: t.TempDir()}
	const most = schemas.MaxJobOutput + 3*segmentSize/2
	block := make([]byte, 1<<20)
	for i := range most / len(block) {
		block[0] = byte(i)
		if err := l.add(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.add([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	check := func(l *jobLog) {
		t.Helper()
		if total, truncated := l.measure(); total != most+7 || !truncated {
			t.Errorf("%d bytes, truncated %v", total, truncated)
		}
		data, at, _, err := l.read(-1, 10)
		if err != nil || string(data) != "\x00\x00\x00the end" || at != most-3 {
			t.Errorf("the end is %q at %d, %v", data, at, err)
		}
		data, at, total, err := l.read(0, 3)
		if err != nil || at%segmentSize != 0 || data[0] != byte(at>>20) || total-at > schemas.MaxJobOutput || total-at < schemas.MaxJobOutput/2 {
			t.Errorf("the beginning is %q at %d of %d, %v", data, at, total, err)
		}
		data, at, _, err = l.read(most-segmentSize/2-1, 3) // across two files
		if err != nil || at != most-segmentSize/2-1 || !bytes.Equal(data, []byte{0, byte((most - segmentSize/2) >> 20), 0}) {
			t.Errorf("%q at %d, %v", data, at, err)
		}
	}
	check(l)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openLog(l.dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	check(again)
}

func TestLogContinuesAfterARefusedWrite(t *testing.T) {
	t.Parallel()
	l := &jobLog{dir: t.TempDir()}
	refuse := func() { // the file is open for reading only
		t.Helper()
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if err := l.begin(); err != nil {
			t.Fatal(err)
		}
		name := l.file.Name()
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if l.file, err = os.Open(name); err != nil {
			t.Fatal(err)
		}
		if err := l.add([]byte("lost")); err == nil {
			t.Fatal("it was taken")
		}
	}
	must := func(data string) {
		t.Helper()
		if err := l.add([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	must("one")
	for range 2 * mostSegments {
		refuse()
	}
	must("two")
	const lost = 2 * mostSegments * 4
	if total, truncated := l.measure(); total != lost+6 || !truncated {
		t.Errorf("%d bytes were printed, truncated %v", total, truncated)
	}
	for offset, want := range map[int64]string{0: "one", 2: "e", 3: "two", 5: "two", lost + 4: "wo", -1: "two"} {
		if data, _, _, err := l.read(offset, 10); err != nil || string(data) != want {
			t.Errorf("at %d: %q, %v; want %q", offset, data, err, want)
		}
	}
}

func TestRetireKeepsTheYoungest(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	many := func(n int, age time.Duration, bytes int64) []endedJob {
		var all []endedJob
		for i := range n {
			all = append(all, endedJob{at: now.Add(-age - time.Duration(i)*time.Second), bytes: bytes})
		}
		return all
	}
	for name, c := range map[string]struct {
		ended         []endedJob
		kept, emptied int
	}{
		"none":          {nil, 0, 0},
		"young":         {many(10, time.Hour, 0), 10, 0},
		"old":           {many(10, jobAge, 0), 1, 0},
		"many":          {many(mostJobs+5, 0, 0), mostJobs, 0},
		"long logs":     {many(200, 0, schemas.MaxJobOutput), 200, 200 - int(mostJobBytes/2/schemas.MaxJobOutput)},
		"young and old": {append(many(3, 30*24*time.Hour, 1), many(4, 0, 1)...), 4, 0},
	} {
		n := len(c.ended)
		kept, old, emptied := retire(c.ended, now, mostJobBytes, mostJobBytes/2, nil)
		if len(kept) != c.kept || len(kept)+len(old) != n || len(emptied) != c.emptied {
			t.Errorf("%s: %d are kept and %d are not, %d without output, want %d of %d, %d", name, len(kept), len(old), len(emptied),
				c.kept, n, c.emptied)
		}
		for _, o := range old {
			if slices.ContainsFunc(kept, func(k endedJob) bool { return k.at.Before(o.at) }) {
				t.Errorf("%s: an older one than %v is kept", name, o.at)
			}
		}
	}
}

// TestOneAccountsJobsAreItsOwnLoss: who keeps the most loses the oldest, by number and by bytes, however old those of others are.
func TestOneAccountsJobsAreItsOwnLoss(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	many := func(account schemas.AccountID, n int, age time.Duration, bytes int64) (all []endedJob) {
		for i := range n {
			all = append(all, endedJob{account: account, at: now.Add(-age - time.Duration(i)*time.Second), bytes: bytes})
		}
		return all
	}
	const large = schemas.MaxJobOutput
	for name, c := range map[string]struct {
		ended   []endedJob
		running map[schemas.AccountID]int64
		kept    map[schemas.AccountID]int // with their outputs
	}{
		"a flood of jobs": {
			slices.Concat(many("quiet", 10, 6*24*time.Hour, 1), many("flood", mostJobs+500, 0, 1)), nil,
			map[schemas.AccountID]int{"quiet": 10, "flood": mostJobs - 10},
		},
		"a flood of output": {
			slices.Concat(many("quiet", 3, 6*24*time.Hour, large), many("flood", 300, 0, large)), nil,
			map[schemas.AccountID]int{"quiet": 3, "flood": int(mostJobBytes / 2 / large)},
		},
		"a flood of output while it runs": {
			slices.Concat(many("quiet", 3, 6*24*time.Hour, large), many("flood", 10, 0, large)),
			map[schemas.AccountID]int64{"flood": mostJobBytes/2 - 4*large},
			map[schemas.AccountID]int{"quiet": 3, "flood": 4},
		},
		"others fill it": {
			slices.Concat(many("quiet", 3, 6*24*time.Hour, large), many("flood", 60, 0, large)),
			map[schemas.AccountID]int64{"one": mostJobBytes / 2, "two": mostJobBytes/2 - 50*large},
			map[schemas.AccountID]int{"quiet": 3, "flood": 47},
		},
		"two floods": {
			slices.Concat(many("quiet", 10, 6*24*time.Hour, 1), many("one", mostJobs, time.Hour, 1), many("two", mostJobs, 0, 1)), nil,
			map[schemas.AccountID]int{"quiet": 10, "one": (mostJobs - 10) / 2, "two": (mostJobs - 10) / 2},
		},
		"age counts for all": {many("quiet", 10, 8*24*time.Hour, 1), nil, map[schemas.AccountID]int{}},
	} {
		n := len(c.ended)
		kept, old, emptied := retire(c.ended, now, mostJobBytes, mostJobBytes/2, c.running)
		got := map[schemas.AccountID]int{}
		for _, e := range kept {
			if e.bytes > 0 {
				got[e.account]++
			}
		}
		if !maps.Equal(got, c.kept) || len(kept)+len(old) != n {
			t.Errorf("%s: kept %v and let %d of %d go, want %v", name, got, len(old), n, c.kept)
		}
		for _, o := range slices.Concat(old, emptied) {
			if slices.ContainsFunc(kept, func(k endedJob) bool { return k.bytes > 0 && k.account == o.account && k.at.Before(o.at) }) {
				t.Errorf("%s: an older one of %s than %v is kept", name, o.account, o.at)
			}
		}
	}
}

// TestNoMoreGivesWayThanIsMissing, although one account keeps nearly all: its share of all outputs is not what is asked for here.
func TestNoMoreGivesWayThanIsMissing(t *testing.T) {
	t.Parallel()
	const large = 10 << 20
	d := &jobDirs{dir: t.TempDir()}
	for i := range 20 {
		d.ended = append(d.ended, endedJob{name: strconv.Itoa(i), account: "one", at: time.Unix(int64(i), 0), bytes: large})
	}
	d.ended = append(d.ended, endedJob{name: "other", account: "other", bytes: large})
	for range 2 {
		if freed := d.empty(large+1, nil); freed != 2*large {
			t.Errorf("%d bytes were freed, want %d", freed, 2*large)
		}
	}
	full := 0
	for _, e := range d.ended {
		if e.bytes > 0 {
			full++
		}
	}
	if len(d.ended) != 21 || full != 17 {
		t.Errorf("of %d ended jobs, %d have their output, want 17 of 21", len(d.ended), full)
	}
}

func TestEndsComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := providers.JobEnd{
		ExitCode: 137, Stopped: true, TimedOut: true, OOMKilled: true, Lost: true, Reason: "r", ChildrenLeft: 2,
		LogBytes: 1 << 40, LogTruncated: true,
		Finished: time.Date(2030, 1, 1, 0, 0, 0, 1, time.UTC),
	}
	if err := writeEnd(dir, recordOf(e)); err != nil {
		t.Fatal(err)
	}
	got, err := readEnd(dir)
	if err != nil || got != recordOf(e) || got.end().Reason != "r" || got.end().LogBytes != e.LogBytes {
		t.Errorf("%+v came back as %+v, %v", e, got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, endFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readEnd(dir); err != nil || !got.Lost || got.Reason == "" || got.Finished.IsZero() {
		t.Errorf("a damaged end is %+v, %v", got, err)
	}
}

func TestOldJobsAreRemoved(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	d, err := openJobs(state)
	if err != nil {
		t.Fatal(err)
	}
	box := schemas.Ref{ID: "b", Epoch: "e"}
	names := map[string]time.Time{}
	for _, at := range []time.Time{time.Now().Add(-2 * jobAge), time.Now()} {
		id := schemas.NewJobID()
		name := jobName(box, id)
		f, err := d.begin(name, startRecord{ID: id, Sandbox: box, Instance: schemas.NewID("")})
		if err != nil {
			t.Fatal(err)
		}
		if err := writeEnd(d.path(name), endRecord{Finished: at}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		names[name] = at
	}
	if _, err := openJobs(state); err != nil {
		t.Fatal(err)
	}
	for name, at := range names {
		if _, err := os.Stat(d.path(name)); (err == nil) != (time.Since(at) < jobAge) {
			t.Errorf("the job that ended at %v: %v", at, err)
		}
	}
}

// FuzzEndRecord reads damaged records of ends: a record that is accepted says the same when it is written and read again.
func FuzzEndRecord(f *testing.F) {
	f.Add([]byte(`{"exit_code":1,"log_bytes":2,"finished":"2030-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"log_bytes":-1,"finished":"2030-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeEnd(data)
		if err != nil {
			return
		}
		if r.LogBytes < 0 || r.ChildrenLeft < 0 || r.Finished.IsZero() {
			t.Errorf("%+v was taken", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := decodeEnd(again); err != nil || !s.Finished.Equal(r.Finished) || recordOf(s.end()) != s {
			t.Errorf("%+v came back as %+v, %v", r, s, err)
		}
	})
}
