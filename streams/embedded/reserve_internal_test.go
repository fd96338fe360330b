package embedded

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheReserveIsGivenBackBeforeTheDiskIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		held         bool
		before, free int64
		want         reserving
	}{
		"much room":                           {false, 1 << 40, 1 << 40, reserveMake},
		"room for it and more":                {false, 0, reserveAgain, reserveMake},
		"a small disk":                        {false, reserveAgain, reserveAgain - 1, reserveLeave},
		"it is there":                         {true, 1 << 40, 1 << 40, reserveLeave},
		"little room":                         {true, leastRoom, leastRoom, reserveLeave},
		"no room":                             {true, leastRoom - 1, leastRoom - 1, reserveGive},
		"nothing is left":                     {true, 0, 0, reserveGive},
		"it is just being filled":             {true, 1 << 30, leastRoom - 1, reserveLeave},
		"the last of it is just being filled": {true, 1, 0, reserveLeave},
		"it was given back":                   {false, 0, leastRoom + reserveSize, reserveLeave},
		"it was given back, and is gone":      {false, 0, 0, reserveLeave},
	} {
		if got := reserveStep(c.held, c.before, c.free); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if reserveSize < leastRoom+1 {
		t.Error("with it no log starts")
	}
}

// TestAReserveThatCannotBeMadeIsTriedAgain each minute, with one line of the log each time.
func TestAReserveThatCannotBeMadeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		s := &Server{dir: &storeDir{path: t.TempDir()}, log: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		if err := os.Mkdir(s.dir.reserveFile(), 0o700); err != nil { // in the way
			t.Fatal(err)
		}
		look := func(seconds int) {
			for range seconds {
				s.followReserve()
				time.Sleep(time.Second)
			}
		}
		look(90)
		if n := bytes.Count(lines.Bytes(), []byte("\n")); n != 2 {
			t.Errorf("%d lines in 90 s, want 2:\n%s", n, &lines)
		}
		if err := os.Remove(s.dir.reserveFile()); err != nil {
			t.Fatal(err)
		}
		look(60)
		if info, err := os.Lstat(s.dir.reserveFile()); err != nil || info.Size() != reserveSize {
			t.Errorf("no reserve a minute later: %v", err)
		}
	})
}
