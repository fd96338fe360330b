//go:build linux

package confine

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// kernelNumbers reads the system call numbers of an architecture from golang.org/x/sys/unix, which
// generates them from the kernel's own headers.
func kernelNumbers(t *testing.T, goarch string) map[string]int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatalf("find golang.org/x/sys/unix: %v", err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(out)), "zsysnum_linux_"+goarch+".go"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	numbers := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && strings.HasPrefix(fields[0], "SYS_") {
			n, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			numbers[strings.ToLower(strings.TrimPrefix(fields[0], "SYS_"))] = n
		}
	}
	if len(numbers) < 300 {
		t.Fatalf("only %d system calls found for %s", len(numbers), goarch)
	}
	return numbers
}

func TestNumbersAreTheKernels(t *testing.T) {
	table := append(rules(), SeccompOptions{DenyUnseen: true, DenySysV: true}.rows()...)
	for goarch, arch := range map[string]uint32{"amd64": archAMD64, "arm64": archARM64} {
		kernel := kernelNumbers(t, goarch)
		for _, r := range table {
			want, ok := kernel[r.name]
			if !ok {
				want = none
			}
			if got := r.number(arch); got != want {
				t.Errorf("%s on %s: %d in the table, %d in the kernel", r.name, goarch, got, want)
			}
		}
		if kernel["file_setattr"] != newest {
			t.Errorf("newest is %d, file_setattr on %s %d", newest, goarch, kernel["file_setattr"])
		}
	}
}

func TestTableIsSound(t *testing.T) {
	names := map[string]bool{}
	numbers := map[[2]int]string{}
	for _, r := range append(rules(), SeccompOptions{DenyUnseen: true, DenySysV: true}.rows()...) {
		if names[r.name] {
			t.Errorf("%s is there twice: only the first row counts", r.name)
		}
		names[r.name] = true
		if r.why == "" {
			t.Errorf("%s: no reason", r.name)
		}
		if r.amd64 == none && r.arm64 == none {
			t.Errorf("%s exists nowhere", r.name)
		}
		for arch, n := range []int{r.amd64, r.arm64} {
			if n == none {
				continue
			}
			if other, ok := numbers[[2]int{arch, n}]; ok {
				t.Errorf("%s has the number of %s", r.name, other)
			}
			numbers[[2]int{arch, n}] = r.name
			if n > newest {
				t.Errorf("%s: %d is above newest", r.name, n)
			}
		}
		if r.action == inspect && len(condition(r.name, SeccompOptions{})) < 3 {
			t.Errorf("%s has no condition of its own", r.name)
		}
	}
}
