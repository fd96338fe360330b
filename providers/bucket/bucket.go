package bucket

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Limits of requests.
const (
	// PartSize is how many bytes one request carries at most: larger files are read and written in parts of that size.
	PartSize = 8 << 20
	// maxAnswer is how many bytes an answer has that is no file: a page of a list has a thousand keys.
	maxAnswer = 8 << 20
	// attempts is how often one request is made.
	attempts = 8
	// longestPause is the longest wait between two of them.
	longestPause = 5 * time.Second
	// requestWithin is what a request may take with all its attempts; transferWithin is that of one with a part of a file.
	requestWithin, transferWithin = time.Minute, 5 * time.Minute
	// races is how often a write is made again that met another one at the same moment.
	races = 4
)

var again = wait.Backoff{First: 100 * time.Millisecond, Most: longestPause} //nolint:gochecknoglobals // a constant

// hashField is the metadata that says what a file's content is: its SHA-256 in hexadecimal.
const hashField = "sandjet-sha256"

// Credentials sign requests.
type Credentials = aws.CredentialsProvider

// Options describes a bucket and how to reach it. Bucket and Credentials are required.
type Options struct {
	Bucket string
	// Prefix is what all keys begin with: empty for the whole bucket, else it ends with a slash.
	Prefix string
	Region string // empty: us-east-1
	// Endpoint is the URL of the service; empty: Amazon's of the region.
	Endpoint string
	// PathStyle asks for URLs with the bucket in the path, not in the host.
	PathStyle   bool
	Credentials Credentials
	// Public refuses to connect to addresses that are not public, but for those in Private, and to speak without TLS: for an endpoint
	// that a tenant has named.
	Public  bool
	Private []netip.Prefix
	// Connections are shared with other buckets. Nil: this one has its own.
	Connections *Connections
	// Budget bounds the bytes of files in memory, with those of the other buckets that have it; Account is whose they are. Nil: a
	// [DefaultBudget] for this bucket alone.
	Budget  *Budget
	Account string
	// Log gets warnings of the library for S3. Nil: no log.
	Log *slog.Logger
	// transport is for tests. Nil: one of its own.
	transport http.RoundTripper
}

// Bucket is the files below one prefix. Its methods are safe for concurrent use. They block until the service has answered or the context
// ends, and retry if the service is unavailable or busy.
//
// Codes of all methods: not_found (no such file), conflict (a condition does not hold), denied (the credentials do not allow it), invalid
// (no such bucket, another region, a name that cannot be a key), unavailable (the service is unreachable or busy: try later).
type Bucket struct {
	client  *s3.Client
	bucket  string
	prefix  string
	where   string
	budget  *Budget
	account string
	idle    func()
}

// Open returns a bucket, without sending a request. The caller closes it.
func Open(o Options) (*Bucket, error) {
	if o.Bucket == "" || o.Credentials == nil {
		return nil, schemas.OpErrorf(schemas.Invalid, "bucket", "a bucket and credentials are needed")
	}
	if o.Prefix != "" && (!strings.HasSuffix(o.Prefix, "/") || o.Prefix[0] == '/') {
		return nil, schemas.OpErrorf(schemas.Invalid, "bucket", "the prefix %q does not end with a slash, or begins with one",
			schemas.Quotable(o.Prefix))
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || o.Public) {
			return nil, schemas.OpErrorf(schemas.Invalid, "bucket", "the endpoint is not a URL with https")
		}
	}
	transport, idle := o.transport, func() {}
	switch {
	case transport != nil:
	case o.Connections != nil && o.Connections.public != o.Public:
		return nil, schemas.OpErrorf(schemas.Internal, "bucket", "the connections are those of other buckets")
	case o.Connections != nil:
		transport = o.Connections.transport
	default:
		t := newTransport(o)
		transport, idle = t, t.CloseIdleConnections
	}
	b := &Bucket{bucket: o.Bucket, prefix: o.Prefix, budget: o.Budget, account: o.Account, idle: idle}
	if b.budget == nil {
		b.budget = DefaultBudget()
	}
	b.where = cmp.Or(o.Endpoint, "s3."+cmp.Or(o.Region, "us-east-1")) + "/" + o.Bucket + "/" + o.Prefix
	b.client = s3.New(s3.Options{
		Region: cmp.Or(o.Region, "us-east-1"), Credentials: o.Credentials, UsePathStyle: o.PathStyle,
		BaseEndpoint: nonEmpty(o.Endpoint),
		HTTPClient: &http.Client{Transport: bounded{transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		Retryer: retry.NewStandard(func(s *retry.StandardOptions) {
			s.MaxAttempts = attempts
			s.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) { return again.After(attempt), nil })
		}),
		// Services that only resemble S3 do not all know the newer checksums.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,

		DisableLogOutputChecksumValidationSkipped: true,
		Logger: warnings{o.Log},
	})
	return b, nil
}

// Close closes idle connections, unless they are shared.
func (b *Bucket) Close() { b.idle() }

// Where returns the location of the files, without secrets: two buckets with the same location are the same files.
func (b *Bucket) Where() string { return b.where }

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// warnings logs the warnings of the S3 library.
type warnings struct{ log *slog.Logger }

func (w warnings) Logf(c logging.Classification, format string, args ...any) {
	if w.log != nil && c == logging.Warn {
		w.log.Warn("S3 library warning", "text", fmt.Sprintf(format, args...))
	}
}

// bounded limits the size of responses other than files, so that a service cannot fill this process's memory.
type bounded struct{ next http.RoundTripper }

func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Reads of files are bounded where they are read.
	if file := r.Method == http.MethodGet && !r.URL.Query().Has("list-type") && answer.StatusCode/100 == 2; !file {
		answer.Body = &cut{answer.Body, maxAnswer}
	}
	return answer, nil
}

type cut struct {
	io.ReadCloser
	left int64
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// within returns a context with a timeout for one request.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Environment returns credentials as Amazon's own programs find them (variables, shared files, roles of the host), and the region. The
// credentials are read with the first request and renewed before they expire.
func Environment(ctx context.Context, region string) (Credentials, string, error) {
	var loads []func(*config.LoadOptions) error
	if region != "" {
		loads = append(loads, config.WithRegion(region))
	}
	c, err := config.LoadDefaultConfig(ctx, loads...)
	if err != nil {
		return nil, "", fmt.Errorf("credentials for S3: %w", err)
	}
	return c.Credentials, c.Region, nil
}

// Static returns credentials with these keys.
func Static(key, secret, session string) Credentials {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: key, SecretAccessKey: secret, SessionToken: session, Source: "record"}, nil
	})
}
