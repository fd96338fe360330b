package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sandjet/sandjet/workers/limits"
)

type serverCommand struct {
	serverFlags
	tenantFlags
	gatewayIdentity
	secretsFlags
	remoteFlag

	dir string
}

// gatewayIdentity names the account whose own clients may publish over plain NATS.
type gatewayIdentity struct {
	Account string `placeholder:"ID" group:"Gateway" help:"Account whose own NATS clients may connect to the NATS listener, with its key. Default: the one of the data folder."`
	Key     string `placeholder:"KEY" group:"Gateway" secret:"" help:"Its key. Prefer the environment: other users can see command lines. Default: as --account."`
}

// Help returns the detailed help, for kong.
func (*serverCommand) Help() string {
	return `The embedded NATS server as a process of its own. It writes its address and a credential for the other
roles to role.json in the data folder, where "sandjet gateway" and "sandjet worker" find them.
For more than one host use a NATS cluster instead and name it with --nats-url.

Examples:
  sandjet server --data-dir /var/lib/sandjet
  sandjet server --nats-listen 127.0.0.1:4222 --durability always`
}

// AfterApply is called by kong once everything is parsed.
func (c *serverCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// Run starts the server and stays until ctx ends.
func (c *serverCommand) Run(ctx context.Context, t terminal) error {
	n, err := newNode(t.log, c.dir)
	if err != nil {
		return err
	}
	defer n.close()
	if err := c.check(); err != nil {
		return err
	}
	if err := c.NATSListen.allow("nats-listen", c.AllowRemote); err != nil {
		return err
	}
	id, err := gatewayFlags{Account: c.Account, Key: c.Key}.identity(n.dir)
	if err != nil {
		return err
	}
	ring, err := c.ring(ctx, n.dir)
	if err != nil {
		return err
	}
	n.quotas = c.quotas(id.Account)
	if err := n.openServer(ctx, c.serverFlags, c.tenantFlags, id); err != nil {
		return err
	}
	if t.json {
		err = printJSON(t.out, map[string]string{"nats_url": n.endpoint.NATSURL})
	} else {
		_, err = fmt.Fprintf(t.out, "The NATS server is up at %s\n", n.server.URL())
	}
	if err != nil {
		return wrapOutput(err)
	}
	n.add("tenants", func(ctx context.Context) error { return n.followTenants(ctx, ring) })
	return n.run(ctx)
}

type gatewayCommand struct {
	natsFlags
	topologyFlags
	secretsFlags
	gatewayFlags
	operatorFlags
	tenantFlags
	limiterFlags
	insecureFlag
	remoteFlag

	dir string
}

// Help returns the detailed help, for kong.
func (*gatewayCommand) Help() string {
	return `The HTTP edge as a process of its own, with the intake for plain NATS publishers. It keeps no state:
run as many as you like and kill any of them.

Examples:
  sandjet gateway                                        beside "sandjet server", on its data folder
  SANDJET_ACCOUNT=acct_main SANDJET_KEY=… sandjet gateway --nats-url nats://nats:4222 \
    --listen 0.0.0.0:8080 --allow-remote`
}

// AfterApply is called by kong once everything is parsed.
func (c *gatewayCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// Run serves until ctx ends.
func (c *gatewayCommand) Run(ctx context.Context, t terminal) error {
	n, err := c.build(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	if t.json {
		err = printJSON(t.out, n.endpoint)
	} else {
		_, err = fmt.Fprintf(t.out, "The gateway is up at %s\n", n.endpoint.URL)
	}
	if err != nil {
		return wrapOutput(err)
	}
	return n.run(ctx)
}

func (c *gatewayCommand) build(ctx context.Context, t terminal) (_ *node, err error) {
	if err := errors.Join(c.topologyFlags.check(), c.gatewayFlags.check(), c.operatorFlags.check(), c.tenantFlags.check()); err != nil {
		return nil, err
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
	if err := n.openLimiter(ctx, c.limiterFlags, nil); err != nil {
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
	n.quotas = c.quotas(id.Account)
	if err := n.awaitBus(ctx, c.natsFlags, c.topologyFlags); err != nil {
		return nil, err
	}
	if err := n.openRecords(ctx, c.secretsFlags, c.natsFlags); err != nil {
		return nil, err
	}
	if err := n.addGateway(ctx, c.gatewayFlags, c.operatorFlags, c.tenantFlags, c.insecureFlag, id, l); err != nil {
		return nil, err
	}
	n.addHousekeepers()
	n.addGatewayHousekeepers()
	// The first gateway on a data folder publishes its address in up.json, where the client commands find it.
	if err := n.claim(); err != nil {
		t.log.Info("up.json belongs to another process", "reason", err)
		return n, nil
	}
	return n, n.publishEndpoint()
}

type workerCommand struct {
	natsFlags
	topologyFlags
	secretsFlags
	workerFlags
	operatorFlags
	limiterFlags
	remoteFlag

	dir string
}

// Help returns the detailed help, for kong.
func (*workerCommand) Help() string {
	return `A worker as a process of its own, beside the sandboxes that it uses. Run as many as you like: each call
goes to one of them. Workers on several hosts must see the same <data-dir>/workspaces: one that does not
refuses to start. An instance of a persistent sandbox lives in one worker, which its calls find.
Killing a worker loses no call: what only read is run again by another one, what may have had an
effect ends as interrupted and is not run again.

Examples:
  sandjet worker                               beside "sandjet server", on its data folder
  sandjet worker --nats-url nats://nats:4222 --nats-creds worker.creds --slots 32`
}

// AfterApply is called by kong once everything is parsed.
func (c *workerCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// workerUp is what a worker prints with --json once it is up.
type workerUp struct {
	Provider   string `json:"provider"`
	MetricsURL string `json:"metrics_url,omitzero"`
	PID        int    `json:"pid"`
}

// Run runs the worker until ctx ends.
func (c *workerCommand) Run(ctx context.Context, t terminal) error {
	if err := errors.Join(c.topologyFlags.check(), c.workerFlags.check(), c.operatorFlags.check()); err != nil {
		return err
	}
	n, err := newNode(t.log, c.dir)
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.openLimiter(ctx, c.limiterFlags, new(limits.Memory)); err != nil {
		return err
	}
	up := workerUp{Provider: strings.Join(c.Providers, ","), PID: os.Getpid()}
	if up.MetricsURL, err = n.addHealth(ctx, c.metricsFlag, c.remoteFlag); err != nil {
		return err
	}
	if err := n.awaitBus(ctx, c.natsFlags, c.topologyFlags); err != nil {
		return err
	}
	if err := n.openRecords(ctx, c.secretsFlags, c.natsFlags); err != nil {
		return err
	}
	if err := n.addWorkers(c.workerFlags, c.operatorFlags); err != nil {
		return err
	}
	n.addHousekeepers()
	if t.json {
		err = printJSON(t.out, up)
	} else {
		_, err = fmt.Fprintf(t.out, "The worker for %s is up\n", strings.Join(c.Providers, ", "))
	}
	if err != nil {
		return wrapOutput(err)
	}
	return n.run(ctx)
}

type deliverCommand struct {
	natsFlags
	topologyFlags
	secretsFlags
	insecureFlag
	deliveryFlags
	limiterFlags
	metricsFlag
	remoteFlag

	dir string
}

// Help returns the detailed help, for kong.
func (*deliverCommand) Help() string {
	return `The deliverer posts events to webhooks and sends messages to chats. It is the only process that needs access
to the internet. It keeps no state: run as many as you like and kill any of them; what
was in flight is posted again under the same webhook-id, and chats get the parts that they do not have yet.

Examples:
  sandjet deliver                              beside "sandjet server", on its data folder
  sandjet deliver --nats-url nats://nats:4222 --nats-creds deliver.creds`
}

// AfterApply is called by kong once everything is parsed.
func (c *deliverCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// deliverUp is what a deliverer prints with --json once it is up.
type deliverUp struct {
	MetricsURL string `json:"metrics_url,omitzero"`
	PID        int    `json:"pid"`
}

// Run delivers until ctx ends.
func (c *deliverCommand) Run(ctx context.Context, t terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	n, err := newNode(t.log, c.dir)
	if err != nil {
		return err
	}
	defer n.close()
	up := deliverUp{PID: os.Getpid()}
	if up.MetricsURL, err = n.addHealth(ctx, c.metricsFlag, c.remoteFlag); err != nil {
		return err
	}
	if err := n.awaitBus(ctx, c.natsFlags, c.topologyFlags); err != nil {
		return err
	}
	if err := n.openRecords(ctx, c.secretsFlags, c.natsFlags); err != nil {
		return err
	}
	if err := n.addDeliverer(ctx, c.deliveryFlags, c.limiterFlags, c.insecureFlag); err != nil {
		return err
	}
	if t.json {
		err = printJSON(t.out, up)
	} else {
		_, err = fmt.Fprintln(t.out, "The deliverer is up")
	}
	if err != nil {
		return wrapOutput(err)
	}
	return n.run(ctx)
}
