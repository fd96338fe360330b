package runfs

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"
)

const (
	changed = " 1795873461 2026-11-28 13:44:21.1 +0000"
	found   = "= 81a4 3 77 1 1795873460 2026-11-28 13:44:20.844457934 +0000 1795873461 2026-11-28 13:44:21.000000009\n"
)

func answered(lines string) string { return "\nsandjet M ok\n" + lines + "sandjet M .\n" }

// TestAnAnswerIsReadStrictly: what a run prints is an answer as a whole, or none.
func TestAnAnswerIsReadStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"noise" + answered(found+"-\nYWJj\n") + "noise": nil,
		answered(""):                               nil,
		"sandjet M ok\nsandjet M .\n":              nil,
		"":                                         errNoReply,
		"sandjet N ok\nsandjet N .\n":              errNoReply,
		"\nsandjet M ok\n" + found:                 errNoReply,
		"\nsandjet M ok\nsandjet M .":              errNoReply,
		answered("hello\n"):                        errGarbled,
		answered("= x\n"):                          errGarbled,
		answered("! surprise\n"):                   errGarbled,
		answered("-\n*\n"):                         errGarbled,
		answered("z\nYWJj\n"):                      errGarbled,
		answered(found + "# 00\n"):                 errGarbled,
		answered("= 81a4 3 77 1 1 2026-11-28 1\n"): errGarbled,
		answered("= 81a4 -3 77 1 1 2026-11-28 1 1 2026-11-28 1\n"):    errGarbled,
		answered("= 81a4 3 77 1 1 2026-11-28 1 1 2026-11-28 1 a b\n"): errGarbled,
	} {
		if r, err := parse("M", []byte(text)); !errors.Is(err, want) || err == nil && r.word != "ok" {
			t.Errorf("%q: %+v, %v, want %v", text, r, err, want)
		}
	}
	r, err := parse("M", []byte(answered(found+"# "+strings.Repeat("A0", 32)+"\n! not_found\nmore\n-\nYWJj\nZGVm\n")))
	if err != nil || len(r.found) != 2 || r.found[1].err == nil || !r.more || string(r.content) != "abcdef" {
		t.Fatalf("%+v, %v", r, err)
	}
	i := r.found[0].info
	if i.Size() != 3 || i.Mode() != 0o644 || i.Inode != 77 || !i.ModTime().Equal(time.Unix(1795873460, 844457934)) ||
		!i.Changed.Equal(time.Unix(1795873461, 9)) || len(r.sums) != 1 || r.sums[0] != strings.Repeat("a0", 32) {
		t.Errorf("%+v", r)
	}
}

// TestAListingThatIsCutOffSaysSo, and its last, broken entry is none.
func TestAListingThatIsCutOffSaysSo(t *testing.T) {
	t.Parallel()
	dir, file := "//41ed 4096 5 2 1 2026-11-28 13:44:20.844457934 +0000"+changed+",./d\n",
		"//81a4 3 6 1 1 2026-11-28 13:44:20.1 +0000"+changed+",./d/a,./b\nc\n"
	all, whole, err := entries([]byte(dir + file + "//.\n"))
	if err != nil || !whole || len(all) != 2 || all[0].path != "d" || all[0].info.Mode() != fs.ModeDir|0o755 || all[1].path != "d/a,./b\nc" {
		t.Errorf("%+v, %v, %v", all, whole, err)
	}
	for n := range dir + file {
		all, whole, err := entries([]byte((dir + file)[:n]))
		if whole || len(all) > 1 || err != nil && n > 1 {
			t.Errorf("%d bytes: %+v, %v, %v", n, all, whole, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "/x", "a//b", "a/", "a/../b", "a\x00"} {
		bad := strings.Replace(dir, "./d", "./"+name, 1)
		if all, _, err := entries([]byte(bad + "//.\n")); err == nil {
			t.Errorf("%q: %+v", name, all)
		}
	}
	if all, whole, err := entries([]byte(strings.Repeat(dir, mostEntries+9) + "//.\n")); len(all) != mostEntries || whole || err != nil {
		t.Errorf("%d entries, %v, %v", len(all), whole, err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(strings.Repeat(dir, 1000))) // to memory
	_ = z.Flush()
	b, err := content([]byte(base64.StdEncoding.EncodeToString(packed.Bytes())), true)
	if all, whole, lerr := entries(b); err != nil || lerr != nil || whole || len(all) != 999 {
		t.Errorf("packed: %d, %v, %v, %v", len(all), whole, err, lerr)
	}
}

// FuzzAnswer: nothing that a sandbox prints breaks the worker, or becomes more than its bounds.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(answered(found + "more\n-\nYWJj\n")))
	f.Add([]byte(answered("! not_found\nz\nH4sIAAAAAAAAA0tMSgYAwkEkNQMAAAA=\n")))
	f.Add([]byte("//81a4 3 6 1 1 2026-11-28 13:44:20.1 +0000" + changed + ",./a\n//.\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		r, err := parse("M", out)
		if err != nil && !errors.Is(err, errNoReply) && !errors.Is(err, errGarbled) {
			t.Errorf("an error of another kind: %v", err)
		}
		if len(r.content) > max(mostListed, len(out)) {
			t.Errorf("%d bytes of content of %d", len(r.content), len(out))
		}
		for _, o := range r.found {
			if o.err == nil && o.info.Size() < 0 {
				t.Errorf("%+v", o)
			}
		}
		for _, list := range [][]byte{out, r.content} {
			all, _, _ := entries(list) // its error is no matter: it returns
			for _, e := range all {
				if e.path == "" || strings.Contains(e.path, "//") || strings.HasPrefix(e.path, "/") {
					t.Errorf("the path %q", e.path)
				}
			}
		}
	})
}
