package supervisor

import (
	"os/exec"
	"strings"
	"testing"
)

// TestMindersLastWordIsRead has the minder write the job's exit code and end between two looks at it.
func TestMindersLastWordIsRead(t *testing.T) {
	t.Parallel()
	functions, _, ok := strings.Cut(program, "\nmain \"$@\"\n")
	if !ok {
		t.Fatal("the program does not end with its main")
	}
	const script = `
alive() { printf '9\n' >"$dir/code"; return 1; }
kill_left() { :; }
dir=$1 code='' stopped=0 timed_out=0 lost=0 reason='' children=0
conclude
cat "$dir/exit"`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", functions+script, "bash", t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(string(out), "code 9\n") || !strings.Contains(string(out), "\nlost 0\n") {
		t.Errorf("the end is put down as %q", out)
	}
}
