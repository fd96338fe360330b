package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/delivery/chat/redispace"
	"github.com/sandjet/sandjet/delivery/inbox"
	"github.com/sandjet/sandjet/delivery/webhook"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/served"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/workers"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/limits/redislimits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// node is one process of Sandjet while it is built: what was opened, in that order, and the parts that will run.
type node struct {
	log      *slog.Logger
	dir      dataDir
	metrics  *prometheus.Registry
	server   *streams.Server
	auth     *natsauth.Authenticator // authenticates the clients of server
	bus      *streams.Bus
	logURL   string // address of the log's server
	records  *records.Store
	ring     *seal.Ring                    // keys that encrypt the records' secrets
	keys     atomic.Pointer[records.Store] // records, for the authentication at server, which starts before them
	limiter  limits.Limiter                // nil in a process that counts no caps
	actors   []actor
	keepers  []maintenance.Housekeeper // run beside the actors, and restarted when they fail
	closers  []func()
	endpoint endpoint

	provider     string                                                          // of this process's first worker; empty without a worker
	accountKeys  string                                                          // value of --account-keys
	metricsShown bool                                                            // they have a listener of their own
	agentTurns   func(context.Context, schemas.AccountID, schemas.AgentID) error // checks that an agent's turns can run here; nil in a process that runs none
	quotas       *streams.Quotas                                                 // of accounts, in a process that accepts their work
	disk         func() string                                                   // describes the lack of space for workspaces; nil without a worker
	marker       *inbound.Marker                                                 // marks chat messages as seen; nil in a process without chats
	chatOf       func(kind string) (channel.Adapter, bool)                       // finds the adapter of a chat service; nil in a process without chats
}

func newNode(log *slog.Logger, path string) (*node, error) {
	dir, err := openDataDir(path)
	if err != nil {
		return nil, err
	}
	dir.secure(log)
	boundMemory()
	return &node{log: log, dir: dir, metrics: newRegistry()}, nil
}

// onClose registers a function that closes what was just opened.
func (n *node) onClose(f func()) { n.closers = append(n.closers, f) }

// close calls the functions of onClose, the last first. It may be called after building has failed.
func (n *node) close() {
	for _, f := range slices.Backward(n.closers) {
		f()
	}
	n.closers = nil
}

// run runs the parts until ctx ends or one of them does. Housekeepers are restarted instead.
func (n *node) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		n.log.Info("stopping: running calls finish first; a second signal ends at once", "cause", context.Cause(ctx))
	})()
	actors := n.actors
	if len(n.keepers) > 0 {
		s := &maintenance.Supervisor{Housekeepers: n.keepers, Log: n.log.With("part", "maintenance"), Failed: failures(n.metrics)}
		actors = append(slices.Clone(actors), actor{name: "maintenance", run: s.Run})
	}
	return runAll(ctx, actors)
}

func (n *node) add(name string, run func(context.Context) error) {
	n.actors = append(n.actors, actor{name: name, run: run})
}

// housekeep adds a part that is restarted when it fails, instead of ending the process.
func (n *node) housekeep(name string, run func(context.Context) error) {
	n.keepers = append(n.keepers, maintenance.Housekeeper{Name: name, Run: run})
}

// addLast adds a part that is stopped after the others: it answers requests that wait for the results of the last calls.
func (n *node) addLast(name string, run func(context.Context) error) {
	n.actors = append(n.actors, actor{name: name, run: run, last: true})
}

const drainPatience = 10 * time.Second // at the end, for messages that the log has not acknowledged yet

// openServer starts the embedded server and writes its address to role.json, where the other roles find it.
func (n *node) openServer(ctx context.Context, f serverFlags, t tenantFlags, id identity) error {
	r, err := n.dir.role()
	if err != nil {
		return err
	}
	at := f.NATSListen
	if at.port == 0 { // the other roles retry the address that they know
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
	n.server, err = streams.StartServer(ctx, embedded.Options{
		DataDir: n.dir.store(), Host: at.host, Port: at.port, Durability: embedded.Durability(f.Durability),
		MaxStore: int64(f.MaxStore), Name: "sandjet", Log: n.log,
		Auth: n.auth,
	}, t.shares())
	if err != nil {
		return fmt.Errorf("embedded server: %w", err)
	}
	n.onClose(n.server.Shutdown)
	n.addLast("server", n.server.Run)
	r.URL = n.server.URL()
	n.endpoint.NATSURL = credentials(r.URL, string(id.Account), id.Key)
	return writeJSON(n.dir.roleFile(), r)
}

// openBus connects to the log: of the server of this process, of the server that the flags name, or of the one that runs on the data
// folder. Code unavailable: there is none.
func (n *node) openBus(ctx context.Context, f natsFlags, top topologyFlags) error {
	o := streams.Options{
		Server: n.server, URL: f.NATSURL, User: f.NATSUser, Password: f.NATSPassword, Creds: f.NATSCreds, NKey: f.NATSNKey,
		CA: f.NATSCA, Cert: f.NATSCert, Key: f.NATSKey, Replicas: top.Replicas, Shards: top.Shards, Name: "sandjet",
		RecreateRecords: top.RecreateRecords,
		Log:             n.log, Quotas: n.quotas,
	}
	if n.server == nil && o.URL == "" {
		r, err := readJSON[role](n.dir.roleFile())
		if err != nil || r.URL == "" {
			return schemas.Errorf(schemas.Unavailable,
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
			n.log.Warn("log not closed cleanly", "error", err)
		}
	})
	return nil
}

// logPatience limits how long a starting role waits for its log. Servers and roles are often started at the same time, and a cluster takes
// seconds to elect a leader.
const logPatience = time.Minute

// awaitBus connects to the log as openBus does, and waits for a log that is not ready, up to logPatience.
func (n *node) awaitBus(ctx context.Context, f natsFlags, top topologyFlags) error {
	again, end := wait.Backoff{First: 200 * time.Millisecond, Most: 2 * time.Second}, time.Now().Add(logPatience)
	for try := 1; ; try++ {
		err := n.openBus(ctx, f, top)
		if schemas.CodeOf(err) != schemas.Unavailable || n.server != nil || n.logURL == "" || time.Now().After(end) {
			return err
		}
		if try == 1 {
			n.log.Warn("log not ready, waiting", "for", logPatience, "error", err)
		}
		if !again.Sleep(ctx, try) {
			return fmt.Errorf("wait for the log: %w", context.Cause(ctx))
		}
	}
}

// openRecords opens the records with the keys that encrypt their secrets.
func (n *node) openRecords(ctx context.Context, f secretsFlags, nats natsFlags) error {
	ring, err := f.ring(ctx, n.dir)
	if err != nil {
		return err
	}
	if nats.NATSURL != "" && !f.named() {
		n.log.Warn("secrets are encrypted with the key of this data folder: other processes on the log need it too, by --secrets-key-file or "+
			"SANDJET_SECRETS_KEYS",
			"key", ring.Current())
	}
	n.ring = ring
	if n.records, err = records.Open(ctx, n.bus, ring, catalogOf(n.provider)); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	n.records.Log = n.log.With("part", "records")
	n.followKeys(n.records)
	n.addLast("records", n.records.Run)
	return nil
}

// openLimiter opens the limiter that counts the caps: in Redis if --redis-url names it, else own, which may be nil. An unreachable Redis
// is no error: calls under caps wait until it is reachable.
func (n *node) openLimiter(ctx context.Context, f limiterFlags, own limits.Limiter) error {
	if n.limiter = own; f.RedisURL == "" {
		return nil
	}
	shared, err := redislimits.Open(f.RedisURL)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	n.limiter = shared
	n.onClose(func() { _ = shared.Close() }) // slots that are still occupied expire by themselves
	if err := shared.Ping(ctx); err != nil {
		n.log.Warn("limiter not reachable yet, calls under caps wait", "error", err)
	}
	return nil
}

// addGateway creates the account if it is missing and adds the parts that accept calls: the gateway on the listener, and the consumers of
// calls published over NATS.
func (n *node) addGateway(ctx context.Context, f gatewayFlags, operator operatorFlags, t tenantFlags, insecure insecureFlag,
	id identity, l net.Listener) error {
	admin, err := f.hash()
	if err != nil {
		return err
	}
	n.records.Operator = records.Operator{
		Networks: operator.modes(), MaxMemory: int64(operator.MaxMemory), MaxJobs: operator.MaxJobs, PrivateNetworks: operator.PrivateNetworks,
		ModelNetworks: f.ModelNetworks,
	}
	n.records.Quota = records.Quota{Bytes: int64(t.AccountRecords), Exempt: id.Account}
	if _, err := n.records.Accounts.Ensure(ctx, records.Bootstrap{Account: id.Account, Key: id.Key,
		Provider: catalogOf(n.provider).Default()}); err != nil {
		return fmt.Errorf("account: %w", err)
	}
	serving := &served.Providers{Bus: n.bus, Grace: f.ProviderGrace}
	n.addLast("served providers", serving.Run)
	n.records.Living = serving
	sessions, err := f.sandboxes(catalogOf(n.provider).Default(), operator, os.LookupEnv)
	if err != nil {
		return err
	}
	sessions.Store = n.records.Sessions
	g := gateway.New(gateway.Options{
		Serving: serving, Sandboxes: sessions,
		Bus: n.bus, Records: n.records, Log: n.log.With("part", "gateway"), Version: readBuild().Version, MaxWait: f.MaxWait,
		MCPWait:  f.MCPWait,
		Registry: n.metrics, MetricsElsewhere: n.metricsShown, Providers: catalog().Names(), Origins: f.Origins,
		// All providers have these actions, through package supervisor.
		Tools:      func(d schemas.Dialect) (any, error) { return tools.DefinitionsFor(d, schemas.JobActions()) },
		AgentTools: agentTools,
		AgentTurns: n.agentTurns,
		Skills:     n.records.Skills,
		Channels:   n.records.Channels, ChannelKinds: channelKinds(chats()),
		ChatReceiver: chatReceiver(chats()), ChatSeen: n.chatSeen, ChatSetup: n.chatSetup,
		Endpoints: n.records.Endpoints, AllowInsecureWebhooks: insecure.WebhookAllowHTTP,
		NATS: n.records.Accounts, NATSURL: n.natsURL(f.natsAccessFlags),
		Workspace: n.records.WorkspaceFiles,
		Accounts: &accounts.Store{
			Accounts: n.records.Accounts, Documents: n.records.Documents, Manifests: n.records.Manifests, Variables: n.records.Variables,
		},
		AdminKeyHash: admin, OpenSignup: f.OpenSignup, MaxAccounts: f.MaxAccounts, DurableStreams: f.DurableStreams, OwnAccount: id.Account, E2B: f.E2B,
		CanPause: canPause,
		Keys:     n.records.Accounts, Disk: n.disk, Limits: f.limits(), ReplayBytes: int(f.ReplayMemory), ReplayCompression: f.ReplayCompression,
	})
	if err := n.addCallout(f.natsAccessFlags, t); err != nil {
		return err
	}
	n.addLast("gateway", func(ctx context.Context) error { return g.Run(ctx, l) })
	n.add("end of sandbox sessions", g.EndSandboxes)
	n.add("intake consumer", (&natsapi.IntakeConsumer{Bus: n.bus, Records: n.records, Log: n.log.With("part", "intake consumer")}).Run)
	n.housekeep("retention", (&streams.Retention{Bus: n.bus, Log: n.log.With("part", "retention"), Keep: f.KeepEvents,
		Count: f.KeepEventsCount, Gone: n.gone}).Run)
	if n.server == nil { // an embedded server, even another process's, handles the intake itself
		n.add("intake", streams.IntakeDoor{Bus: n.bus, Shares: t.shares()}.Run)
	}
	n.add("NATS service", (&natsapi.Service{
		Bus: n.bus, Records: n.records, Log: n.log.With("part", "NATS service"), DefaultAccount: id.Account, Shares: t.shares(), Serving: serving,
	}).Run)
	n.endpoint.URL = "http://" + reach(l)
	n.endpoint.Account, n.endpoint.Key = id.Account, id.Key
	return nil
}

// canPause reports whether a provider of this build can pause instances of persistent sandboxes.
func canPause(provider string) bool {
	p, ok := catalog().Find(provider)
	return ok && p.Pause != ""
}

// gone reports whether an account was removed. It is false for an account that merely has no record: if the records were lost, its
// conversations must not be deleted too.
func (n *node) gone(ctx context.Context, a schemas.AccountID) bool {
	is, err := n.removed(ctx, a)
	return is && err == nil
}

// removed reports whether an account was removed; false with a nil error means that it exists.
func (n *node) removed(ctx context.Context, a schemas.AccountID) (bool, error) {
	_, err := n.records.Accounts.Get(ctx, a)
	if errors.Is(err, streams.ErrDeleted) {
		return true, nil
	}
	return false, err
}

// addHousekeepers adds the housekeepers that forward exhausted messages to the dead letters, write the results of calls among them, and
// settle the ends of background jobs. All processes that run them share the work.
func (n *node) addHousekeepers() {
	n.housekeep("dead letters", (&streams.DeadLetterForwarder{Bus: n.bus, Log: n.log.With("part", "dead letters")}).Run)
	n.housekeep("call expirer", (&maintenance.CallExpirer{
		Bus: n.bus, Providers: catalog().Names(), Log: n.log.With("part", "call expirer"),
	}).Run)
	n.housekeep("settler", (&maintenance.Settler{
		Bus: n.bus, Limiter: n.limiter, Endpoints: n.records.Endpoints, Log: n.log.With("part", "settler"), Metrics: settlerMetrics(n.metrics),
	}).Run)
}

// addGatewayHousekeepers adds the housekeepers that rescue jobs without a worker, expire approvals, and clean up skills and durable
// streams. They run beside a gateway, so that they need no worker. One of the processes that have them does the work.
func (n *node) addGatewayHousekeepers() {
	n.housekeep("approval expirer", (&maintenance.ApprovalExpirer{Bus: n.bus, Log: n.log.With("part", "approval expirer")}).Run)
	n.housekeep("stream cleaner", (&durable.StreamCleaner{
		Bus: n.bus, Accounts: n.records.Accounts, Log: n.log.With("part", "stream cleaner"),
	}).Run)
	n.housekeep("skill cleaner", (&maintenance.SkillCleaner{
		Bus: n.bus, Records: n.records.Skills, Log: n.log.With("part", "skill cleaner"),
	}).Run)
	n.housekeep("job rescuer", (&maintenance.JobRescuer{
		Bus: n.bus, Endpoints: n.records.Endpoints, Log: n.log.With("part", "job rescuer"),
	}).Run)
}

// addDeliverer adds the parts that post events to webhooks and send messages to chats.
func (n *node) addDeliverer(ctx context.Context, f deliveryFlags, shared limiterFlags, insecure insecureFlag) error {
	if f.WebhookAllowLoopback || insecure.WebhookAllowHTTP {
		n.log.Warn("webhooks may reach this host or go without TLS: for development only",
			"allow_loopback", f.WebhookAllowLoopback, "allow_http", insecure.WebhookAllowHTTP)
	}
	log := n.log.With("part", "deliverer")
	sender := &webhook.Sender{
		Now:       n.bus.Now,
		Endpoints: n.records.Endpoints, Log: log,
		Policy: webhook.Policy{
			AllowLoopback: f.WebhookAllowLoopback, AllowHTTP: insecure.WebhookAllowHTTP, Networks: f.WebhookNetworks, Ports: f.WebhookPorts,
		},
	}
	metrics := deliveryMetrics(n.metrics)
	n.add("deliverer", (&delivery.Deliverer{Bus: n.bus, Sender: sender, Log: log, Metrics: metrics}).Run)
	pace, err := n.openPace(ctx, shared)
	if err != nil {
		return err
	}
	return n.addChats(f, pace, metrics)
}

// openPace opens the rate limits of chats that the deliverers of all processes share, in Redis; nil if none is named. An unreachable Redis
// is no error: until it is reachable each deliverer limits its own messages.
func (n *node) openPace(ctx context.Context, f limiterFlags) (chat.Pacer, error) {
	if f.RedisURL == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	shared, err := redispace.Open(f.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("the pace of chats: %w", err)
	}
	n.onClose(func() { _ = shared.Close() })
	if err := shared.Ping(ctx); err != nil {
		n.log.Warn("shared rate limits of chats not reachable yet, limiting alone", "error", err)
	}
	return shared, nil
}

// addChats adds a deliverer for each chat service, and the parts that store files from chats and mark messages as seen.
func (n *node) addChats(f deliveryFlags, pace chat.Pacer, metrics delivery.Metrics) error {
	adapters, err := openChats(chats(), f.ChatURLs)
	if err != nil {
		return err
	}
	messages := chatMetrics(n.metrics)
	byKind := map[string]channel.Adapter{}
	for _, a := range adapters {
		byKind[a.Profile().Kind] = a
	}
	n.chatOf = func(kind string) (channel.Adapter, bool) {
		a, ok := byKind[kind]
		return a, ok
	}
	files := &inbox.Sender{
		Bus: n.bus, Channels: n.records.Channels, Adapter: n.chatOf, Workspace: n.records.ChannelWorkspace, Endpoints: n.records.Endpoints.List,
		Stored: chatFileMetrics(n.metrics), Log: n.log.With("part", "inbox"),
	}
	n.add("inbox", (&delivery.Deliverer{
		Bus: n.bus, Channel: schemas.InboxChannel, Sender: files, Slots: inbox.Slots, Waits: inbox.Waits(), Log: files.Log, Metrics: metrics,
	}).Run)
	n.marker = inbound.NewMarker(n.chatOf, n.log.With("part", "chat marker"))
	n.add("chat marker", n.marker.Run)
	for _, a := range adapters {
		kind := a.Profile().Kind
		log := n.log.With("part", kind+" deliverer")
		sender := &chat.Sender{Bus: n.bus, Channels: n.records.Channels, Adapter: a, Render: rendered, Pacer: pace, Digest: n.paceDigest,
			Log: log, Metrics: messages}
		n.add(kind+" deliverer", (&delivery.Deliverer{Bus: n.bus, Channel: kind, Sender: sender, Log: log, Metrics: metrics}).Run)
	}
	return nil
}

// paceDigest returns a digest that represents a chat credential in shared rate limits. It is the same in all processes with the log's keys
// for secrets, and does not reveal the credential. ok is false if there are no keys.
func (n *node) paceDigest(text string) (string, bool) {
	_, digest, err := n.ring.Derive("", "pace of chats", []byte(text))
	return hex.EncodeToString(digest[:min(len(digest), 16)]), err == nil
}

// chatSeen marks a chat message as seen, if this process speaks to chat services. A gateway alone does not, so that it needs no access to
// the internet.
func (n *node) chatSeen(c schemas.ChatChannel, in channel.Inbound) {
	if n.marker != nil {
		n.marker.Seen(c, in)
	}
}

// chatSetup registers hook with a chat service as the address that it posts messages to. It returns false if the service has no API for
// that, or if this process does not speak to chat services. Codes: denied, unavailable.
func (n *node) chatSetup(ctx context.Context, c schemas.ChatChannel, hook *url.URL) (registered bool, err error) {
	if n.chatOf == nil {
		return false, nil
	}
	a, _ := n.chatOf(c.Kind)
	r, ok := a.(channel.Registrar)
	if !ok {
		return false, nil
	}
	err = r.Register(ctx, channel.Destination{Credential: c.Secrets, Settings: c.Settings}, hook)
	var failed *channel.Error
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &failed):
		return false, err
	case failed.Outcome == channel.Refused:
		return false, schemas.Wrap(schemas.Denied, "", c.Kind+" refuses: "+failed.Reason, err)
	}
	return false, schemas.Wrap(schemas.Unavailable, "", c.Kind+" does not answer: "+failed.Reason, err)
}

// addHealth serves the health and metrics of a process without a gateway, if --metrics-listen is set, and returns their URL.
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

// addWorkers opens the providers that the flags name and adds a worker for each.
func (n *node) addWorkers(f workerFlags, operator operatorFlags) error {
	flags, err := f.chosen()
	if err != nil {
		return err
	}
	files, err := n.newS3(f.s3Flags, operator)
	if err != nil {
		return err
	}
	n.accountKeys = f.AccountKeys
	metrics := workerMetrics(n.metrics)
	for _, name := range f.Providers {
		p, err := flags[name].open(n, operator)
		if err != nil {
			return err
		}
		w := &workers.Worker{
			Bus: n.bus, Provider: supervisor.Wrap(p, supervisor.Options{}), Name: name, Specs: n.records, Skills: n.records.Skills, Limiter: n.limiter,
			Removed:    n.removed,
			AccountCap: f.AccountCap, AccountSandboxes: f.AccountSandboxes, Slots: f.Slots, Grace: f.Grace,
			JobLimit: f.SandboxJobs, MaxJobs: operator.MaxJobs, AccountJobs: f.AccountJobs,
			ProbeEvery: f.ProbeEvery, CallbackURL: strings.TrimSuffix(f.CallbackURL, "/"), Log: n.log.With("part", "worker"),
			Metrics: metrics,
		}
		files.serve(w, name, p)
		n.add("worker "+name, w.Run)
	}
	return nil
}
