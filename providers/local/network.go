//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

// mostLogged is how many refusals of one box are logged.
const mostLogged = 20

// trialAccount is whose boxes try out what this host keeps.
const trialAccount = schemas.AccountID("acct_trial")

// usualPorts returns the ports that a box with allow-all can reach if the kernel cannot redirect connections to all ports.
func usualPorts() []uint16 { return []uint16{22, 80, 443, 8080, 8443} }

// relayed reports whether boxes of a network mode have a relay: a network namespace with the relay as the only way out.
func (p *host) relayed(mode schemas.NetworkMode) bool {
	return p.mode == box.Isolated && (mode == schemas.AllowAll || mode == schemas.Restricted)
}

// rules compiles the network rules of a box. Code: unsupported, this host cannot enforce the mode.
func (p *host) rules(n schemas.Network) (*egress.Rules, error) {
	switch {
	case n.Mode == schemas.Restricted && p.mode != box.Isolated:
		return nil, schemas.OpErrorf(schemas.Unsupported, "run",
			"this host makes no network namespaces (level %s), so it cannot keep the network mode %q: use %q (\"sandjet doctor\" explains)",
			levelOf(p.mode), n.Mode, schemas.DenyAll)
	case p.relayed(n.Mode) && p.noRelay != "":
		return nil, schemas.OpErrorf(schemas.Unsupported, "run", "this host cannot keep the network mode %q: %s; \"sandjet doctor\" explains",
			n.Mode, p.noRelay)
	}
	return egress.Compile(n, p.opt.PrivateNetworks)
}

// listenAt returns the ports on which the relay listens in a box, as part of its shape. Empty: one listener receives connections to all
// ports.
func (p *host) listenAt(r *egress.Rules, n schemas.Network) string {
	if p.redirects {
		return ""
	}
	ports := r.Ports()
	if n.Mode == schemas.AllowAll || len(n.AllowCIDRs) > 0 {
		ports = append(ports, usualPorts()...)
	}
	slices.Sort(ports)
	return strings.Trim(fmt.Sprint(slices.Compact(ports)), "[]")
}

// portsOf parses the result of listenAt.
func portsOf(list string) (ports []int) {
	for field := range strings.FieldsSeq(list) {
		var n int
		if _, err := fmt.Sscan(field, &n); err == nil {
			ports = append(ports, n)
		}
	}
	return ports
}

// sameNetwork reports whether two networks have the same rules.
func sameNetwork(a, b schemas.Network) bool {
	mode := func(n schemas.Network) schemas.NetworkMode {
		if n.Mode == "" {
			return schemas.DenyAll
		}
		return n.Mode
	}
	return mode(a) == mode(b) && slices.Equal(a.AllowDomains, b.AllowDomains) &&
		slices.Equal(a.AllowCIDRs, b.AllowCIDRs) && slices.Equal(a.DenyCIDRs, b.DenyCIDRs) &&
		maps.EqualFunc(a.Credentials, b.Credentials, slices.Equal)
}

// wayOut is the relay of a box, the only way out of its network.
type wayOut struct {
	relay *egress.Relay
	creds *egress.Credentials // nil: no secrets are bound to hosts
	done  chan struct{}       // closed when the box has ended and nothing of its connections is left
}

// openWay starts a relay that serves the box's connections until the box ends.
func (p *boxes) openWay(sb *sandbox, rules *egress.Rules, creds *egress.Credentials, spec providers.Spec) error {
	from := sb.Inside()
	defer from.Close()
	in, err := sockets(from)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "make box", "the box's network cannot be served", err)
	}
	var logged atomic.Int64
	relay := egress.New(egress.Options{
		Rules: rules, Resolver: p.opt.Resolver, Dial: p.opt.Dial, Credentials: creds, Roots: p.opt.Roots,
		Refused: func(f egress.Refusal) {
			if spec.Account != trialAccount && logged.Add(1) <= mostLogged {
				p.log.Info("connection of a sandbox refused",
					"account", spec.Account, "name", f.Name, "address", f.Addr, "port", f.Port, "rule", f.Rule)
			}
		},
	})
	way := &wayOut{relay: relay, creds: creds, done: make(chan struct{})}
	go func() {
		defer close(way.done)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var served sync.WaitGroup
		served.Go(func() { relay.Serve(ctx, in) })
		<-sb.Ended()
		cancel()
		served.Wait()
	}()
	sb.way = way
	return nil
}

// sockets converts the sockets of a box to the Go runtime's listeners.
func sockets(from box.Inside) (in egress.Inside, err error) {
	defer func() {
		if err != nil {
			for _, l := range in.TCP {
				_ = l.Close()
			}
		}
	}()
	for _, f := range from.TCP {
		l, err := net.FileListener(f)
		if err != nil {
			return in, err
		}
		in.TCP = append(in.TCP, l)
	}
	if from.DNS == nil || len(in.TCP) == 0 {
		return in, errors.New("the box has handed out no sockets")
	}
	names, err := net.FilePacketConn(from.DNS)
	if err != nil {
		return in, err
	}
	in.DNS = []net.PacketConn{names}
	return in, nil
}

// shown returns a run's environment with placeholders for the secrets that are bound to hosts, and with variables that name the
// certificate to trust. The box's relay stores the secrets; from then on every process in the box uses the values of the latest run.
func (s *sandbox) shown(env map[string]string) (map[string]string, error) {
	if s.way == nil || s.way.creds == nil {
		return env, nil
	}
	env, err := s.way.creds.Take(env)
	if err != nil {
		return nil, err
	}
	for _, name := range egress.TrustVariables() {
		if _, ok := env[name]; !ok {
			env[name] = box.TrustFile
		}
	}
	return env, nil
}

// mark returns the current position in the list of refused connections of the box, for notices.
func (s *sandbox) mark() uint64 {
	if s.way == nil {
		return 0
	}
	return s.way.relay.Mark()
}

// notices describes the connections that were refused to the box since mark, for the caller of a command. Commands that run in one box at
// the same time share them.
func (s *sandbox) notices(mark uint64) []byte {
	if s.way == nil {
		return nil
	}
	return s.way.relay.Notices(mark)
}

// tryRelay makes a box with a relay, in which a script tries to bypass it; it returns an error if the relay does not work or can be
// bypassed.
func (p *boxes) tryRelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	spec := providers.Spec{Account: trialAccount, Network: schemas.Network{Mode: schemas.Restricted}}
	sb, err := p.fresh(ctx, spec)
	if err != nil {
		return err
	}
	defer sb.end()
	// What is connected to is an address for documentation: if there were another way out it would lead nowhere.
	const elsewhere, anyPort, webPort = "192.0.2.1", 9, 443
	cmd := providers.Command{
		Timeout: 20 * time.Second, Spec: spec, Env: map[string]string{"AT": elsewhere},
		Script: `for port in 9 443; do
	{ exec 3<>"/dev/tcp/$AT/$port" && read -r -t 5 -u 3 line && echo "breach: be answered from outside"; } 2>/dev/null
done
echo tried`,
	}
	env, err := environment(cmd)
	if err != nil {
		return err
	}
	res, err := (&running{p: p, cmd: cmd, sb: sb, fresh: true}).carryOut(ctx, env, providers.Result{})
	if err != nil {
		return err
	}
	seen := map[uint16]bool{}
	list, _ := sb.way.relay.Since(0)
	for _, f := range list {
		if f.Addr == netip.MustParseAddr(elsewhere) {
			seen[f.Port] = true
		}
	}
	switch {
	case !bytes.Equal(res.Stdout, []byte("tried\n")):
		return fmt.Errorf("a trial box with a relay did not do as it should: exit code %d: %.200q %.200q", res.ExitCode, res.Stdout, res.Stderr)
	case !seen[webPort]:
		return errors.New("what a trial box sent did not arrive at its relay")
	}
	if p.redirects && !seen[anyPort] {
		return errors.New("connections of a trial box to a port without a listener did not arrive at its relay")
	}
	return nil
}

// findRelay finds out whether boxes can have a relay, if the operator allows a network mode that needs one.
func (p *boxes) findRelay(ctx context.Context) {
	p.noRelay = ""
	if p.mode != box.Isolated || !slices.ContainsFunc(p.opt.Networks, p.relayed) {
		return
	}
	p.redirects = true
	err := p.tryRelay(ctx)
	if err != nil && ctx.Err() == nil {
		p.log.Info("connections of sandboxes cannot be redirected, listening on ports instead", "reason", err)
		p.redirects = false
		err = p.tryRelay(ctx)
	}
	p.relays = err == nil
	if err == nil {
		return
	}
	p.noRelay = err.Error()
	if step, ok := errors.AsType[*box.StepError](err); ok {
		p.noRelay, _ = explain(step)
	}
	p.log.Warn("sandboxes cannot have a network", "reason", p.noRelay)
}

// networks returns the allowed network modes that this host can enforce.
func (p *host) networks() []schemas.NetworkMode {
	return slices.DeleteFunc(slices.Clone(p.opt.Networks), func(mode schemas.NetworkMode) bool {
		return mode == schemas.Restricted && p.mode != box.Isolated || p.relayed(mode) && !p.relays
	})
}
