package main

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/topology"
)

// The flags of the roles. up has them all. A flag has the same meaning in every command, and is a key of the configuration file under the
// same name.

// natsFlags name the log to use instead of the embedded one.
type natsFlags struct {
	NATSURL      string `name:"nats-url" placeholder:"URL" group:"Log" help:"Outside NATS server or cluster, nats://HOST:PORT[,…]. Default: the embedded server of this data folder."`
	NATSUser     string `name:"nats-user" placeholder:"NAME" group:"Log" help:"User at the outside server."`
	NATSPassword string `name:"nats-password" placeholder:"TEXT" group:"Log" secret:"" help:"Its password. Prefer the environment: other users can see command lines."`
	NATSCreds    string `name:"nats-creds" placeholder:"FILE" group:"Log" help:"Credentials file (JWT and seed)."`
	NATSNKey     string `name:"nats-nkey" placeholder:"FILE" group:"Log" help:"File with an nkey seed."`
	NATSCA       string `name:"nats-ca" placeholder:"FILE" group:"Log" help:"Certificate authority of the server, PEM."`
	NATSCert     string `name:"nats-cert" placeholder:"FILE" group:"Log" help:"Client certificate, PEM."`
	NATSKey      string `name:"nats-key" placeholder:"FILE" group:"Log" help:"Key of the client certificate, PEM."`
}

// tenantFlags limit what one account may store on the log, and how much its NATS clients may use of the server and of the gateways.
type tenantFlags struct {
	AccountLogBytes     byteSize `placeholder:"SIZE" default:"0" group:"Log" help:"Maximum size of one account's calls and conversations on the log; above it the account's new calls are refused. 0: a quarter of what the log may keep. The account of --account has no limit."`
	AccountDurableBytes byteSize `placeholder:"SIZE" default:"0" group:"Log" help:"Maximum disk space of an account's durable streams on the log."`
	AccountRecords      byteSize `placeholder:"SIZE" default:"8MiB" group:"Log" help:"Maximum size of all records of one account together (sandboxes, workspaces, agents, models, variables, webhooks, channels, skills), as they lie on the log. The account of --account has no limit."`
	NATSConnections     int      `name:"nats-connections" placeholder:"N" default:"64" group:"Log" help:"Connections that one account's NATS clients may have to the embedded server at the same time."`
	NATSSubscriptions   int      `name:"nats-subscriptions" placeholder:"N" default:"1000" group:"Log" help:"Subscriptions of one NATS connection of an account, also at an outside server with an auth callout."`
	NATSPending         byteSize `name:"nats-pending" placeholder:"SIZE" default:"16MiB" group:"Log" help:"Bytes that may wait at the embedded server because an account's NATS clients do not read them; above, the connection with the most of them is closed."`
	NATSRequests        int      `name:"nats-requests" placeholder:"N" default:"5000" group:"Log" help:"Requests and publications that an account's NATS clients may make per second, at each process that takes them; more are refused. 0 means any number."`
}

// check returns an error for the first flag that is out of range.
func (f tenantFlags) check() error {
	const leastPending = 2 << 20 // one message and its overhead
	switch {
	case f.NATSConnections < 1:
		return schemas.Invalidf("nats-connections", "%d is out of range: at least 1", f.NATSConnections)
	case f.NATSSubscriptions < 1:
		return schemas.Invalidf("nats-subscriptions", "%d is out of range: at least 1", f.NATSSubscriptions)
	case f.NATSPending < leastPending:
		return schemas.Invalidf("nats-pending", "%s is out of range: at least %s", f.NATSPending, byteSize(leastPending))
	case f.NATSRequests < 0:
		return schemas.Invalidf("nats-requests", "%d is out of range: 0 for any number, or more", f.NATSRequests)
	}
	return nil
}

func (f tenantFlags) limits() natsauth.Limits {
	return natsauth.Limits{Connections: f.NATSConnections, Subscriptions: f.NATSSubscriptions, Pending: int64(f.NATSPending)}
}

// quotas returns the quotas of all accounts except own, which has none.
func (f tenantFlags) quotas(own schemas.AccountID) *streams.Quotas {
	return &streams.Quotas{Log: int64(f.AccountLogBytes), Durable: int64(f.AccountDurableBytes), Exempt: own}
}

func (f tenantFlags) shares() fair.Shares { return fair.Shares{PerSecond: f.NATSRequests} }

// topologyFlags are the layout of the streams of a new log. Replicas and shards are then stored in the log.
type topologyFlags struct {
	Replicas int `placeholder:"N" default:"0" group:"Log" help:"Replicas of each stream of a new log: 1, or 3 or 5 in a cluster. 0 keeps what an existing log has, and means 1 for a new one. An existing log is changed by \"sandjet log replicas\" only; one with fewer copies is not opened."`
	Shards   int `placeholder:"N" default:"0" group:"Log" help:"Event streams over which conversations are spread, up to 64; fixed when the log is created. 0 means 1 on an embedded server that up runs, else 16."`

	RecreateRecords bool `group:"Log" help:"Make a new bucket of records if the log has lost it. All accounts, keys, sandboxes and agents that it had are lost; conversations stay. Restore a backup instead if there is one."`
}

const maxShards = 64

// check returns an error for the first flag that is out of range.
func (f topologyFlags) check() error {
	if f.Replicas != 0 && !slices.Contains(topology.ReplicaCounts(), f.Replicas) {
		return schemas.Invalidf("replicas", "%d does not work: use 1, 3 or 5, or 0 for what the log has", f.Replicas)
	}
	if f.Shards < 0 || f.Shards > maxShards {
		return schemas.Invalidf("shards", "%d is out of range: 1 to %d, or 0 for what suits", f.Shards, maxShards)
	}
	return nil
}

// serverFlags are the flags of the embedded server.
type serverFlags struct {
	NATSListen address  `name:"nats-listen" placeholder:"HOST:PORT" default:"127.0.0.1:4222" group:"Log" help:"Address of the embedded NATS server for clients; port 0 takes a free one, the same as last time where possible."`
	Durability string   `placeholder:"MODE" default:"1s" enum:"always,1s,os" group:"Log" help:"When writes reach the disk: always (before they are confirmed), 1s (every second) or os (when the operating system decides). A killed process loses nothing in any mode."`
	MaxStore   byteSize `placeholder:"SIZE" default:"0" group:"Log" help:"Maximum size of the log, such as 10GiB; above 80 percent new work is refused. 0: three quarters of what is free and kept, as the disk changes."`
}

// gatewayFlags are the flags of the gateway.
type gatewayFlags struct {
	ModelNetworks []netip.Prefix `placeholder:"CIDR" group:"Security" help:"Private networks in which model servers may be, such as 10.20.0.0/16. A cloud's metadata service is never reached. Default: none; of \"sandjet up\" this host itself (127.0.0.0/8 and ::1/128)."`
	Listen        address        `placeholder:"HOST:PORT" default:"127.0.0.1:8080" group:"Gateway" help:"Address of the HTTP gateway; port 0 takes any free one."`
	Account       string         `placeholder:"ID" group:"Gateway" help:"Account to create at the start. Default: the one of the data folder."`
	Key           string         `placeholder:"KEY" group:"Gateway" secret:"" help:"API key of that account. Prefer the environment: other users can see command lines. Default: as --account."`
	MaxWait       time.Duration  `placeholder:"DURATION" default:"60s" group:"Gateway" help:"Maximum time a request may wait for a result with ?wait=."`
	MCPWait       time.Duration  `name:"mcp-wait" placeholder:"DURATION" default:"25s" group:"Gateway" help:"How long a request to /mcp is held for the result of its call; a call that takes longer continues. Keep it below the time-outs of clients."`
	ProviderGrace time.Duration  `placeholder:"DURATION" default:"10m" group:"Gateway" help:"How long calls of a provider are accepted after its last worker was seen; then they are refused, unless they set wait_for_worker."`
	natsAccessFlags
	adminFlag
	replayFlags
	connectionFlags
	requestFlags
	sessionFlags
	DurableStreams bool     `group:"Gateway" help:"Serve durable streams, sequences that clients keep, under /v1/streams."`
	E2B            bool     `name:"e2b" group:"Gateway" help:"Serve the client of E2B (npm: e2b): its sandboxes are sessions of /v1/sandbox."`
	OpenSignup     bool     `group:"Security" help:"Let anyone create an account without a key, five an hour from one address."`
	MaxAccounts    int      `default:"10000" placeholder:"N" group:"Security" help:"Accounts at which --open-signup stops; an administrator may create more."`
	Origins        []string `placeholder:"ORIGIN" group:"Gateway" help:"Browser origins that may use the API, such as https://app.example.com."`
}

// connectionFlags limit the connections to the HTTP listener.
type connectionFlags struct {
	MaxConnections           int `placeholder:"N" default:"0" group:"Gateway" help:"Maximum number of TCP connections to the gateway; more are refused. 0: three quarters of the descriptors that the process may have (ulimit -n), and one for each 320 KiB of its memory, 150000 at most; the rest is for the log and the sandboxes."`
	MaxConnectionsPerAddress int `placeholder:"N" default:"0" group:"Gateway" help:"Maximum number of TCP connections from one address (of IPv6 from one /64). Behind a proxy all come from the proxy's. 0: half of --max-connections."`
}

// check returns an error for the first flag that is out of range.
func (f connectionFlags) check() error {
	if most := web.MaxConnections(); f.MaxConnections < 0 || f.MaxConnections > most {
		return schemas.Invalidf("max-connections",
			"%d is out of range: 0 for what suits, or up to %d with the descriptors that this process may have: raise them with ulimit -n",
			f.MaxConnections, most)
	}
	if f.MaxConnectionsPerAddress < 0 {
		return schemas.Invalidf("max-connections-per-address",
			"%d is out of range: 0 for half of --max-connections, or more", f.MaxConnectionsPerAddress)
	}
	return nil
}

// requestFlags limit the requests in flight in the gateway, and their memory.
type requestFlags struct {
	MaxRequests    int      `placeholder:"N" default:"4096" group:"Gateway" help:"Concurrent requests of one account at this gateway; requests that wait or stream count for --max-sockets."`
	MaxRequestsAll int      `placeholder:"N" default:"16384" group:"Gateway" help:"Like --max-requests, for all accounts together."`
	BodyMemory     byteSize `placeholder:"SIZE" default:"64MiB" group:"Gateway" help:"Memory for the bodies of an account's requests; above it requests are refused with 429 or 503 and retried later."`
	BodyMemoryAll  byteSize `placeholder:"SIZE" default:"256MiB" group:"Gateway" help:"Like --body-memory, for all accounts together."`

	AnswerMemory    byteSize `placeholder:"SIZE" default:"64MiB" group:"Gateway" help:"Memory for what an account's clients have not read yet of answers and events above 16 KiB; above it requests are refused with 429 or 503, and streams wait."`
	AnswerMemoryAll byteSize `placeholder:"SIZE" default:"256MiB" group:"Gateway" help:"Like --answer-memory, for all accounts together."`
}

// leastBodyMemory is enough for one request of the largest size and its overhead.
const leastBodyMemory = schemas.MaxRequest + 64<<10

// check returns an error for the first flag that is out of range.
func (f requestFlags) check() error {
	for name, n := range map[string]int{"max-requests": f.MaxRequests, "max-requests-all": f.MaxRequestsAll} {
		if n < 1 {
			return schemas.Invalidf(name, "%d is out of range: at least 1", n)
		}
	}
	for name, n := range map[string]byteSize{"body-memory": f.BodyMemory, "body-memory-all": f.BodyMemoryAll} {
		if n < leastBodyMemory {
			return schemas.Invalidf(name, "%s is out of range: at least %s, for the largest request", n, byteSize(leastBodyMemory))
		}
	}
	for name, n := range map[string]byteSize{"answer-memory": f.AnswerMemory, "answer-memory-all": f.AnswerMemoryAll} {
		if n < gateway.LeastAnswers {
			return schemas.Invalidf(name, "%s is out of range: at least %s, for the largest answer", n, byteSize(gateway.LeastAnswers))
		}
	}
	return nil
}

// replayFlags limit how long events are retained, and the resources of clients that follow conversations.
type replayFlags struct {
	KeepEvents        time.Duration `placeholder:"DURATION" default:"168h" group:"Log" help:"How long the events of a conversation are kept, up to 912h; what runs is kept whole until then. All gateways of a log should say the same."`
	KeepEventsCount   int           `placeholder:"N" default:"100000" group:"Log" help:"How many events of a conversation are kept, up to 1000000; what runs is kept whole."`
	MaxSockets        int           `placeholder:"N" default:"10000" group:"Gateway" help:"WebSockets, event streams, long polls, waits for results and followed logs that an account may have at this gateway."`
	MaxSocketsAll     int           `placeholder:"N" default:"100000" group:"Gateway" help:"Like --max-sockets, for all accounts together."`
	MaxAttachments    int           `placeholder:"N" default:"100000" group:"Gateway" help:"Conversations that an account's sockets and streams may follow at this gateway."`
	MaxHandshakes     int           `placeholder:"N" default:"256" group:"Gateway" help:"WebSocket handshakes at the same time; above it they are refused and retried later."`
	SocketBytesPerSec byteSize      `name:"socket-bytes-per-second" placeholder:"SIZE" default:"0" group:"Gateway" help:"Bandwidth per second of all WebSockets of an account, such as 10MiB; more waits. 0 means no limit."`
	ReplayMemory      byteSize      `placeholder:"SIZE" default:"64MiB" group:"Gateway" help:"Approximate memory for the latest events of the conversations that clients follow; what does not fit is read from the log again."`
	ReplayCompression bool          `group:"Gateway" help:"Allow WebSockets to negotiate compression (permessage-deflate) of replayed events: several times fewer bytes, for some processor time. Live events are never compressed."`
}

// leastReplayMemory is enough for one page of a conversation.
const leastReplayMemory = 1 << 20

// check returns an error for the first flag that is out of range.
func (f replayFlags) check() error {
	switch {
	case f.KeepEvents < time.Hour || f.KeepEvents > streams.MaxKeepEvents:
		return schemas.Invalidf("keep-events", "%s is out of range: 1h to %s", f.KeepEvents, streams.MaxKeepEvents)
	case f.KeepEventsCount < 1 || f.KeepEventsCount > streams.MaxKeepEventsCount:
		return schemas.Invalidf("keep-events-count", "%d is out of range: 1 to %d", f.KeepEventsCount, streams.MaxKeepEventsCount)
	}
	for name, n := range map[string]int{
		"max-sockets": f.MaxSockets, "max-sockets-all": f.MaxSocketsAll, "max-attachments": f.MaxAttachments, "max-handshakes": f.MaxHandshakes,
	} {
		if n < 1 {
			return schemas.Invalidf(name, "%d is out of range: at least 1", n)
		}
	}
	if f.ReplayMemory < leastReplayMemory {
		return schemas.Invalidf("replay-memory", "%s is out of range: at least %s", f.ReplayMemory, byteSize(leastReplayMemory))
	}
	return nil
}

// check returns an error for the first flag that is out of range.
func (f gatewayFlags) check() error {
	return errors.Join(f.replayFlags.check(), f.connectionFlags.check(), f.requestFlags.check(), f.sessionFlags.check())
}

// limits returns the gateway's limits.
func (f gatewayFlags) limits() gateway.Limits {
	return gateway.Limits{
		Connections: web.Connections{All: f.MaxConnections, PerAddress: f.MaxConnectionsPerAddress},
		Requests:    f.MaxRequests, AllRequests: f.MaxRequestsAll, Bodies: int64(f.BodyMemory), AllBodies: int64(f.BodyMemoryAll),
		Answers: int64(f.AnswerMemory), AllAnswers: int64(f.AnswerMemoryAll),
		Sockets: f.MaxSockets, Attachments: f.MaxAttachments, AllSockets: f.MaxSocketsAll, Handshakes: f.MaxHandshakes,
		BytesPerSecond: int64(f.SocketBytesPerSec),
	}
}

// adminFlag is the administrator's key, which is valid for all accounts.
type adminFlag struct {
	AdminKey string `placeholder:"KEY" group:"Security" secret:"" help:"The administrator's bearer key, which creates, lists and removes accounts, at least 16 bytes. Prefer the environment: other users can see command lines. Default: none."`
}

// hash returns the hash by which the gateway recognizes the key; empty if there is none. Code: invalid.
func (f adminFlag) hash() (string, error) {
	const shortest = 16
	switch {
	case f.AdminKey == "":
		return "", nil
	case len(f.AdminKey) < shortest:
		return "", schemas.Invalidf("admin-key", "is %d bytes long: at least %d", len(f.AdminKey), shortest)
	}
	return records.HashKey(f.AdminKey), nil
}

// remoteFlag is the operator's permission for listeners that other hosts can reach.
type remoteFlag struct {
	AllowRemote bool `group:"Security" help:"Let listeners be reached from other hosts. There is no TLS here: put a proxy in front."`
}

// workerFlags are the flags of a worker. Those of its provider are in the table of backends.
type workerFlags struct {
	metricsFlag
	backendChoice
	s3Flags

	Slots            int           `placeholder:"N" default:"16" group:"Worker" help:"Maximum number of calls that a worker runs at the same time."`
	AccountCap       int           `placeholder:"N" default:"0" group:"Worker" help:"Maximum number of calls of one account that run at the same time, in all workers with the same --redis-url; 0 means as many as there are slots. Accounts take turns without it; below --slots it keeps some free for others also while one account is alone."`
	AccountSandboxes int           `placeholder:"N" default:"0" group:"Worker" help:"Persistent sandboxes of one account that run at the same time on each provider, in all its workers; calls that need one more wait. 0 means no limit."`
	AccountKeys      string        `name:"account-keys" placeholder:"WHEN" default:"off" enum:"off,prefer,require" group:"Worker" help:"Whether sandboxes of a service run with the key of their account, in its variables (E2B_API_KEY, DAYTONA_API_KEY, DENO_DEPLOY_TOKEN, MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID): off, prefer (the operator's key where it has none), or require (calls of accounts without one are refused)."`
	SandboxJobs      int           `placeholder:"N" default:"10" group:"Worker" help:"Background jobs that run in one sandbox at the same time, if its record has no limit."`
	AccountJobs      int           `placeholder:"N" default:"64" group:"Worker" help:"Background jobs of one account that run at the same time, in all workers with the same --redis-url; 0 means as many as its sandboxes take."`
	ProbeEvery       time.Duration `placeholder:"DURATION" default:"15s" group:"Worker" help:"How often the worker polls each background job, in case the report of its end was lost."`
	CallbackURL      string        `name:"callback-url" placeholder:"URL" group:"Worker" help:"URL of the gateway as seen from inside sandboxes, so that background jobs report their ends themselves. Default: workers poll them."`
	Grace            time.Duration `placeholder:"DURATION" default:"20s" group:"Worker" help:"How long running calls may take to finish after the worker was asked to stop."`
}

// operatorFlags are the limits that no record of an account may exceed. Gateways refuse such records and calls, and workers such boxes, so
// both need the same values.
type operatorFlags struct {
	Networks        []string       `placeholder:"MODE" default:"deny-all" group:"Security" help:"Network modes that sandboxes of this host may have: deny-all, restricted, which is the hosts and networks that a sandbox lists, and allow-all, which is everything public. Workers and gateways should say the same."`
	PrivateNetworks []netip.Prefix `placeholder:"CIDR" group:"Security" help:"Networks that sandboxes may reach though they are not public, such as 10.20.0.0/16, where their network is restricted and lists them too. A cloud's metadata service is never reached. Workers and gateways should say the same."`
	MaxMemory       byteSize       `placeholder:"SIZE" default:"4GiB" group:"Limits" help:"Maximum memory that a sandbox of this host may request; 0 means no limit. Workers and gateways should say the same."`
	MaxJobs         int            `placeholder:"N" default:"64" group:"Limits" help:"Maximum number of background jobs at the same time that a sandbox of this host may request; 0 means no limit. Workers and gateways should say the same."`
}

// check returns an error for the first flag that is out of range.
func (f operatorFlags) check() error {
	for _, n := range f.Networks {
		if !slices.Contains([]schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}, schemas.NetworkMode(n)) {
			return schemas.Invalidf("networks", "%q is unknown: use deny-all, restricted, allow-all or several of them", schemas.Quotable(n))
		}
	}
	const least = 16 << 20
	if f.MaxMemory != 0 && f.MaxMemory < least {
		return schemas.Invalidf("max-memory", "%s is out of range: at least %s, or 0 for no limit", f.MaxMemory, byteSize(least))
	}
	if f.MaxJobs < 0 || f.MaxJobs > schemas.MaxJobs {
		return schemas.Invalidf("max-jobs", "%d is out of range: 1 to %d, or 0 for no limit", f.MaxJobs, schemas.MaxJobs)
	}
	return nil
}

// modes returns the allowed network modes. DenyAll is always allowed.
func (f operatorFlags) modes() []schemas.NetworkMode {
	modes := []schemas.NetworkMode{schemas.DenyAll}
	for _, mode := range []schemas.NetworkMode{schemas.AllowAll, schemas.Restricted} {
		if slices.Contains(f.Networks, string(mode)) {
			modes = append(modes, mode)
		}
	}
	return modes
}

// metricsFlag is the address of a listener for the operator. A gateway that has one does not serve metrics to its clients.
type metricsFlag struct {
	MetricsListen *address `placeholder:"HOST:PORT" group:"Worker" help:"Address for the operator's /healthz, /readyz and /metrics. Default: nowhere; a gateway then shows /metrics itself, to the administrator alone where there is an --admin-key or --open-signup."`
}

// check returns an error for the first flag that is out of range.
func (f workerFlags) check() error {
	switch {
	case f.Slots < 1:
		return schemas.Invalidf("slots", "%d is out of range: at least 1", f.Slots)
	case f.AccountCap < 0:
		return schemas.Invalidf("account-cap", "%d is out of range: 0 for none, or more", f.AccountCap)
	case f.AccountSandboxes < 0:
		return schemas.Invalidf("account-sandboxes", "%d is out of range: 0 for none, or more", f.AccountSandboxes)
	case f.Grace <= 0:
		return schemas.Invalidf("grace", "%s is out of range: more than 0", f.Grace)
	case f.SandboxJobs < 1 || f.SandboxJobs > schemas.MaxJobs:
		return schemas.Invalidf("sandbox-jobs", "%d is out of range: 1 to %d", f.SandboxJobs, schemas.MaxJobs)
	case f.AccountJobs < 0:
		return schemas.Invalidf("account-jobs", "%d is out of range: 0 for none, or more", f.AccountJobs)
	case f.ProbeEvery <= 0:
		return schemas.Invalidf("probe-every", "%s is out of range: more than 0", f.ProbeEvery)
	}
	return errors.Join(f.backendChoice.check(), f.s3Flags.check(), checkCallback(f.CallbackURL))
}

func checkCallback(address string) error {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return nil
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return schemas.Invalidf("callback-url", "%q is not a URL such as https://sandjet.example.com", schemas.Quotable(address))
	case u.User != nil:
		return schemas.Invalidf("callback-url", "holds a user or password: each job has a token of its own")
	}
	return nil
}

// limiterFlags say where caps, and the rates of chats, are counted.
type limiterFlags struct {
	RedisURL string `name:"redis-url" placeholder:"URL" group:"Limits" help:"Redis server that counts caps for all workers and the pace of chats for all deliverers, redis://HOST:6379/0; set a URL with a password by the environment. Default: each process counts for itself."`
}

// kmsFlags are the endpoint of AWS KMS.
type kmsFlags struct {
	KMSEndpoint string `name:"kms-endpoint" placeholder:"URL" group:"Security" help:"Endpoint of AWS KMS, such as a VPC endpoint. Default: that of the key's region."`
}

// secretsFlags are the keys that encrypt secrets in the log.
type secretsFlags struct {
	kmsFlags

	SecretsKeyFile string `placeholder:"FILE" group:"Security" help:"Keys that encrypt secrets in the log, one line \"ID BASE64\" each; the first encrypts. All processes on a log need the same file. Default: secrets.key in the data folder, created once."`
	SecretsKeys    string `placeholder:"TEXT" group:"Security" secret:"" help:"The same as text, with commas between the lines. Prefer the environment: other users can see command lines."`
}

// insecureFlag allows webhooks without TLS. The gateways that accept them and the deliverers must have the same value.
type insecureFlag struct {
	WebhookAllowHTTP bool `name:"webhook-allow-http" group:"Security" help:"Take and use webhooks without TLS. For development only: bodies can be read on the way."`
}

// deliveryFlags are the flags of the deliverer of webhooks and chat messages.
type deliveryFlags struct {
	WebhookAllowLoopback bool           `group:"Security" help:"Let webhooks lead to this host. For development only: accounts could reach what listens here."`
	WebhookNetworks      []netip.Prefix `placeholder:"CIDR" group:"Security" help:"Networks that webhooks may lead to though they are not public, such as 10.20.0.0/16."`
	WebhookPorts         []uint16       `placeholder:"PORT" group:"Security" help:"Ports that webhooks may lead to beside 443 and 8443."`
	ChatURLs             []string       `name:"chat-urls" placeholder:"KIND=URL" group:"Security" help:"Where chat services are reached, in place of their own addresses, such as telegram=https://bots.example.com: a server or proxy of your own. Credentials of channels go there."`
}
