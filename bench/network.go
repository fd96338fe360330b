package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// askEach makes connections one after the other, writes and reads a line on each, and prints how many µs each took. It starts no process,
// so that only the network is timed.
const askEach = `for ((i = 0; i < COUNT; i++)); do
	begun=$EPOCHREALTIME
	exec 3<>"/dev/tcp/$HOST/$PORT" || exit 1
	echo ask >&3; read -r line <&3; [ "$line" = answer ] || exit 1
	exec 3>&-
	ended=$EPOCHREALTIME
	echo $((${ended/./} - ${begun/./}))
done`

// theServer is a public address that the rules of a box allow; connections to it go to a server of this process.
const theServer = "93.184.216.34"

// Network measures a request (a connection with a line each way) from a box through its relay, and the same request made directly, batch
// by batch; and how long a cold box takes with and without a network.
func Network(ctx context.Context, rounds int, o local.Options) (Report, error) {
	dir, remove, err := tempDir("sandjet-bench-network-")
	if err != nil {
		return Report{}, err
	}
	defer remove()
	server, err := answerer(ctx)
	if err != nil {
		return Report{}, err
	}
	defer server.close()
	o.StateDir, o.Workspaces, o.Pool = filepath.Join(dir, "state"), filepath.Join(dir, "workspaces"), -1
	o.Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.Restricted}
	o.Resolver = oneHost{}
	o.Dial = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.addr())
	}
	p, err := local.New(o)
	if err != nil {
		return Report{}, err
	}
	defer p.Close() //nolint:errcheck // nothing of it is kept
	network := schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"bench.example:8080"}, AllowCIDRs: []string{theServer + "/32"}}
	ref, err := p.Reserve(ctx, "bench", providers.Spec{Account: benchAccount, Network: network})
	if err != nil {
		return Report{}, err
	}
	in := func(host string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			res, err := p.Run(ctx, providers.Command{Script: askEach, Sandbox: ref, Network: network, Timeout: time.Minute,
				Spec: providers.Spec{Account: benchAccount, Network: network}, Env: map[string]string{"HOST": host, "PORT": "8080", "COUNT": "10"}})
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("exit code %d: %.200s", res.ExitCode, res.Stderr)
			}
			return res.Stdout, err
		}
	}
	directly := func(ctx context.Context) ([]byte, error) {
		host, port, _ := net.SplitHostPort(server.addr())
		cmd := exec.CommandContext(ctx, "bash", "-c", askEach)
		cmd.Env = []string{"HOST=" + host, "PORT=" + port, "COUNT=10"}
		return cmd.Output()
	}
	asks := []struct {
		name string
		run  func(context.Context) ([]byte, error)
		took []time.Duration
	}{
		{"request made directly, on the host", directly, nil},
		{"request from a box, to an address", in(theServer), nil},
		{"request from a box, to a name", in("bench.example"), nil},
	}
	boxes := []struct {
		name string
		mode schemas.Network
		took []time.Duration
	}{{"`true` in a cold box, deny-all", schemas.Network{Mode: schemas.DenyAll}, nil}, {"`true` in a cold box, restricted", network, nil}}
	for range rounds {
		for i := range asks {
			out, err := asks[i].run(ctx)
			if err != nil {
				return Report{}, fmt.Errorf("%s: %w", asks[i].name, err)
			}
			for field := range strings.FieldsSeq(string(out)) {
				us, err := strconv.Atoi(field)
				if err != nil {
					return Report{}, fmt.Errorf("%s: %w", asks[i].name, err)
				}
				asks[i].took = append(asks[i].took, time.Duration(us)*time.Microsecond)
			}
		}
		for i := range boxes {
			start := time.Now()
			if _, err := p.Run(ctx, providers.Command{Script: "true", Network: boxes[i].mode,
				Spec: providers.Spec{Account: benchAccount, Network: boxes[i].mode}}); err != nil {
				return Report{}, err
			}
			boxes[i].took = append(boxes[i].took, time.Since(start))
		}
	}
	r := Report{Title: "Requests from a box", Machine: machine()}
	for _, a := range asks {
		r.Rows = append(r.Rows, durations(a.name, time.Millisecond, a.took))
	}
	for _, b := range boxes {
		r.Rows = append(r.Rows, durations(b.name, time.Millisecond, b.took))
	}
	for _, pair := range [][2]int{{1, 0}, {2, 0}, {4, 3}} {
		a, b := r.Rows[pair[0]], r.Rows[pair[1]]
		r.Ratios = append(r.Ratios, Ratio{
			Name: a.Name + " / " + b.Name, Min: a.Min / b.Min, Median: a.Median / b.Median, Max: a.P95 / b.P95,
		})
	}
	r.Notes = append(r.Notes, "A request is a connection, a line each way, and its end, ten in a run. "+
		"Ratios are of minima, medians and 95th percentiles.")
	return r, nil
}

// oneHost resolves every name to one address.
type oneHost struct{}

func (oneHost) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(theServer)}, nil
}

// answers is a server that answers the first line of each connection with one.
type answers struct {
	listener net.Listener
	all      sync.WaitGroup
}

func answerer(ctx context.Context) (*answers, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	a := &answers{listener: l}
	a.all.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			a.all.Go(func() {
				defer c.Close() //nolint:errcheck // nothing to lose
				if _, err := c.Read(make([]byte, 16)); err == nil {
					_, _ = io.WriteString(c, "answer\n")
				}
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	return a, nil
}

func (a *answers) addr() string { return a.listener.Addr().String() }

// close closes the server after its clients have disconnected.
func (a *answers) close() {
	_ = a.listener.Close()
	a.all.Wait()
}
