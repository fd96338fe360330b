package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
)

func TestASecondServerOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := embedded.Options{DataDir: dir, Port: -1}
	s := testwait.Must(embedded.Start(t.Context(), o))(t)
	_, err := embedded.Start(t.Context(), o)
	if !errors.Is(err, schemas.ErrConflict) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second server: %v", err)
	}
	s.Shutdown()
	s.Shutdown()
	s = testwait.Must(embedded.Start(t.Context(), o))(t)
	if s.URL() != "" {
		t.Errorf("URL %q without a listener", s.URL())
	}
	testwait.OK(t, s.Healthy())
	s.Shutdown()
	if s.Healthy() == nil {
		t.Error("a stopped server is healthy")
	}
}

func TestServerOptionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testwait.OK(t, os.WriteFile(file, nil, 0o600))
	listening := testwait.Must(embedded.Start(t.Context(), embedded.Options{DataDir: t.TempDir()}))(t)
	defer listening.Shutdown()
	var port int
	if _, err := fmt.Sscanf(listening.URL(), "nats://127.0.0.1:%d", &port); err != nil || port == 0 {
		t.Fatalf("URL %q", listening.URL())
	}
	for name, tc := range map[string]struct {
		o    embedded.Options
		want schemas.Code
	}{
		"no directory": {embedded.Options{}, schemas.Invalid},
		"a file":       {embedded.Options{DataDir: file}, schemas.Denied},
		"durability":   {embedded.Options{DataDir: t.TempDir(), Durability: "never"}, schemas.Invalid},
		"port in use":  {embedded.Options{DataDir: t.TempDir(), Port: port}, schemas.Conflict},
	} {
		if s, err := embedded.Start(t.Context(), tc.o); schemas.CodeOf(err) != tc.want {
			t.Errorf("%s: %v; want %s", name, err, tc.want)
			if s != nil {
				s.Shutdown()
			}
		}
	}
}
