package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

type upCommand struct {
	natsFlags
	topologyFlags
	serverFlags
	gatewayFlags
	tenantFlags
	workerFlags
	operatorFlags
	limiterFlags
	secretsFlags
	insecureFlag
	deliveryFlags
	remoteFlag

	dir string
}

// Help returns the detailed help, for kong.
func (*upCommand) Help() string {
	return `One process with all roles: an embedded NATS server that keeps its files in the data folder, the HTTP
gateway, a worker that runs calls in sandboxes of this host, what carries out the turns of agents that have a model, and
the deliverer of webhooks and chat messages. It needs nothing but bash.

It prints where it can be reached and writes that to up.json in the data folder, where the other
commands find it. The account and its key stay the same from one start to the next. Ctrl-C lets calls
in hand finish; a second Ctrl-C ends at once. However it ends, accepted calls are kept.

Examples:
  sandjet up
  sandjet up --listen 127.0.0.1:0 --nats-listen 127.0.0.1:0 --data-dir /tmp/try
  sandjet up --nats-url nats://nats.internal:4222 --nats-creds sandjet.creds
  eval "$(sandjet info --shell)" && curl -H "Authorization: Bearer $SANDJET_KEY" "$SANDJET_URL/v1/calls?wait=30s" \
       -H 'Content-Type: application/json' -d '{"tool":"bash","input":{"command":"date"}}'`
}

// AfterApply is called by kong once everything is parsed.
func (c *upCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// Run starts everything and runs until ctx ends.
func (c *upCommand) Run(ctx context.Context, t terminal) error {
	n, err := c.build(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	if err := announce(t, n.endpoint, n.dir.upFile()); err != nil {
		return err
	}
	return n.run(ctx)
}

// build opens everything that up needs. The caller closes the node after running it.
func (c *upCommand) build(ctx context.Context, t terminal) (_ *node, err error) {
	if err := errors.Join(c.topologyFlags.check(), c.workerFlags.check(), c.gatewayFlags.check(), c.operatorFlags.check(),
		c.tenantFlags.check()); err != nil {
		return nil, err
	}
	if len(c.ModelNetworks) == 0 { // allow a model server on the user's own host
		c.ModelNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	n, err := newNode(t.log, c.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if err := n.claim(); err != nil {
		return nil, err
	}
	if err := c.portsFree(ctx); err != nil {
		return nil, err
	}
	if err := n.openLimiter(ctx, c.limiterFlags, new(limits.Memory)); err != nil {
		return nil, err
	}
	l, err := n.openListener(ctx, c.Listen, "listen", c.AllowRemote)
	if err != nil {
		return nil, err
	}
	id, err := c.identity(n.dir)
	if err != nil {
		return nil, err
	}
	if c.NATSURL == "" {
		if err := c.NATSListen.allow("nats-listen", c.AllowRemote); err != nil {
			return nil, err
		}
		if err := n.openServer(ctx, c.serverFlags, c.tenantFlags, id); err != nil {
			return nil, err
		}
	}
	n.quotas, n.provider = c.quotas(id.Account), c.first()
	if err := n.awaitBus(ctx, c.natsFlags, c.topologyFlags); err != nil {
		return nil, err
	}
	if err := n.openRecords(ctx, c.secretsFlags, c.natsFlags); err != nil {
		return nil, err
	}
	if err := n.addWorkers(c.workerFlags, c.operatorFlags); err != nil {
		return nil, err
	}
	n.addRunner(c.ModelNetworks)
	if err := n.addGateway(ctx, c.gatewayFlags, c.operatorFlags, c.tenantFlags, c.insecureFlag, id, l); err != nil {
		return nil, err
	}
	n.addHousekeepers()
	n.addGatewayHousekeepers()
	if err := n.addDeliverer(ctx, c.deliveryFlags, c.limiterFlags, c.insecureFlag); err != nil {
		return nil, err
	}
	return n, n.publishEndpoint()
}

// portsFree returns an error that lists all ports in use, not only the first.
func (c *upCommand) portsFree(ctx context.Context) error {
	var errs []error
	if c.Listen.port != 0 {
		errs = append(errs, c.Listen.free(ctx, "listen"))
	}
	if c.NATSURL == "" && c.NATSListen.port != 0 {
		errs = append(errs, c.NATSListen.free(ctx, "nats-listen"))
	}
	return errors.Join(errs...)
}

// identity returns the account to serve: that of the flags, else that of the data folder.
func (f gatewayFlags) identity(dir dataDir) (identity, error) {
	switch {
	case f.Account != "" && f.Key != "":
		id := identity{Account: schemas.AccountID(f.Account), Key: f.Key}
		return id, id.Account.Validate()
	case f.Account != "" || f.Key != "":
		return identity{}, schemas.Invalidf("", "--account and --key belong together: give both or neither")
	}
	return dir.identity()
}

// claim makes this process the only Sandjet on the data folder until the node is closed. Code: conflict.
func (n *node) claim() error {
	l, err := n.dir.claim()
	if err != nil {
		return err
	}
	n.onClose(l.release)
	return nil
}

// openListener opens a listener that is closed with the node.
func (n *node) openListener(ctx context.Context, a address, flag string, remote bool) (net.Listener, error) {
	if err := a.allow(flag, remote); err != nil {
		return nil, err
	}
	l, err := a.listen(ctx, flag)
	if err != nil {
		return nil, err
	}
	n.onClose(func() { _ = l.Close() }) // serving it has usually closed it already
	return l, nil
}

// publishEndpoint writes up.json, and removes it when the node is closed.
func (n *node) publishEndpoint() error {
	n.endpoint.PID, n.endpoint.SecretsKeys = os.Getpid(), n.ring.IDs()
	if err := writeJSON(n.dir.upFile(), n.endpoint); err != nil {
		return err
	}
	n.onClose(func() {
		if err := os.Remove(n.dir.upFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("up.json was not removed", "error", err)
		}
	})
	return nil
}

// announce prints the addresses, and the file that has the key. The key itself is not printed, as the output often ends up in logs; with
// --json it is.
func announce(t terminal, e endpoint, file string) error {
	if t.json {
		return printJSON(t.out, e)
	}
	nats := withoutCredentials(e.NATSURL)
	if nats == "" {
		nats = "(outside server)"
	}
	_, err := fmt.Fprintf(t.out, `Sandjet is up.
  HTTP   %s
  NATS   %s
  key    in %s

Try:     sandjet call bash 'echo hello'
Stop:    Ctrl-C
`, e.URL, nats, file)
	return wrapOutput(err)
}

// withoutCredentials returns a URL without user and password.
func withoutCredentials(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}
