//go:build linux

package local_test

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/local"
)

// TestABoxHasTheLimitsOfItsOptions: what /tmp holds, how large a file is, how many processes there are and how many files
// one has open end where the options say, and not where the defaults do.
func TestABoxHasTheLimitsOfItsOptions(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", func(o *local.Options) {
		o.Tmp, o.FileSize, o.Processes, o.OpenFiles = 8<<20, 4<<20, 70, 100
	})
	for name, c := range map[string]struct{ script, says string }{
		"/tmp":       {`for i in 1 2 3; do head -c 3M /dev/zero >/tmp/f$i; done; df --output=size -m /tmp | tail -1; du -sm /tmp`, "8 8 /tmp"},
		"a file":     {`trap '' XFSZ; head -c 9M /dev/zero >big; stat -c %s big`, "4194304"},
		"open files": {`ulimit -Hn`, "100"},
		"processes":  {`[ "$(ulimit -Su)" -lt 100 ] && echo fewer`, "fewer"}, // beside 70 those that the box itself needs
	} {
		res, err := p.Run(t.Context(), command(c.script))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := strings.Join(strings.Fields(string(res.Stdout)), " "); !strings.HasPrefix(got, c.says) {
			t.Errorf("%s: %q, not %q (%s)", name, got, c.says, res.Stderr)
		}
	}
}
