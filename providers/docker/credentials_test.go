//go:build linux

package docker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
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

// ring is a worker's keys: one, by its id.
type ring string

func (r ring) Derive(id, purpose string, text []byte) (string, []byte, error) {
	if id != "" && id != string(r) {
		return "", nil, schemas.Errorf(schemas.NotFound, "the key %s is not among those of this process", id)
	}
	sum := sha256.Sum256([]byte(string(r) + "\x00" + purpose + "\x00" + string(text)))
	return string(r), sum[:], nil
}

// banked opens a provider whose containers work with a secret that they do not have.
func banked(t *testing.T, w *egresstest.World, log *locked, change func(*docker.Options)) egresstest.Sandboxes {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		longtest.Missing(t, "no curl on this host")
	}
	return networked(t, w, func(o *docker.Options) {
		o.Image, o.Roots, o.Keys = dockertest.Get(t).Image(t, dockertest.Web), w.Certs, ring("key_one")
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if change != nil {
			change(o)
		}
	})
}

// volumesOf lists the engine's volumes of an installation.
func volumesOf(t *testing.T, installation string) string {
	t.Helper()
	return dockertest.Get(t).Run(t, "volume", "ls", "-q", "--filter", "label=sandjet.installation="+installation)
}

// TestCredentials: containers work with a secret that they do not have, whether their root is read-only or not.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestCredentials(t *testing.T) {
	for name, writable := range map[string]bool{"read-only root": false, "writable root": true} {
		t.Run(name, func(t *testing.T) {
			if writable {
				longtest.Only(t, "the same with a root that calls write to")
			}
			w := egresstest.New(t)
			bank := egresstest.NewBank(w)
			var log locked
			var o docker.Options
			s := banked(t, w, &log, func(given *docker.Options) {
				given.WritableRoot = writable
				o = *given
			})
			p := s.Provider
			s.Provider = supervisor.Wrap(p, supervisor.Options{})
			s.TestCredentials(t, bank, &log)
			if b, ok := p.(docker.Backend); !ok || b.Close() != nil {
				t.Fatal("the provider is not closed")
			}
			if left := volumesOf(t, o.Installation); left != "" {
				t.Errorf("volumes are left: %s", left)
			}
		})
	}
}

// TestCredentialsOutliveTheirWorker: a job keeps the substitute of its secret, and the certificate that it trusts, when its worker has
// ended and another one serves its container.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestCredentialsOutliveTheirWorker(t *testing.T) {
	w := egresstest.New(t)
	bank := egresstest.NewBank(w)
	var log locked
	var mu sync.Mutex
	value, asked := egresstest.Secret, schemas.SandboxID("")
	var o docker.Options
	s := banked(t, w, &log, func(given *docker.Options) {
		given.Values = func(_ context.Context, _ schemas.AccountID, id schemas.SandboxID) (map[string]string, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked = id; value == "" {
				return nil, schemas.Errorf(schemas.NotFound, "there is no such sandbox")
			}
			return map[string]string{"API_KEY": value}, nil
		}
		o = *given
	})
	if b, ok := s.Provider.(docker.Backend); !ok || b.Close() != nil { // it would take over, sooner or later
		t.Fatal("the provider is not closed")
	}
	first, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Provider = supervisor.Wrap(first, supervisor.Options{})
	cmd := s.WithKey(egresstest.Bound(), egresstest.Secret, `trap 'exit 0' TERM; while :; do curl -sS -m 5 -H "Authorization: Bearer $API_KEY" `+
		`https://api.example.com/ >said 2>&1 || echo failed; sleep 0.1; done`)
	cmd.Spec.Sandbox = "sbx_credentials"
	ref, err := first.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Sandbox = ref
	starter, _ := providers.As[providers.JobStarter](s.Provider)
	job, err := starter.StartJob(t.Context(), schemas.NewJobID(), cmd, providers.JobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, "the first worker's relay", func() bool { return len(bank.Shown()) > 0 })
	inspected := dockertest.Get(t).Run(t, "inspect", ref.ID) + dockertest.Get(t).Run(t, "exec", ref.ID, "sh", "-c",
		"tr '\\0' '\\n' </proc/1/environ; cat /proc/[0-9]*/cmdline; true")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(second.Release(context.Background(), ref), second.Close()); err != nil {
			t.Error(err)
		}
	}()
	// No command runs, and the value has changed meanwhile.
	mu.Lock()
	value = egresstest.NextSecret
	mu.Unlock()
	testwait.Eventually(t, "the second worker's relay, with the new value", func() bool {
		shown := bank.Shown()
		return shown[len(shown)-1] == "Bearer "+egresstest.NextSecret
	})
	for _, got := range bank.Shown() {
		if got != "Bearer "+egresstest.Secret && got != "Bearer "+egresstest.NextSecret {
			t.Errorf("the server was shown %q", got)
		}
	}
	mu.Lock()
	if asked != "sbx_credentials" {
		t.Errorf("the values of %q were asked for", asked)
	}
	value = "" // its record is gone
	mu.Unlock()
	e := dockertest.Get(t)
	testwait.Eventually(t, "the end of the value", func() bool {
		return strings.Contains(e.Run(t, "exec", ref.ID, "cat", "/workspace/said"),
			"the value of API_KEY, which is bound to api.example.com:443, cannot be looked up")
	})
	control, _ := providers.As[providers.JobController](supervisor.Wrap(second, supervisor.Options{}))
	if st, err := control.JobStatus(t.Context(), job); err != nil || !st.Running {
		t.Errorf("the job: %+v, %v", st, err)
	}
	for _, secret := range []string{egresstest.Secret, egresstest.NextSecret} {
		for what, text := range map[string]string{"the log": log.String(), "what the engine says of the container": inspected} {
			if strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("%s is in %s: %s", secret, what, text)
			}
		}
	}
}

// TestCredentialsOfAnotherWorker: a command that one worker runs in a container whose network another one serves has the same in place
// of the secret; and a worker without the key of the container's secrets lets nothing out of it, and says which key it is.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestCredentialsOfAnotherWorker(t *testing.T) {
	w := egresstest.New(t)
	bank := egresstest.NewBank(w)
	var log locked
	var o docker.Options
	s := banked(t, w, &log, func(given *docker.Options) { o = *given })
	cmd := s.WithKey(egresstest.Bound(), egresstest.Secret, egresstest.Ask)
	reserver, _ := providers.As[providers.Reserver](s.Provider)
	ref, err := reserver.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reserver.Release(context.Background(), ref); err != nil {
			t.Error(err)
		}
	}()
	cmd.Sandbox = ref
	ok(t, s.Provider, cmd)
	open := func(keys docker.Keys) docker.Backend {
		t.Helper()
		with := o
		with.Keys = keys
		p, err := docker.Open(t.Context(), with)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	cmd.Script += `env`
	said := ok(t, open(o.Keys), cmd)
	if strings.Contains(said, egresstest.Secret) || !strings.Contains(said, "API_KEY=sjsec_") {
		t.Errorf("the other worker's command says %s", said)
	}
	if got := bank.Shown(); !slices.Equal(got, []string{"Bearer " + egresstest.Secret, "Bearer " + egresstest.Secret}) {
		t.Errorf("the server was shown %q", got)
	}
	res, err := open(ring("key_two")).Run(t.Context(), cmd)
	if schemas.CodeOf(err) != schemas.Unavailable || res.Started || !strings.Contains(err.Error(), "key_one") {
		t.Errorf("a worker without the key: %+v, %v", res, err)
	}
	without := open(nil)
	if res, err = without.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("a worker without any keys: %+v, %v", res, err)
	}
	if without.Profile().Credentials {
		t.Error("a worker without any keys says that it keeps credentials")
	}
}

// FuzzCredentialsLabel: whatever a label says, it is read or refused.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func FuzzCredentialsLabel(f *testing.F) {
	f.Add(`{"key":"key_one","nonce":"N","certificate":"MAo="}`)
	f.Add(`{"key":"key_one"}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, label string) {
		if err := docker.ReadLabel(label); err != nil && schemas.CodeOf(err) != schemas.Internal {
			t.Error(err)
		}
	})
}
