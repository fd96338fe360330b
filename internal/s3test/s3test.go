// Package s3test starts an S3 server for tests: versitygw, a program in a module of its own (folder gateway), with buckets in a folder of
// the test, or a faster one in memory. A proxy in front of it can lose answers, break connections and simulate overload.
package s3test

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/sandjet/sandjet/internal/longtest"
)

// Key and Secret are the credentials of every server.
const (
	Key    = "sandjet"
	Secret = "sandjet-secret"
)

// Server is a running server.
type Server struct {
	URL    string
	Folder string // its folders are the buckets, with objects as files; empty: the server is in memory
}

// built is the program, which is compiled once for each test process.
var built struct { //nolint:gochecknoglobals // once for all tests of a process
	once sync.Once
	path string
	why  string
}

// Start starts a server with the given buckets, which ends with the test. It skips the test if the program cannot be built, because its
// modules are unavailable, or if the file system of tests has no extended attributes.
func Start(t testing.TB, buckets ...string) Server {
	t.Helper()
	longtest.Only(t, "a server of S3, which is built from modules of its own")
	built.once.Do(build)
	if built.why != "" {
		longtest.Missing(t, "no server of S3: %s", built.why)
	}
	s := Server{Folder: t.TempDir()}
	for _, b := range buckets {
		if err := os.Mkdir(filepath.Join(s.Folder, b), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := freeAddress(t)
	s.URL = "http://" + at
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), built.path,
		"-listen", at, "-folder", s.Folder, "-key", Key, "-secret", Secret, "-attached")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", at)
		if err == nil {
			_ = c.Close()
			return s
		}
		select {
		case <-ended:
			if strings.Contains(said.String(), "xattr") {
				longtest.Missing(t, "the folder of tests has no extended attributes")
			}
			t.Fatalf("the server of S3 has ended: %s", said.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server of S3 does not answer: %s", said.String())
		}
	}
}

// module returns the folder of the program's module. It asks the go command, because a test that was built with -trimpath does not know
// the path of its source.
func module(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/sandjet/sandjet/internal/s3test").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "gateway"), err
}

func build() {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	built.path = filepath.Join(dir, "sandjet-s3test", "gateway")
	if err := os.MkdirAll(filepath.Dir(built.path), 0o700); err != nil {
		built.why = err.Error()
		return
	}
	// Only one process builds at a time: else packages that are tested in parallel would all compile it.
	lock, err := os.OpenFile(built.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		built.why = err.Error()
		return
	}
	defer lock.Close() //nolint:errcheck // it is only a lock
	folder, err := module(ctx)
	if err != nil {
		built.why = "go list of internal/s3test: " + err.Error()
		return
	}
	// An unchanged program is not linked again.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", built.path, ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		built.why = "go build of internal/s3test/gateway: " + err.Error() + ": " + strings.TrimSpace(string(out))
	}
}

func freeAddress(t testing.TB) string {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it is only a number
	return l.Addr().String()
}

// Fault is a fault that the proxy simulates for a request.
type Fault int

// The faults.
const (
	None          Fault = iota
	Busy                // 503 SlowDown; the request is not forwarded
	Dropped             // the connection breaks before the request is forwarded
	AnswerLost          // the request is forwarded, and the connection breaks instead of an answer
	Raced               // 409 ConditionalRequestConflict; the request is not forwarded
	HalfAnswer          // the connection breaks in the middle of the answer's body
	Unconditional       // the conditions of the request are removed, like by a service that ignores them
	Archived            // 403 InvalidObjectState, as for an archived object that was not restored
	Denied              // 403 AccessDenied, as for an object that a policy denies to the credentials
)

// Proxy is a proxy in front of a server.
type Proxy struct {
	URL string

	mu    sync.Mutex
	judge func(*http.Request) Fault
	asked int
}

// Judge sets the function that chooses the fault of each request; nil: no faults.
func (p *Proxy) Judge(f func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = f
}

// Asked returns the number of requests.
func (p *Proxy) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Once returns a judge that applies the fault to the first request for which is returns true.
func Once(f Fault, is func(*http.Request) bool) func(*http.Request) Fault {
	done := false
	return func(r *http.Request) Fault {
		if done || !is(r) {
			return None
		}
		done = true
		return f
	}
}

// Front starts a proxy in front of a server, which ends with the test.
func Front(t testing.TB, s Server) *Proxy {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	next := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers it
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) }}
	at := freeAddress(t)
	p.URL = "http://" + at
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, next)
	})}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return p
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p.mu.Lock()
	p.asked++
	f := None
	if p.judge != nil {
		f = p.judge(r)
	}
	p.mu.Unlock()
	switch f {
	case None:
		next.ServeHTTP(w, r)
	case Unconditional:
		r.Header.Del("If-Match")
		r.Header.Del("If-None-Match")
		sign(r)
		next.ServeHTTP(w, r)
	case Busy:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case Raced:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
	case Archived:
		refuse(w, http.StatusForbidden, "InvalidObjectState")
	case Denied:
		refuse(w, http.StatusForbidden, "AccessDenied")
	case Dropped:
		panic(http.ErrAbortHandler)
	case AnswerLost:
		next.ServeHTTP(&nowhere{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case HalfAnswer:
		answer := &nowhere{header: http.Header{}}
		next.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes()[:answer.body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Client returns a client of a server, as another program has it.
func Client(s Server) *s3.Client {
	return s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: &s.URL, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: Key, SecretAccessKey: Secret}, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
}

// Write writes an object like another program: without conditions, and with the given metadata.
func Write(t testing.TB, s Server, bucket, key, text string, metadata map[string]string) {
	t.Helper()
	_, err := Client(s).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(text), Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
}

// Upload is Write by a multipart upload of one part, so that the ETag is not the MD5 of the content.
func Upload(t testing.TB, s Server, bucket, key, text string, metadata map[string]string) {
	t.Helper()
	c := Client(s)
	u, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key, Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: u.UploadId, PartNumber: aws.Int32(1),
		Body: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	parts := &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: p.ETag, PartNumber: aws.Int32(1)}}}
	_, err = c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: u.UploadId,
		MultipartUpload: parts})
	if err != nil {
		t.Fatal(err)
	}
}

// sign signs a changed request again.
func sign(r *http.Request) {
	hash := r.Header.Get("X-Amz-Content-Sha256")
	r.Header.Del("Authorization")
	r.URL.Host = r.Host
	_ = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(),
		aws.Credentials{AccessKeyID: Key, SecretAccessKey: Secret}, r, hash, "s3", "us-east-1", time.Now())
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`<?xml version="1.0"?><Error><Code>` + code + `</Code><Message>test</Message></Error>`))
}

// nowhere is a ResponseWriter that stores the answer instead of sending it.
type nowhere struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (n *nowhere) Header() http.Header { return n.header }
func (n *nowhere) WriteHeader(status int) {
	if n.status == 0 {
		n.status = status
	}
}

func (n *nowhere) Write(b []byte) (int, error) {
	n.WriteHeader(http.StatusOK)
	return n.body.Write(b)
}
