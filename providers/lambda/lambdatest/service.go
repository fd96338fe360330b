//go:build linux

package lambdatest

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"crypto/sha256"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/sandjet/sandjet/internal/longtest"
)

// What a client needs to be let in.
const (
	Region    = "eu-west-1"
	AccessKey = "AKIDEXAMPLE"
	SecretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" //nolint:gosec // the example of AWS's own documentation
	// ExpiredToken is a session token that has ended.
	ExpiredToken = "expired"
)

// The functions that there are.
const (
	MountNet     = "sandbox-mount-net"
	MountNoNet   = "sandbox-mount-nonet"
	NoMountNet   = "sandbox-nomount-net"
	NoMountNoNet = "sandbox-nomount-nonet"
)

// maxPayload is the service's limit of a synchronous invocation, either way.
const maxPayload = 6_291_556

// maxSkew is how far a client's clock may be off.
const maxSkew = 5 * time.Minute

// Options are the settings of a service.
type Options struct {
	Concurrency int           // invocations at a time; 0: 1,000
	Reserved    int           // of one function, as its reserved concurrency; 0: none is reserved
	Timeout     time.Duration // of functions; 0: 330 s
	MemorySize  int           // of functions, in MB, as their configuration says; 0: 512
	Shared      bool          // functions are not made for tenants
	Ahead       time.Duration // of the service's clock, and of those of environments
	Delay       time.Duration // commands reach environments so much later than they were sent, by their clocks
	Unconfined  bool          // functions may run commands that they cannot confine
	Workspaces  string        // the folder of all workspaces, such as one of a server of S3; empty: one of its own
	OldKernel   bool          // environments have no Landlock and take no filters of system calls
	LandlockABI int           // environments have Landlock of this ABI, where the kernel has a later one; 0: the kernel's
}

// Service simulates Lambda with four functions. Its methods are safe for concurrent use.
type Service struct {
	opt  Options
	dir  string
	exe  string
	mux  *http.ServeMux
	work sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	all     map[*environment]bool
	idle    map[string][]*environment // by function and tenant
	running map[string]int            // invocations, by function
	states  map[string]*State         // of functions that are not simply active
	begun   int                       // invocations that were given to an environment
	made    int
	faults  []*Fault
}

// Start starts a service that ends with tb, and returns its address. If no environments can be made here the test is skipped; if CI is set
// it fails instead.
func Start(tb testing.TB, o Options) (*Service, string) {
	tb.Helper()
	for _, tool := range []string{"bwrap", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			longtest.Missing(tb, "execution environments need %s here: install bubblewrap and bash", tool)
		}
	}
	dir, err := os.MkdirTemp("", "lambda") // a path of a socket must be short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := New(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		s.Close()
		server.Close()
	})
	return s, server.URL
}

// New returns a service as an [http.Handler], with its files in a folder. The caller closes it.
func New(dir string, o Options) (*Service, error) {
	for fd := 3; fd < 1024; fd++ { // what this process's own parent left open is none of the environments' business
		syscall.CloseOnExec(fd)
	}
	exe, err := os.Executable()
	if err == nil {
		o.Workspaces = cmp.Or(o.Workspaces, filepath.Join(dir, "workspaces"))
		err = os.MkdirAll(o.Workspaces, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("lambdatest: %w", err)
	}
	o.Concurrency, o.Timeout, o.MemorySize = cmp.Or(o.Concurrency, 1000), cmp.Or(o.Timeout, 330*time.Second), cmp.Or(o.MemorySize, 512)
	s := &Service{opt: o, dir: dir, exe: exe, mux: http.NewServeMux(), all: map[*environment]bool{}, idle: map[string][]*environment{},
		running: map[string]int{}, states: map[string]*State{}}
	s.mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", s.invoke)
	s.mux.HandleFunc("GET /2015-03-31/functions/{name}/configuration", s.configuration)
	return s, nil
}

// ServeHTTP answers a request, or applies a fault.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f := s.fault(r)
	if f != nil {
		f.do(s, w, r, body)
		return
	}
	s.answer(w, r, body)
}

// answer checks the signature of a request, and answers it.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, body []byte) {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case r.Header.Get("Authorization") == "":
		fail(w, http.StatusForbidden, "MissingAuthenticationTokenException", "Missing Authentication Token")
	case r.Header.Get("X-Amz-Security-Token") == ExpiredToken:
		fail(w, http.StatusForbidden, "ExpiredTokenException", "The security token included in the request is expired")
	case err != nil || at.Sub(s.now()).Abs() > maxSkew:
		fail(w, http.StatusForbidden, "InvalidSignatureException", "Signature expired")
	case !signed(r, body, at):
		fail(w, http.StatusForbidden, "InvalidSignatureException", "The request signature we calculated does not match")
	case len(body) > maxPayload:
		fail(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request must be smaller than 6291556 bytes")
	default:
		s.mux.ServeHTTP(w, r)
	}
}

func (s *Service) now() time.Time { return time.Now().Add(s.opt.Ahead) }

// Close ends all environments and waits for them.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for e := range s.all {
		e.end()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Begun returns how many invocations were begun so far.
func (s *Service) Begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// Made returns how many environments were made so far.
func (s *Service) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Crash ends all environments as if they had run out of memory.
func (s *Service) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.all {
		e.end()
	}
}

// Wait waits until no invocation is running, including those without a waiting caller.
func (s *Service) Wait() {
	for {
		s.mu.Lock()
		running := s.count()
		s.mu.Unlock()
		if running == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Workspace returns the folder with a workspace's files.
func (s *Service) Workspace(namespace string) string {
	return filepath.Join(s.opt.Workspaces, namespace)
}

// Synced returns how often environments have synced their file system.
func (s *Service) Synced() (n int) {
	files, _ := filepath.Glob(filepath.Join(s.dir, "*", syncedName)) // the pattern is right
	for _, f := range files {
		b, _ := os.ReadFile(f) // it was there
		n += len(b)
	}
	return n
}

func known(name string) bool {
	return slices.Contains([]string{MountNet, MountNoNet, NoMountNet, NoMountNoNet}, name)
}

func mounted(name string) bool { return name == MountNet || name == MountNoNet }

func arn(name string) string { return "arn:aws:lambda:" + Region + ":111122223333:function:" + name }

// invoke answers an invocation.
func (s *Service) invoke(w http.ResponseWriter, r *http.Request) {
	name, tenant := r.PathValue("name"), r.Header.Get("X-Amz-Tenant-Id")
	payload, _ := io.ReadAll(r.Body) // it is in memory
	switch {
	case !known(name):
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "Function not found: "+arn(name))
		return
	case s.opt.Shared == (tenant != ""):
		fail(w, http.StatusBadRequest, "InvalidParameterValueException", "The tenant id does not go with the function's TenancyConfig")
		return
	case r.Header.Get("X-Amz-Invocation-Type") == "DryRun":
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Header.Get("X-Amz-Invocation-Type") == "Event":
		fail(w, http.StatusBadRequest, "InvalidParameterValueException", "no event is taken here: it may come twice")
		return
	case !json.Valid(payload):
		fail(w, http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json")
		return
	}
	if kind, message := s.notReady(name); kind != "" {
		fail(w, http.StatusConflict, kind, message)
		return
	}
	leave, why := s.admit(name)
	if why != "" {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "TooManyRequestsException", "Rate Exceeded.", why)
		return
	}
	done := make(chan outcome, 1)
	s.work.Go(func() { // whether its caller stays or not
		defer leave()
		done <- s.carryOut(name, tenant, payload)
	})
	select {
	case o := <-done:
		o.write(w)
	case <-r.Context().Done():
	}
}

// count returns how many invocations are running. s.mu is held.
func (s *Service) count() (n int) {
	for _, of := range s.running {
		n += of
	}
	return n
}

// admit counts an invocation if one more may run; otherwise it returns the reason.
func (s *Service) admit(name string) (leave func(), why types.ThrottleReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opt.Reserved > 0 && s.running[name] >= s.opt.Reserved:
		return nil, types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded
	case s.count() >= s.opt.Concurrency || s.closed:
		return nil, types.ThrottleReasonConcurrentInvocationLimitExceeded
	}
	s.running[name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[name]--
	}, ""
}

// carryOut runs an invocation in an idle environment, or in a new one.
func (s *Service) carryOut(name, tenant string, payload []byte) outcome {
	key := name + " " + tenant
	s.mu.Lock()
	var e *environment
	if free := s.idle[key]; len(free) > 0 {
		e, s.idle[key] = free[len(free)-1], free[:len(free)-1]
	}
	s.mu.Unlock()
	if e == nil {
		var err error
		if e, err = s.boot(name, tenant); err != nil {
			return failure("Runtime.InvalidEntrypoint", err.Error())
		}
	}
	s.mu.Lock()
	s.begun++
	s.mu.Unlock()
	o := e.carryOut(payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[e] && !s.closed {
		e.signal(syscall.SIGSTOP)
		s.idle[key] = append(s.idle[key], e)
	}
	return o
}

// configuration answers a request for a function's configuration.
func (s *Service) configuration(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !known(name) {
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "Function not found: "+arn(name))
		return
	}
	answer := map[string]any{
		"FunctionName": name, "FunctionArn": arn(name), "Timeout": int(s.opt.Timeout.Seconds()), "MemorySize": s.opt.MemorySize,
		"Architectures": []string{"arm64"}, "PackageType": "Image",
	}
	s.state(name).describe(answer)
	if !s.opt.Shared {
		answer["TenancyConfig"] = map[string]any{"TenantIsolationMode": "PER_TENANT"}
	}
	if mounted(name) {
		answer["FileSystemConfigs"] = []any{map[string]any{
			"Arn": "arn:aws:s3files:" + Region + ":111122223333:file-system/fs-1/access-point/fsap-1", "LocalMountPath": "/mnt/workspaces",
		}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // plain data; who asks may be gone
}

// fail writes an error response in the service's form.
func fail(w http.ResponseWriter, status int, kind, message string) {
	refuse(w, status, kind, message, "")
}

func refuse(w http.ResponseWriter, status int, kind, message string, why types.ThrottleReason) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", kind)
	w.WriteHeader(status)
	answer := map[string]string{"Type": "User", "message": message}
	if why != "" {
		answer["Reason"] = string(why)
	}
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // as above
}

// signed reports whether a request's signature is right for the parts that the client claims to have signed.
func signed(r *http.Request, body []byte, at time.Time) bool {
	auth := r.Header.Get("Authorization")
	_, names, ok := strings.Cut(auth, "SignedHeaders=")
	if !ok || !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential="+AccessKey+"/") {
		return false
	}
	names, _, _ = strings.Cut(names, ",")
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body)) //nolint:gosec // it is never sent
	if err != nil {
		return false
	}
	for name := range strings.SplitSeq(names, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	creds := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey, SessionToken: r.Header.Get("X-Amz-Security-Token")}
	if err := v4.NewSigner().SignHTTP(r.Context(), creds, again, hex.EncodeToString(sum[:]), "lambda", Region, at); err != nil {
		return false
	}
	return again.Header.Get("Authorization") == auth
}

// outcome is the result of an invocation.
type outcome struct {
	payload []byte
	failed  string // the kind of a function's error; empty: it answered
}

func failure(kind, message string) outcome {
	b, _ := json.Marshal(map[string]string{"errorType": kind, "errorMessage": message}) //nolint:errchkjson // strings
	return outcome{payload: b, failed: kind}
}

func (o outcome) write(w http.ResponseWriter) {
	if o.failed != "" {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
	}
	w.Header().Set("X-Amz-Executed-Version", "$LATEST")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(o.payload)))
	_, _ = w.Write(o.payload) // who asks may be gone
}
