package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/webhook"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/workers"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/limits/redislimits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// node is one process of Sandjet while it is put together: what was opened, in the order of its
// opening, and the parts that will run.
type node struct {
	log      *slog.Logger
	dir      dataDir
	metrics  *prometheus.Registry
	server   *streams.Server
	auth     *natsauth.Authenticator // of server
	bus      *streams.Bus
	logURL   string // where the log's server is
	records  *records.Store
	keys     atomic.Pointer[records.Store] // the same, for the server of this process, which was there before
	limiter  limits.Limiter                // nil in a process that counts nothing
	actors   []actor
	closers  []func()
	endpoint endpoint

	provider     string          // of this process's worker; empty without one
	metricsShown bool            // at a listener of their own
	quotas       *streams.Quotas // of accounts, where the process takes their work
	disk         func() string   // says that there is little room for workspaces; nil without a worker
}

func newNode(log *slog.Logger, path string) (*node, error) {
	dir, err := openDataDir(path)
	if err != nil {
		return nil, err
	}
	dir.secure(log)
	return &node{log: log, dir: dir, metrics: newRegistry()}, nil
}

// onClose remembers how to undo what was just opened.
func (n *node) onClose(f func()) { n.closers = append(n.closers, f) }

// close undoes everything, the last first. It may be called when the building failed half way.
func (n *node) close() {
	for _, f := range slices.Backward(n.closers) {
		f()
	}
	n.closers = nil
}

// run runs the parts until ctx ends or one of them does.
func (n *node) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		n.log.Info("stopping: what is in hand is finished first; a second signal ends at once", "cause", context.Cause(ctx))
	})()
	return runAll(ctx, n.actors)
}

func (n *node) add(name string, run func(context.Context) error) {
	n.actors = append(n.actors, actor{name: name, run: run})
}

// addLast adds a part that goes on until the others have ended: those who wait for the results of the
// last calls are answered by it.
func (n *node) addLast(name string, run func(context.Context) error) {
	n.actors = append(n.actors, actor{name: name, run: run, last: true})
}

const drainPatience = 10 * time.Second // for what the log has not confirmed yet, at the end

// openServer starts the embedded server and keeps its address where the other roles find it.
func (n *node) openServer(ctx context.Context, f serverFlags, t tenantFlags, id identity) error {
	r, err := n.dir.role()
	if err != nil {
		return err
	}
	at := f.NATSListen
	if at.port == 0 { // the other roles go on trying the address they know
		at.port = portOf(r.URL)
		if at.port != 0 && at.free(ctx, "nats-listen") != nil {
			at.port = 0
		}
	}
	if at.port != 0 {
		if err := at.free(ctx, "nats-listen"); err != nil {
			return err
		}
	}
	n.auth, err = natsauth.New(natsauth.Options{
		Users: []natsauth.User{
			{Name: r.User, Password: r.Password},
			{Name: string(id.Account), Password: id.Key, Account: id.Account},
		},
		Tenants: n.tenant, Limits: t.limits(), Log: n.log.With("part", "server"),
	})
	if err != nil {
		return fmt.Errorf("users of the embedded server: %w", err)
	}
	n.server, err = streams.StartServer(ctx, streams.ServerOptions{
		DataDir: n.dir.store(), Host: at.host, Port: at.port, Durability: streams.Durability(f.Durability),
		MaxStore: int64(f.MaxStore), Name: "sandjet", Log: n.log.With("part", "server"),
		Auth: n.auth, Publications: t.shares(),
	})
	if err != nil {
		return fmt.Errorf("embedded server: %w", err)
	}
	n.onClose(n.server.Shutdown)
	n.addLast("server", n.server.Run)
	r.URL = n.server.URL()
	n.endpoint.NATSURL = credentials(r.URL, string(id.Account), id.Key)
	return writeJSON(n.dir.roleFile(), r)
}

// openBus connects to the log: to the server of this process, to the one that is named, or to the one
// that runs on the data folder.
func (n *node) openBus(ctx context.Context, f natsFlags, top topologyFlags) error {
	o := streams.Options{
		Server: n.server, URL: f.NATSURL, User: f.NATSUser, Password: f.NATSPassword, Creds: f.NATSCreds, NKey: f.NATSNKey,
		CA: f.NATSCA, Cert: f.NATSCert, Key: f.NATSKey, Replicas: top.Replicas, Shards: top.Shards, Name: "sandjet",
		Log: n.log.With("part", "log"), Quotas: n.quotas,
	}
	if n.server == nil && o.URL == "" {
		r, err := readJSON[role](n.dir.roleFile())
		if err != nil || r.URL == "" {
			return schemas.Errorf(schemas.Unavailable, "",
				"no log to work with: name a NATS server with --nats-url, or run \"sandjet server\" or \"sandjet up\" on the data folder %s", n.dir)
		}
		o.URL, o.User, o.Password = r.URL, r.User, r.Password
	}
	if n.logURL = o.URL; n.server != nil {
		n.logURL = n.server.URL()
	}
	bus, err := streams.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	n.bus = bus
	n.metrics.MustRegister(clockMetric(bus))
	n.onClose(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer stop()
		if err := bus.Close(ctx); err != nil {
			n.log.Warn("the log was not closed cleanly", "error", err)
		}
	})
	return nil
}

// openRecords opens the records with the keys that seal their secrets.
func (n *node) openRecords(ctx context.Context, f secretsFlags, nats natsFlags) error {
	ring, err := f.ring(ctx, n.dir)
	if err != nil {
		return err
	}
	if nats.NATSURL != "" && !f.named() {
		n.log.Warn("secrets are sealed with the key of this data folder: other processes on the log need it too, by --secrets-key-file or SANDJET_SECRETS_KEYS",
			"key", ring.Current())
	}
	if n.records, err = records.Open(ctx, n.bus, ring, catalogOf(n.provider)); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	n.records.Log = n.log.With("part", "records")
	n.followKeys(n.records)
	n.addLast("records", n.records.Run)
	return nil
}

// openLimiter opens what counts the caps: Redis where it is named, else the process's own. That Redis is
// away is no error: calls wait until it is back.
func (n *node) openLimiter(ctx context.Context, f limiterFlags, own limits.Limiter) error {
	if n.limiter = own; f.RedisURL == "" {
		return nil
	}
	shared, err := redislimits.Open(f.RedisURL)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	n.limiter = shared
	n.onClose(func() { _ = shared.Close() }) // what is held ends by itself
	if err := shared.Ping(ctx); err != nil {
		n.log.Warn("the limits are not reached yet: calls under a cap wait for them", "error", err)
	}
	return nil
}

// addGateway makes the account, opens the listener and adds the doors by which calls come in.
func (n *node) addGateway(ctx context.Context, f gatewayFlags, operator operatorFlags, t tenantFlags, insecure insecureFlag, id identity, l net.Listener) error {
	admin, err := f.hash()
	if err != nil {
		return err
	}
	n.records.Operator = records.Operator{Networks: operator.modes(), MaxMemory: int64(operator.MaxMemory)}
	if _, err := n.records.EnsureAccount(ctx, records.Bootstrap{Account: id.Account, Key: id.Key, Provider: catalogOf(n.provider).Default()}); err != nil {
		return fmt.Errorf("account: %w", err)
	}
	serving := &streams.Served{Bus: n.bus, Grace: f.ProviderGrace}
	n.addLast("served providers", serving.Run)
	n.records.Living = serving
	g := gateway.New(gateway.Options{
		Serving: serving,
		Bus:     n.bus, Records: n.records, Log: n.log.With("part", "gateway"), Version: readBuild().Version, MaxWait: f.MaxWait,
		Registry: n.metrics, MetricsElsewhere: n.metricsShown, Providers: catalog().Names(), Origins: f.Origins,
		Tools:      func(d schemas.Dialect) (any, error) { return tools.DefinitionsFor(d, schemas.JobActions()) }, // of every provider, by package supervisor
		AgentTools: agentTools,
		Endpoints:  n.records, AllowInsecureWebhooks: insecure.WebhookAllowHTTP,
		NATS: n.records, NATSURL: n.natsURL(f.natsAccessFlags),
		Accounts: n.records, AdminKeyHash: admin, OpenSignup: f.OpenSignup, DurableStreams: f.DurableStreams, OwnAccount: id.Account,
		Keys: n.records, Disk: n.disk, Limits: f.limits(), ReplayBytes: int(f.ReplayMemory), ReplayCompression: f.ReplayCompression,
	})
	if err := n.addCallout(f.natsAccessFlags, t); err != nil {
		return err
	}
	n.addLast("gateway", func(ctx context.Context) error { return g.Run(ctx, l) })
	n.add("intake consumer", (&natsapi.IntakeConsumer{Bus: n.bus, Records: n.records, Log: n.log.With("part", "intake consumer")}).Run)
	n.add("retention", (&streams.Retention{Bus: n.bus, Log: n.log.With("part", "retention"), Keep: f.KeepEvents, Count: f.KeepEventsCount, Gone: n.gone}).Run)
	if n.server == nil { // an embedded one, which may be another process's, takes them by itself
		n.add("intake", streams.IntakeDoor{Bus: n.bus, Shares: t.shares()}.Run)
	}
	n.add("NATS service", (&natsapi.Service{
		Bus: n.bus, Records: n.records, Log: n.log.With("part", "NATS service"), DefaultAccount: id.Account, Shares: t.shares(), Serving: serving,
	}).Run)
	n.endpoint.URL = "http://" + reach(l)
	n.endpoint.Account, n.endpoint.Key = id.Account, id.Key
	return nil
}

// gone reports whether an account was removed.
func (n *node) gone(ctx context.Context, a schemas.AccountID) bool {
	_, err := n.records.Account(ctx, a)
	return errors.Is(err, schemas.ErrNotFound)
}

// addCaretakers adds the parts that bring given-up messages to the dead letters, give calls among them
// their result, and settle the ends of background jobs. Any number of processes may have them.
func (n *node) addCaretakers() {
	n.add("mover", (&streams.Mover{Bus: n.bus, Log: n.log.With("part", "mover")}).Run)
	n.add("closer", (&maintenance.CallExpirer{Bus: n.bus, Providers: catalog().Names(), Log: n.log.With("part", "closer")}).Run)
	n.add("settler", (&maintenance.Settler{
		Bus: n.bus, Limiter: n.limiter, Endpoints: n.records, Log: n.log.With("part", "settler"), Metrics: settlerMetrics(n.metrics),
	}).Run)
}

// addSweeper adds the parts that find jobs which no worker looks after, approvals that nobody
// answered, and durable streams whose time is over or whose account is gone. They are where there is a
// gateway, so that these are found without any worker.
func (n *node) addSweeper() {
	n.add("approvals", (&gateway.ApprovalSweeper{Bus: n.bus, Log: n.log.With("part", "approvals")}).Run)
	n.add("durable", (&durable.Sweeper{Bus: n.bus, Accounts: n.records, Log: n.log.With("part", "durable")}).Run)
	n.add("sweeper", (&maintenance.JobRescuer{Bus: n.bus, Endpoints: n.records, Log: n.log.With("part", "sweeper")}).Run)
}

// addDeliverer adds the part that posts events to webhooks.
func (n *node) addDeliverer(f deliveryFlags, insecure insecureFlag) {
	if f.WebhookAllowLoopback || insecure.WebhookAllowHTTP {
		n.log.Warn("webhooks may lead to this host or do without TLS: that is for development only",
			"allow_loopback", f.WebhookAllowLoopback, "allow_http", insecure.WebhookAllowHTTP)
	}
	log := n.log.With("part", "deliverer")
	sender := &webhook.Sender{
		Now:       n.bus.Now,
		Endpoints: n.records, Log: log,
		Policy: webhook.Policy{
			AllowLoopback: f.WebhookAllowLoopback, AllowHTTP: insecure.WebhookAllowHTTP, Networks: f.WebhookNetworks, Ports: f.WebhookPorts,
		},
	}
	n.add("deliverer", (&delivery.Deliverer{Bus: n.bus, Sender: sender, Log: log, Metrics: deliveryMetrics(n.metrics)}).Run)
}

// addHealth shows the health of a process without a gateway, where that was asked for, and returns its URL.
func (n *node) addHealth(ctx context.Context, f metricsFlag, remote remoteFlag) (string, error) {
	if f.MetricsListen == nil {
		return "", nil
	}
	l, err := n.openListener(ctx, *f.MetricsListen, "metrics-listen", remote.AllowRemote)
	if err != nil {
		return "", err
	}
	n.metricsShown = true
	n.add("health", n.serveHealth(l))
	return "http://" + reach(l), nil
}

// addWorker opens the provider and adds a worker for it.
func (n *node) addWorker(f workerFlags, operator operatorFlags) error {
	flags, err := f.chosen()
	if err != nil {
		return err
	}
	p, err := flags.open(n, operator)
	if err != nil {
		return err
	}
	w := &workers.Worker{
		Bus: n.bus, Provider: supervisor.Wrap(p, supervisor.Options{}), Name: f.Provider, Specs: n.records, Limiter: n.limiter,
		AccountCap: f.AccountCap, Slots: f.Slots, Grace: f.Grace, JobLimit: f.SandboxJobs, AccountJobs: f.AccountJobs,
		ProbeEvery: f.ProbeEvery, CallbackURL: strings.TrimSuffix(f.CallbackURL, "/"), Log: n.log.With("part", "worker"), Metrics: workerMetrics(n.metrics),
	}
	n.add("worker", w.Run)
	return nil
}
