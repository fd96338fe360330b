package kubernetes

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sandjet/sandjet/schemas"
)

// boot reads a program that ends with NUL from standard input and becomes it. Nothing else of a run is in the arguments
// of an exec, which the cluster logs.
const boot = `IFS= LC_ALL=C read -r -d '' p && eval "$p"`

// exec runs boot in a pod: over a WebSocket, or over SPDY if the server or a proxy does not support that. The error says how the stream
// ended; for a program with a nonzero exit code it contains that code.
func (a *api) exec(ctx context.Context, pod string, stdin io.Reader, stdout, stderr io.Writer) error {
	base, _, err := rest.DefaultServerUrlFor(a.config)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "exec", "the cluster's address cannot be used", err)
	}
	u := base.JoinPath("api", "v1", "namespaces", a.namespace, "pods", pod, "exec")
	u.RawQuery = url.Values{
		"container": {container}, "command": {"bash", "-c", boot}, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	ws, err := remotecommand.NewWebSocketExecutor(a.config, http.MethodGet, u.String())
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "exec", "the cluster's configuration cannot be used", err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(a.config, http.MethodPost, u)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "exec", "the cluster's configuration cannot be used", err)
	}
	e, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return schemas.Wrap(schemas.Internal, "exec", "no way to run commands in the cluster", err)
	}
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// input is the standard input of a program: its data, and its end after finish.
type input struct {
	mu   sync.Mutex
	rest []byte
	all  bool // everything was taken by the stream: the program may have it
	done chan struct{}
	once sync.Once
	said bool
}

func newInput(data []byte) *input { return &input{rest: data, done: make(chan struct{})} }

// Read returns the data and then blocks until finish is called.
func (i *input) Read(b []byte) (int, error) {
	i.mu.Lock()
	if len(i.rest) > 0 {
		n := copy(b, i.rest)
		i.rest = i.rest[n:]
		i.all = len(i.rest) == 0
		i.mu.Unlock()
		return n, nil
	}
	said := i.said
	i.said = true
	i.mu.Unlock()
	<-i.done
	if said {
		return 0, io.EOF
	}
	return copy(b, "\n"), nil
}

// finish ends Read. It may be called more than once.
func (i *input) finish() { i.once.Do(func() { close(i.done) }) }

// sent reports whether the stream has read all data, so that the program may have started.
func (i *input) sent() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all
}
