package lambda

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// overhead is what an invocation may take beyond its command: a cold start with a network and a file system. A function does not start
	// what comes later.
	overhead = 30 * time.Second
	// clocks is how far those of this host and of functions may be apart when what is known of their difference is taken off.
	clocks = 10 * time.Second
	// exitTimeout is the exit code of a command whose time was over.
	exitTimeout = 124
	// restrictedNotice is said of each command under restricted.
	restrictedNotice = "network restricted: functions of Lambda have no rules for names or addresses, so nothing can be reached"
)

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return wakeTime + overhead }

// Run runs cmd in a function. Its output is delivered when it has ended. If ctx is cancelled while it runs it continues until its time
// limit. Code then: interrupted.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	cmd = cmd.WithDefaults()
	level := isolation([]string{"landlock", "seccomp"})
	name, slot := p.function(cmd)
	res := providers.Result{Runtime: "lambda/" + slot, Isolation: &level}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd); err != nil {
		return res, err
	}
	r, err := request(cmd)
	if err != nil {
		return res, err
	}
	if cmd.Network.Mode == schemas.Restricted {
		p.log.Warn("restricted networks reach nothing on Lambda", "function", name)
	}
	in := &lambda.InvokeInput{
		FunctionName: aws.String(name), InvocationType: types.InvocationTypeRequestResponse,
		TenantId: p.tenant(cmd.Spec.Account),
	}
	limit := cmd.Timeout + min(cmd.Grace, invocation.MaxGrace) + overhead
	out, began, err := p.invoke(ctx, attempt{in: in, request: r, limit: limit, wake: wakeTime, mayBegin: cmd.MayBegin})
	if err != nil {
		if _, known := errors.AsType[*schemas.Error](err); !began.IsZero() && !known {
			p.over(cmd.ID, began.Add(limit+2*clocks)) // a function starts none later than overhead and clocks after began
			res.Started, res.Duration = true, time.Since(began)
			err = schemas.Wrap(schemas.Interrupted, "run",
				"the answer of the function is lost: what the command has done is not known, and it may go on until its time limit", err)
		}
		return res, err
	}
	p.over(cmd.ID, time.Now())
	if out.FunctionError != nil {
		return functionFailed(res, cmd, *out.FunctionError, out.Payload, time.Since(began))
	}
	return finished(res, cmd, out.Payload)
}

// request returns the function's request for cmd. Code: invalid, also if it is too large for an invocation.
func request(cmd providers.Command) (invocation.Request, error) {
	env, err := environment(cmd)
	if err != nil {
		return invocation.Request{}, err
	}
	r := invocation.Request{
		Runtime: "bash", TimeoutMS: cmd.Timeout.Milliseconds(), GraceMS: min(cmd.Grace, invocation.MaxGrace).Milliseconds(), Env: env,
		Stdin: cmd.Stdin, Dir: dirOf(cmd), Sockets: cmd.Network.Mode == schemas.AllowAll, Confine: cmd.Spec.MinIsolation == level,
		OutputLimit: min(cmp.Or(cmd.OutputLimit, schemas.DefaultOutputLimit), invocation.MaxOutput),
	}
	r.SetScript(cmd.Script)
	for _, m := range cmd.Mounts {
		r.Namespace, r.WorkspaceRoot, r.ReadOnly = m.Namespace, invocation.WorkspacesPath, m.ReadOnly
	}
	r.NotAfter(time.Now()) // each invocation has its own, of the same length
	payload, err := encode(r)
	if err != nil {
		return r, err
	}
	_, err = invocation.DecodeRequest(payload) // the function would refuse it
	return r, err
}

// encode returns the payload of an invocation. Code: invalid.
func encode(r invocation.Request) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "run", "the command cannot be sent", err)
	}
	if b.Len() > invocation.MaxPayload {
		return nil, schemas.OpErrorf(schemas.Invalid, "run", tooLarge)
	}
	return b.Bytes(), nil
}

// attempt is the request to a function.
type attempt struct {
	in       *lambda.InvokeInput
	request  invocation.Request
	limit    time.Duration // of one request
	wake     time.Duration // how long a function that AWS prepares is waited for
	mayBegin func() error
}

// invoke invokes a function, with retries while the answer says that nothing was started and the table allows it. It returns when the last
// request may have arrived; zero if none has. After an error of type [*schemas.Error] nothing was started.
//
// A request contains the latest time at which the command may be started, because AWS may begin an invocation after its caller has stopped
// waiting, and this process may be suspended before it sends one. A function that finds itself late starts nothing and returns its time;
// the request is then repeated once.
func (p *Provider) invoke(ctx context.Context, a attempt) (*lambda.InvokeOutput, time.Time, error) {
	first := time.Now()
	pause := wait.Backoff{First: 200 * time.Millisecond, Most: 3 * time.Second}
	late := false
	for n := 1; ; n++ {
		if err := a.mayBegin(); err != nil {
			return nil, time.Time{}, err
		}
		began, sent := time.Now(), new(atomic.Bool)
		a.request.NotAfter(began.Add(time.Duration(p.ahead.Load()) + overhead + clocks))
		payload, err := encode(a.request)
		if err != nil {
			return nil, time.Time{}, err
		}
		a.in.Payload = payload
		out, err := p.ask(ctx, a.in, a.limit, sent)
		if err == nil && !late && isLate(out) && ctx.Err() == nil {
			late = true
			continue
		}
		if err == nil {
			return out, began, nil
		}
		row, known := judge(err, sent.Load())
		if !known {
			return nil, began, err
		}
		if ctx.Err() != nil {
			return nil, time.Time{}, ctx.Err()
		}
		delay, most := max(pause.After(n), retryAfter(err)), patience
		if row.again == waking {
			most = a.wake
		}
		if row.again == never || row.again == once && n > 1 || time.Since(first)+delay > most {
			return nil, time.Time{}, notStarted(row, err)
		}
		p.log.Debug("function not started, retrying", "function", *a.in.FunctionName, "after", delay, "error", err)
		if !wait.Sleep(ctx, delay) {
			return nil, time.Time{}, ctx.Err()
		}
	}
}

// isLate reports whether a function has not started its command because the request arrived too late.
func isLate(out *lambda.InvokeOutput) bool {
	if out.FunctionError != nil {
		return false
	}
	r, err := invocation.DecodeResponse(out.Payload)
	return err == nil && !r.OK && r.Late
}

// ask sends one request, without retries. Sent is set as soon as it may arrive.
func (p *Provider) ask(ctx context.Context, in *lambda.InvokeInput, limit time.Duration, sent *atomic.Bool) (*lambda.InvokeOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := p.creds.Retrieve(ctx); err != nil { // the client asks for them too, and does not say that it was they
		return nil, credentialsError{err}
	}
	return p.client.Invoke(context.WithValue(ctx, sentKey{}, sent), in)
}

// sentKey is the context key for ask's flag sent.
type sentKey struct{}

// tracing is the transport of Lambda's client. It sets the flag in a request's context (sentKey) as soon as the request has a connection,
// and stores in ahead how far the service's clock is ahead of this host's. Credentials are fetched over other connections, which do not
// set the flag.
type tracing struct {
	*http.Transport

	ahead *atomic.Int64
}

func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, ok := r.Context().Value(sentKey{}).(*atomic.Bool)
	if !ok {
		return t.Transport.RoundTrip(r)
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}))
	answer, err := t.Transport.RoundTrip(r)
	if err == nil {
		if there, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			t.ahead.Store(int64(time.Until(there)))
		}
	}
	return answer, err
}

// functionFailed returns the result of a run whose function failed without an answer: nothing is known of the command except that it has
// ended.
func functionFailed(res providers.Result, cmd providers.Command, how string, payload []byte, took time.Duration) (providers.Result, error) {
	var said struct {
		Kind string `json:"errorType"`    //nolint:tagliatelle // Lambda's word
		Text string `json:"errorMessage"` //nolint:tagliatelle // likewise
	}
	_ = json.Unmarshal(payload, &said) // nothing is said then
	timedOut, unstarted := failed(said.Kind, said.Text)
	cause := schemas.OpErrorf(schemas.Internal, "invoke", "%s %s: %s", how, schemas.Quotable(said.Kind), schemas.Quotable(said.Text))
	if unstarted {
		return res, schemas.Wrap(schemas.Unsupported, "run", "the program of the function does not start: \"sandjet doctor\" explains", cause)
	}
	res.Started, res.Duration = true, took
	if timedOut {
		res.TimedOut, res.ExitCode, res.Duration = true, exitTimeout, max(took, cmd.Timeout)
		return res, nil
	}
	return res, schemas.Wrap(schemas.Interrupted, "run", "the function ended without an answer, as when it has no memory left: "+
		"the command has ended with it, and what it had done until then is done", cause)
}

// finished returns the result of a run whose function has answered.
func finished(res providers.Result, cmd providers.Command, payload []byte) (providers.Result, error) {
	r, err := invocation.DecodeResponse(payload)
	if err != nil {
		res.Started = true
		return res, schemas.Wrap(schemas.Interrupted, "run", "the function's answer does not say how the command ended", err)
	}
	if !r.OK {
		code := schemas.Code(r.Code)
		if code != schemas.Invalid && code != schemas.Unavailable {
			code = schemas.Unsupported
		}
		return res, schemas.OpErrorf(code, "run", "the function has not started the command: %s", schemas.Quotable(string(r.Err())))
	}
	level := isolation(r.Confined)
	res.Started, res.Isolation, res.Truncated, res.TimedOut = true, &level, r.Truncated, r.TimedOut
	res.Duration = time.Duration(r.DurationMS) * time.Millisecond
	res.StdoutBytes, res.StderrBytes = r.StdoutTotal, r.StderrTotal
	res.Stdout, res.Stderr = r.Out(), r.Err()
	if res.ExitCode = exitTimeout; r.ExitCode != nil {
		res.ExitCode = *r.ExitCode
	}
	if cmd.Network.Mode == schemas.Restricted {
		res.Notices = append(res.Notices, restrictedNotice)
	}
	hand(cmd, res.Stdout, false)
	hand(cmd, res.Stderr, true)
	return res, nil
}

// hand passes text to the command's Output function.
func hand(cmd providers.Command, text []byte, stderr bool) {
	for len(text) > 0 && cmd.Output != nil {
		n := min(len(text), schemas.MaxChunk)
		cmd.Output(providers.Chunk{Stderr: stderr, Data: bytes.Clone(text[:n])})
		text = text[n:]
	}
}
