package supervisor

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
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

// TestMarkedProcessesAreFound by either grep: busybox's reads no further than to the first NUL.
func TestMarkedProcessesAreFound(t *testing.T) {
	t.Parallel()
	functions, _, _ := strings.Cut(program, "\nmain \"$@\"\n")
	const script = `
grep() { "$tool" "$@"; }
tool=$1 instance=$2 marked='' left=()
env -i FIRST=1 SANDJET_JOB="$instance" LAST=1 sleep 60 &
for ((i = 0; i < 500 && ${#left[@]} == 0; i++)); do find_left '' && pause 1; done
kill -KILL $!
printf '%s\n' "$!" "${left[@]}"`
	busybox := filepath.Join(t.TempDir(), "grep")
	if path, err := exec.LookPath("busybox"); err != nil {
		busybox = "" // where its absence counts, the suite of boxes says so
	} else if err := os.Symlink(path, busybox); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"/bin/grep", busybox} {
		if tool == "" {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", functions+script, "bash", tool, rand.Text()).Output()
		if pids := strings.Fields(string(out)); err != nil || len(pids) != 2 || pids[0] != pids[1] {
			t.Errorf("by %s: %v, %q", tool, err, out)
		}
	}
}
