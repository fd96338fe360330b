//go:build linux

package local_test

import (
	"bytes"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/providers/local"
)

// locked is a log that many write to.
type locked struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestCredentialsL3: a box works with a secret that it does not have.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestCredentialsL3(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		longtest.Missing(t, "no curl on this host")
	}
	w := egresstest.New(t)
	bank := egresstest.NewBank(w)
	var log locked
	p := networked(t, w, func(o *local.Options) {
		o.Roots, o.Log = w.Certs, slog.New(slog.NewTextHandler(io.MultiWriter(&log), &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	sandboxes(w, p).TestCredentials(t, bank, &log)
}
