//go:build linux

package box_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/box"
	_ "github.com/sandjet/sandjet/providers/local/boxentry"
)

func TestSpawnerRefusesHostUserZero(t *testing.T) {
	if os.Geteuid() != 0 {
		return // an ordinary user's boxes are that user's
	}
	s, err := box.Launch(box.Config{Program: "/proc/self/exe", Workspaces: t.TempDir(), Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // not what is tested
	if _, err = s.Make(box.Options{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a box of host user 0: %v, want EINVAL", err)
	}
}

func TestSpawnerEndsWithItsSocket(t *testing.T) {
	s, err := box.Launch(box.Config{Program: "/proc/self/exe", Workspaces: t.TempDir(), Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Make(box.Options{HostID: 300000}); !errors.Is(err, box.ErrSpawner) {
		t.Errorf("a box of a closed spawner: %v", err)
	}
}

func TestProgramDoesNothingByItself(t *testing.T) {
	for _, args := range [][]string{{box.Name}, {box.Name, "spawn"}, {box.Name, "init"}, {box.Name, "init-closed"}} {
		cmd := &exec.Cmd{Path: "/proc/self/exe", Args: args}
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, want exit code 2", args, err)
		}
	}
}
