// Package lambda is the provider that runs commands in functions of AWS Lambda.
//
// # Functions
//
// Four functions with the same program (package handler, deploy/lambda) differ in what their commands reach: files of workspaces or
// none, the internet or nothing. Each run is one synchronous invocation of one of them, chosen by the run alone. There is no kept
// sandbox: a command has a scratch folder that is gone after it, and the files of its workspace, which stay.
//
// # Once
//
// Lambda is asked once. It is asked again only where it has said that nothing was started (see table), and never by its client library.
// Where the answer is lost, what the command has done is not known, and it may continue until its time limit: there is no way to end it,
// nor to read its output before its end.
//
// # Rules
//
// The provider lambda makes each run one synchronous invocation of one of four functions, by its workspace and its network.
//
//   - Once: the library's retries are off. Asked again is only what Lambda itself says it has not started, by its own names (table in
//     providers/lambda/errors.go): 429 and a network without room for 20 seconds in all, and not before Retry-After says so; a
//     function that AWS prepares for 2 minutes; a mount that failed once; a connection that was never made once. 5xx without such a
//     name, and a connection that breaks, may come after the start: the run is interrupted. Redirects are not followed.
//   - Not late: a request says when its command is started at the latest (not_after_ms), so that the end which is reckoned for a run holds
//     also if AWS begins its invocation when the caller has stopped waiting. The clock is AWS's, as the Date of its answers has it.
//   - What is not known is not called a success: an answer must have an exit code or say that the time was over. An error of the
//     function, which comes with the status 200, is interrupted (its environment is gone, and the command with it), or a timeout where
//     Lambda says so.
//   - A cancelled run continues, which its result says in place of "killed". The profile has unattended: output comes with the end, no more
//     than the result's. A call whose worker has died or stopped ends when nothing of it can be left: a worker knows when its own runs have
//     ended at the latest, another waits for providers.RunLimit, as ADR 97 says.
//   - The program in the function (handler) clears the variables, starts the command through Landlock and seccomp, is the parent of
//     all orphans, and answers when the kernel says that it has no child left: so nothing is frozen. It cannot be read by commands
//     (its variables have the function's credentials). It ends a command two seconds before the function's own limit, at which all
//     output would be lost; it empties /tmp; and it has the file system write before it answers.
//   - Accounts: functions are made for tenants (TenancyConfig), and the tenant is the account: environments are never shared. Workspaces
//     are kept apart by Landlock; a kernel without it refuses commands, unless the operator allows that function to run them, and then
//     results say level L0.
//   - Networks: with deny-all the function's subnets lead nowhere, and seccomp refuses sockets besides, since name servers and the
//     runtime API can be reached from there. restricted is off by default. Where the operator allows it nothing can be reached, and
//     results say so.
//   - The double (lambdatest) checks signatures, and runs environments as processes in which the vendor's own loop runs; the vendor's
//     client is on the other side.
//
// # Considered
//
// Response streaming: live output and 200 MB, but cancelling ends nothing there either, and both ends need a protocol of their own; it can
// be added without changing the contract. Events: Lambda repeats them. A file that stops a running command: it would work only with a
// workspace, be seen after the cache of the file system, and cost a second invocation. The SDK's retryer with a list of codes: it would do,
// but what is repeated is the heart of this package, and is better read in one table. Terraform, CDK: see 106.
package lambda

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Functions are the names or ARNs of the functions, by what their commands can reach. Runs that need a function without a name are
// refused.
type Functions struct {
	MountNet, MountNoNet, NoMountNet, NoMountNoNet string
}

// Of returns the function for a run.
func (f Functions) Of(mount, net bool) string {
	switch {
	case mount && net:
		return f.MountNet
	case mount:
		return f.MountNoNet
	case net:
		return f.NoMountNet
	default:
		return f.NoMountNoNet
	}
}

// Options are the settings of [Open]. At least one function must be named.
type Options struct {
	Functions Functions
	Region    string // empty: as AWS's own programs find it, such as AWS_REGION
	Endpoint  string // another address of Lambda; empty: the region's
	// Networks are the modes that the operator allows; empty: deny-all alone. Under restricted a command reaches nothing, whatever
	// its lists say: functions have no rules for names.
	Networks []schemas.NetworkMode
	// SharedEnvironments says that the functions are not made for tenants (TenancyConfig): then execution environments that have
	// served one account serve others.
	SharedEnvironments bool
	Credentials        aws.CredentialsProvider // nil: as AWS's own programs find them
	Log                *slog.Logger            // nil: nothing is logged
}

// Provider runs commands in functions. Its methods are safe for concurrent use.
type Provider struct {
	opt    Options
	log    *slog.Logger
	client *lambda.Client
	creds  aws.CredentialsProvider
	http   *http.Client
	ahead  atomic.Int64 // how far AWS's clock is ahead of this host's, as its last answer had it

	mu   sync.Mutex
	runs map[string]time.Time // when runs of this process have ended at the latest whose end was not seen, by their ids
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// Open reads the settings of AWS and checks the options. It sends no request: see [Diagnose]. Code: invalid.
func Open(ctx context.Context, o Options) (*Provider, error) {
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	p := &Provider{opt: o, log: o.Log, runs: map[string]time.Time{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	base := awshttp.NewBuildableClient().WithTransportOptions(transport) // AWS_CA_BUNDLE adds to it
	loads := []func(*config.LoadOptions) error{config.WithHTTPClient(base)}
	if o.Region != "" {
		loads = append(loads, config.WithRegion(o.Region))
	}
	if o.Credentials != nil {
		loads = append(loads, config.WithCredentialsProvider(o.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, loads...)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "", "the settings of AWS cannot be read", err)
	}
	if cfg.Region == "" {
		return nil, schemas.Invalidf("lambda-region", "is missing: set AWS_REGION, or --lambda-region")
	}
	built, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		built = base
	}
	p.opt.Region, p.creds, p.http = cfg.Region, cfg.Credentials, &http.Client{
		Transport:     tracing{built.GetTransport(), &p.ahead},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would be sent twice
	}
	p.client = lambda.NewFromConfig(cfg, func(c *lambda.Options) {
		c.HTTPClient = p.http
		c.Retryer = aws.NopRetryer{} // what is asked again, and when, is ours to say
		if o.Endpoint != "" {
			c.BaseEndpoint = aws.String(o.Endpoint)
		}
	})
	return p, nil
}

// check returns an error for the first invalid option.
func (o Options) check() error {
	if o.Functions == (Functions{}) {
		return schemas.Invalidf("lambda-fn-nomount-nonet",
			"and the other functions are missing: set SANDBOX_FN_MOUNT_NET, SANDBOX_FN_MOUNT_NONET, "+
				"SANDBOX_FN_NOMOUNT_NET, SANDBOX_FN_NOMOUNT_NONET")
	}
	for field, name := range map[string]string{
		"lambda-fn-mount-net": o.Functions.MountNet, "lambda-fn-mount-nonet": o.Functions.MountNoNet,
		"lambda-fn-nomount-net": o.Functions.NoMountNet, "lambda-fn-nomount-nonet": o.Functions.NoMountNoNet,
	} {
		if len(name) > 170 || strings.ContainsFunc(name, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_:$.", r)
		}) {
			return schemas.Invalidf(field, "%q is not the name or ARN of a function", schemas.Quotable(name))
		}
	}
	for _, n := range o.Networks {
		if !slices.Contains(Declared().Networks, n) {
			return schemas.Invalidf("lambda-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(string(n)))
		}
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return schemas.Invalidf("lambda-endpoint", "%q is not a URL such as https://vpce-1.lambda.eu-west-1.vpce.amazonaws.com",
			schemas.Quotable(o.Endpoint))
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return schemas.Invalidf("lambda-endpoint", "must be https: commands and their variables go there")
	}
	return nil
}

// transport sets up keep-alives for long invocations: a gateway in between drops connections that are silent for 350 seconds.
func transport(t *http.Transport) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4,
	}}
	t.DialContext, t.MaxIdleConnsPerHost, t.IdleConnTimeout = dialer.DialContext, 256, time.Minute
}

// Close ends idle connections. Invocations continue.
func (p *Provider) Close() error {
	p.http.CloseIdleConnections()
	return nil
}

// function returns the name of the function for a run, and which of the four it is.
func (p *Provider) function(cmd providers.Command) (name, slot string) {
	mount, net := len(cmd.Mounts) > 0, cmd.Network.Mode == schemas.AllowAll
	slot = map[bool]string{true: "MOUNT", false: "NOMOUNT"}[mount] + "_" + map[bool]string{true: "NET", false: "NONET"}[net]
	return p.opt.Functions.Of(mount, net), slot
}

// tenant returns the tenant id by which Lambda isolates the execution environments of an account; nil if environments are shared.
func (p *Provider) tenant(a schemas.AccountID) *string {
	if p.opt.SharedEnvironments {
		return nil
	}
	return aws.String(cmp.Or(string(a), "none"))
}
