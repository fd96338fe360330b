//go:build linux

package egresstest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// The secrets of [Sandboxes.TestCredentials].
const (
	Secret     = "sk-live-0123456789abcdef"
	NextSecret = "sk-live-the-one-after" //nolint:gosec // made up
)

// Bank is a server that requires a key, and records the keys that it has received.
type Bank struct {
	mu    sync.Mutex
	shown []string
}

// NewBank returns a bank at https://api.example.com/, whose answers contain the key received.
func NewBank(w *World) *Bank {
	b := &Bank{}
	w.Web("api.example.com", "93.184.216.40", true, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		b.mu.Lock()
		b.shown = append(b.shown, req.Header.Get("Authorization"))
		b.mu.Unlock()
		_, _ = fmt.Fprintf(rw, "%s your key is %s\n", req.Proto, req.Header.Get("Authorization")) //nolint:gosec // plain text for a test
	}))
	return b
}

// Shown returns the keys that the server has received, in order.
func (b *Bank) Shown() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.shown)
}

// Bound returns the network of [Sandboxes.TestCredentials].
func Bound() schemas.Network {
	return schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"*.example.com", "example.org"},
		Credentials: map[string][]string{"API_KEY": {"api.example.com"}}}
}

// WithKey returns a command with a network and a key in its environment.
func (s Sandboxes) WithKey(n schemas.Network, key, script string) providers.Command {
	cmd := s.With(n, script)
	cmd.Env = map[string]string{"API_KEY": key, "CI": "1"}
	cmd.Spec.Env = cmd.Env
	return cmd
}

// Ask is a script that asks a [Bank] by curl.
const Ask = `curl -sS -m 20 -H "Authorization: Bearer $API_KEY" https://api.example.com/ || exit 1
`

// AskPython is one that asks by python3, where there is one, and says so in words that it does not have itself.
const AskPython = `if command -v python3 >/dev/null; then python3 - <<'EOF' || exit 1
import os, urllib.request
r = urllib.request.Request("https://api.example.com/", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
print(urllib.request.urlopen(r, timeout=20).read().decode())
EOF
echo "python3: $((40 + 2))"; fi
`

// TestCredentials runs commands that use a secret of which they only see a placeholder: in a sandbox of their own, in a persistent one and
// in a job. The world of s contains bank, its provider trusts the world's certificates, and log receives all that the provider logs.
func (s Sandboxes) TestCredentials(t *testing.T, bank *Bank, log fmt.Stringer) {
	t.Helper()
	p, n := s.Provider, Bound()
	if !providers.ProfileOf(p).Credentials {
		t.Error("the profile does not say that it keeps credentials")
	}
	var all strings.Builder
	run := func(cmd providers.Command) string {
		t.Helper()
		res, err := p.Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&all, "%+v %s %s\n", res, res.Stdout, res.Stderr)
		return string(res.Stdout) + string(res.Stderr)
	}
	// What is seen of it in the sandbox is what stands for it: in variables, of all processes, and in what the server says.
	said := run(s.WithKey(n, Secret, Ask+AskPython+`env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'
cat "$SSL_CERT_FILE" | grep -c BEGIN; cat /etc/sandjet/*.pem | grep -c PRIVATE; ulimit -c; ls -ln /etc/sandjet
echo x >>/etc/sandjet/certificates.pem || echo closed`))
	for _, want := range []string{" your key is Bearer " + strings.Repeat("*", len(Secret)), "API_KEY=sjsec_", "CI=1",
		"GIT_SSL_CAINFO=/etc/sandjet/certificates.pem", "\n0\n", "closed"} {
		if !strings.Contains(said, want) {
			t.Errorf("the sandbox says %s: want %q", said, want)
		}
	}
	asked := 1
	if strings.Contains(said, "python3: 42") {
		asked++
	}
	// A program that trusts other certificates only is refused, and the refusal says why.
	if said := run(s.WithKey(n, Secret, `unset SSL_CERT_FILE CURL_CA_BUNDLE; `+Ask)); !strings.Contains(said,
		"sandjet: network: TLS with api.example.com:443 failed: a credential is bound to this host") {
		t.Errorf("without trust: %s", said)
	}
	cmd := s.WithKey(n, "short", "true")
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Invalid || res.Started {
		t.Errorf("a value that cannot be bound: %v", err)
	}
	all.WriteString(s.keepCredentials(t, run))
	want := append(slices.Repeat([]string{"Bearer " + Secret}, asked+1), "Bearer "+NextSecret, "Bearer "+NextSecret)
	if got := bank.Shown(); !slices.Equal(got, want) {
		t.Errorf("the server was shown %q, want %q", got, want)
	}
	for _, secret := range []string{Secret, NextSecret} {
		if strings.Contains(all.String()+log.String(), secret) {
			t.Errorf("%s is in what the sandbox or the log said:\n%s\n%s", secret, all.String(), log)
		}
	}
}

// keepCredentials is the part of the test for a persistent sandbox, a value that changes meanwhile, and a job. It returns the job's
// output.
func (s Sandboxes) keepCredentials(t *testing.T, run func(providers.Command) string) (said string) {
	t.Helper()
	p, n := s.Provider, Bound()
	reserver, _ := providers.As[providers.Reserver](p)
	starter, ok := providers.As[providers.JobStarter](p)
	if !ok || reserver == nil {
		t.Fatal("the provider keeps no sandboxes, or has no jobs")
	}
	cmd := s.WithKey(n, Secret, Ask+`echo "$API_KEY" >key`)
	ref, err := reserver.Reserve(t.Context(), "credentials", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reserver.Release(context.Background(), ref); err != nil {
			t.Error(err)
		}
	}()
	cmd.Sandbox = ref
	run(cmd)
	cmd = s.WithKey(n, NextSecret, Ask+`[ "$API_KEY" = "$(cat key)" ] && echo the same`)
	cmd.Sandbox = ref
	if said := run(cmd); !strings.Contains(said, "the same") {
		t.Errorf("what stands for the secret has changed: %s", said)
	}
	job, err := starter.StartJob(t.Context(), schemas.NewJobID(), cmd, providers.JobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if said = s.endOf(t, job); !strings.Contains(said, "the same") {
		t.Errorf("the job said %q", said)
	}
	// Other bindings are another sandbox.
	other := n
	other.Credentials = map[string][]string{"API_KEY": {"www.example.com"}}
	cmd.Network, cmd.Spec.Network = other, other
	if _, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under other bindings: %v", err)
	}
	return said
}

// endOf waits for the end of a job and returns its output.
func (s Sandboxes) endOf(t *testing.T, job schemas.JobRef) string {
	t.Helper()
	const patience, pause = time.Minute, 50 * time.Millisecond
	control, ok := providers.As[providers.JobController](s.Provider)
	if !ok {
		t.Fatal("the provider does not look after jobs")
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if st, err := control.JobStatus(t.Context(), job); err == nil && !st.Running {
			return string(st.End.Tail)
		}
	}
	t.Fatal("the job does not end")
	return ""
}
