package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/netip"
	"os"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

type egressCommand struct {
	Serve egressServeCommand `cmd:"" help:"Run the proxy."`
	Key   egressKeyCommand   `cmd:"" help:"Print the public key with which the proxy verifies the passes of workers."`
}

// Help returns the detailed help, for kong.
func (*egressCommand) Help() string {
	return `The proxy by which sandboxes of the provider kubernetes reach the names that their network lists. It runs as
pods of the cluster (deploy/kubernetes/egress.yaml), and network policies let those sandboxes reach nothing
else. What a sandbox may reach is in a pass that its worker signs, so that the proxy has no rights in the
cluster, no secrets and no state: run several, and kill any of them.

Examples:
  sandjet egress key                                         on a host with the keys for secrets
  sandjet egress serve --egress-listen 0.0.0.0:3128 --allow-remote --egress-keys KEY`
}

type egressServeCommand struct {
	remoteFlag

	EgressListen    address        `placeholder:"HOST:PORT" default:"127.0.0.1:3128" group:"Security" help:"Address of the proxy; port 0 takes any free one."`
	EgressKeys      []string       `placeholder:"KEY" group:"Security" help:"Public keys of the workers, as \"sandjet egress key\" prints them: passes signed with them say what a sandbox may reach."`
	PrivateNetworks []netip.Prefix `placeholder:"CIDR" group:"Security" help:"Networks that sandboxes may reach though they are not public, such as 10.20.0.0/16, where their network is restricted and lists them too. Workers and gateways should say the same."`
}

// mostEgressKeys is the maximum number of --egress-keys.
const mostEgressKeys = 8

// egressUp is what the proxy prints with --json once it is up.
type egressUp struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// Run serves until ctx ends.
func (c *egressServeCommand) Run(ctx context.Context, t terminal) error {
	if n := len(c.EgressKeys); n == 0 || n > mostEgressKeys {
		return schemas.Invalidf("egress-keys", "are %d: give one to %d of those that \"sandjet egress key\" prints", n, mostEgressKeys)
	}
	gate := &egress.Gate{Private: c.PrivateNetworks, Log: t.log.With("part", "egress")}
	for _, text := range c.EgressKeys {
		key, err := egress.ParseKey(text)
		if err != nil {
			return fmt.Errorf("--egress-keys: %w", err)
		}
		gate.Keys = append(gate.Keys, key)
	}
	if err := c.EgressListen.allow("egress-listen", c.AllowRemote); err != nil {
		return err
	}
	l, err := c.EgressListen.listen(ctx, "egress-listen")
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // the gate closes it
	up := egressUp{URL: "http://" + l.Addr().String(), PID: os.Getpid()}
	if t.json {
		err = printJSON(t.out, up)
	} else {
		_, err = fmt.Fprintf(t.out, "The egress proxy is up at %s\n", up.URL)
	}
	if err != nil {
		return wrapOutput(err)
	}
	return gate.Run(ctx, l)
}

type egressKeyCommand struct {
	secretsFlags

	dir string
}

// AfterApply is called by kong once everything is parsed.
func (c *egressKeyCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// Run prints the key.
func (c *egressKeyCommand) Run(ctx context.Context, t terminal) error {
	ring, err := c.known(ctx, dataDir(c.dir))
	if err != nil {
		return err
	}
	key, err := egressKey(ring)
	if err != nil {
		return err
	}
	public, _ := key.Public().(ed25519.PublicKey)
	if t.json {
		return printJSON(t.out, map[string]string{"key": egress.KeyText(public), "of": ring.Current()})
	}
	_, err = fmt.Fprintln(t.out, egress.KeyText(public))
	return wrapOutput(err)
}

// egressKey returns the key that signs the passes which sandboxes present to the proxy. It is derived from the first key for secrets, so
// that all workers have the same.
func egressKey(ring *seal.Ring) (ed25519.PrivateKey, error) {
	_, seed, err := ring.Derive("", "kubernetes egress", nil)
	if err != nil {
		return nil, fmt.Errorf("key of the egress proxy: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// egressOf returns the proxy that --kubernetes-egress names as NAMESPACE/SERVICE, with the key that signs passes for it.
func egressOf(service string, ring *seal.Ring, private []netip.Prefix) (*kubernetes.Egress, error) {
	namespace, name, err := splitService(service)
	if err != nil {
		return nil, err
	}
	key, err := egressKey(ring)
	if err != nil {
		return nil, err
	}
	return &kubernetes.Egress{Namespace: namespace, Service: name, Key: key, Private: private}, nil
}
