//go:build linux

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/netns"
	"github.com/sandjet/sandjet/schemas"
)

// mostLogged is how many refusals of one container are logged.
const mostLogged = 20

// ordinaryRuntimes lists the runtimes whose containers are processes of the host in namespaces of its kernel. A relay cannot enter the
// networks of other runtimes.
func ordinaryRuntimes() []string { return []string{"", "runc", "crun", "io.containerd.runc.v2"} }

// containerRelay is the relay of a container, the only way out of its network.
type containerRelay struct {
	relay *egress.Relay
	creds *egress.Credentials // nil: no secrets are bound to hosts
	end   context.CancelFunc
	done  chan struct{} // closed when nothing of its connections is left
}

// start starts a relay that serves the connections of a running container until it is closed. Codes: conflict (another worker serves
// them), unavailable.
func (rs *relays) start(c container.InspectResponse, rules *egress.Rules, creds *egress.Credentials) (*containerRelay, error) {
	in, err := inside(c.ID, c.State.Pid)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, schemas.Wrap(schemas.Conflict, "relay", "another worker serves the network of this container", err)
	}
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "relay", "the network of the container cannot be served: "+err.Error(), err)
	}
	account := c.Config.Labels[labelAccount]
	var logged atomic.Int64
	relay := egress.New(egress.Options{
		Rules: rules, Resolver: rs.terms.opt.Resolver, Dial: rs.terms.opt.Dial, Credentials: creds, Roots: rs.terms.opt.Roots,
		Refused: func(f egress.Refusal) {
			if logged.Add(1) <= mostLogged {
				rs.containers.log.Info("connection of a container refused", "account", account, "name", f.Name, "address", f.Addr, "port", f.Port, "rule", f.Rule)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	w := &containerRelay{relay: relay, creds: creds, end: cancel, done: make(chan struct{})}
	rs.work.Go(func() {
		defer close(w.done)
		relay.Serve(ctx, in)
	})
	return w, nil
}

// close ends the relay and waits for its connections to end. Nothing leaves the container from then on.
func (w *containerRelay) close() {
	w.end()
	<-w.done
}

// inside opens the sockets that receive all connections of a container.
func inside(id string, pid int) (egress.Inside, error) {
	network, err := networkOf(id, pid)
	if err != nil {
		return egress.Inside{}, err
	}
	defer network.Close() //nolint:errcheck // read only
	var s *netns.Sockets
	err = netns.In(network, func() (err error) {
		if err := alone(); err != nil {
			return err
		}
		s, err = netns.Open(nil)
		return err
	})
	if err != nil {
		return egress.Inside{}, err
	}
	return sockets(s)
}

// alone returns an error if the calling thread's network namespace has another way out than the relay that is about to be set up.
func alone() error {
	devices, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Flags&net.FlagLoopback == 0 && d.Flags&net.FlagUp != 0 {
			return fmt.Errorf("the container's network has the device %s, so a relay is not its only way out", d.Name)
		}
	}
	return nil
}

// sockets converts descriptors to the Go runtime's listeners.
func sockets(s *netns.Sockets) (in egress.Inside, err error) {
	files := make([]*os.File, 0, len(s.TCP)+1)
	for _, fd := range s.Files() {
		files = append(files, os.NewFile(uintptr(fd), "relay"))
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			for _, l := range in.TCP {
				_ = l.Close()
			}
		}
	}()
	last := len(files) - 1
	for _, f := range files[:last] {
		l, err := net.FileListener(f)
		if err != nil {
			return in, err
		}
		in.TCP = append(in.TCP, l)
	}
	names, err := net.FilePacketConn(files[last])
	if err != nil {
		return in, err
	}
	in.DNS = []net.PacketConn{names}
	return in, nil
}

// networkOf opens the network namespace of a container. It uses the process id that the engine reports only if that process is in a
// control group with the container's id in its name: the engine may be on another host, or in another pid namespace.
func networkOf(id string, pid int) (*os.File, error) {
	if !isID(id) {
		return nil, errors.New("the container has no id")
	}
	if pid <= 0 || !within(pid, id) {
		pid = firstOf(id)
	}
	if pid <= 0 {
		return nil, errors.New("the engine's containers are not processes of this host, or this process may not see them")
	}
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	var theirs os.FileInfo
	if err == nil {
		theirs, err = network.Stat()
	}
	switch {
	case err != nil:
	case os.SameFile(own, theirs):
		err = errors.New("the container has the network of this process")
	case !within(pid, id): // the number may have been given to another process meanwhile
		err = errors.New("the container has ended")
	}
	if err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return network, nil
}

// within reports whether a process is in the control group of a container.
func within(pid int, id string) bool {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(groups), id)
}

// firstOf searches this host's processes for the first process of a container: the one that is number 1 in its pid namespace. 0: there is
// none.
func firstOf(id string) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !within(pid, id) {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			numbers, ok := strings.CutPrefix(line, "NSpid:")
			if fields := strings.Fields(numbers); ok && len(fields) > 1 && fields[len(fields)-1] == "1" {
				return pid
			}
		}
	}
	return 0
}

// findRelayProblem returns why containers cannot have a relay, by trying it with a container; empty if they can. It tries nothing if the
// operator allows no network mode that needs a relay.
func findRelayProblem(ctx context.Context, t *terms, b *builder) string {
	if !slices.ContainsFunc(t.opt.Networks, t.relayed) {
		return "no sandbox may have a network (--networks)"
	}
	engine := b.containers.engine
	if why := cmp.Or(t.opt.noRelay, obstacle(engine.DaemonHost(), t.facts.runtime)); why != "" {
		return why
	}
	if err := tryRelay(ctx, t, b); err != nil {
		b.containers.log.Warn("containers cannot have a relay: restricted is refused, and allow-all is a bridge of the engine", "reason", err)
		return err.Error()
	}
	return ""
}

// obstacle returns why this process cannot serve the networks of the engine's containers, as far as that is known without trying; empty if
// nothing is.
func obstacle(host, runtime string) string {
	if !slices.Contains(ordinaryRuntimes(), runtime) {
		return fmt.Sprintf("the runtime %s has networks of its own, which a worker cannot enter", runtime)
	}
	if !strings.HasPrefix(host, "unix://") {
		return "the engine at " + host + " is on another host, whose networks a worker cannot enter"
	}
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err.Error()
	}
	defer own.Close() //nolint:errcheck // read only
	if err := netns.In(own, func() error { return nil }); err != nil {
		return "this process may not enter networks: it needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
	}
	return ""
}

// tryRelay makes a container and tries to serve its network.
func tryRelay(ctx context.Context, t *terms, b *builder) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r := t.rules(trialSpec(), trialSpec().Network, nil)
	o := b.describe(r, kindCall, map[string]string{labelUntil: until(time.Now().Add(probeTimeout))})
	o.Name = callName(b.containers.installation)
	made, err := b.containers.engine.ContainerCreate(ctx, o)
	if err != nil {
		return engineError("relay", err)
	}
	defer b.containers.remove(made.ID)
	if _, err := b.containers.engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return engineError("relay", err)
	}
	found, err := b.containers.engine.ContainerInspect(ctx, made.ID, client.ContainerInspectOptions{})
	if err != nil || found.Container.State == nil {
		return engineError("relay", err)
	}
	return tryInside(made.ID, found.Container.State.Pid)
}

// tryInside opens the sockets of a container and checks that a connection to another address arrives at them.
func tryInside(id string, pid int) error {
	network, err := networkOf(id, pid)
	if err != nil {
		return err
	}
	defer network.Close()              //nolint:errcheck // read only
	elsewhere := [4]byte{192, 0, 2, 1} // for documentation: if there were another way out it would lead nowhere
	const port, patience = 9, 5000     // ms
	return netns.In(network, func() error {
		if err := alone(); err != nil {
			return err
		}
		s, err := netns.Open(nil)
		if err != nil {
			return err
		}
		defer s.Close()
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(c) //nolint:errcheck // it was tried with
		err = unix.Connect(c, &unix.SockaddrInet4{Port: port, Addr: elsewhere})
		if err != nil && !errors.Is(err, syscall.EINPROGRESS) {
			return fmt.Errorf("a connection does not arrive at the relay: %w", err)
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.TCP[0]), Events: unix.POLLIN}}, patience); n != 1 {
			return fmt.Errorf("a connection does not arrive at the relay: %w", errors.Join(err, os.ErrDeadlineExceeded))
		}
		got, _, err := unix.Accept(s.TCP[0])
		if err != nil {
			return err
		}
		defer unix.Close(got) //nolint:errcheck // it was tried with
		at, err := unix.Getsockname(got)
		if a, ok := at.(*unix.SockaddrInet4); err != nil || !ok || netip.AddrFrom4(a.Addr) != netip.AddrFrom4(elsewhere) || a.Port != port {
			return errors.New("a connection arrives at the relay without the address that was wanted")
		}
		return nil
	})
}
