//go:build linux

package lambda_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/lambda/lambdatest"
	"github.com/sandjet/sandjet/schemas"
)

// ran counts how often a script that writes an x was carried out.
func ran(t *testing.T, s *lambdatest.Service) int {
	t.Helper()
	s.Wait()
	b, err := os.ReadFile(filepath.Join(s.Workspace(namespace), "ran"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "x")
}

// refusal is an answer of the service in place of an invocation.
func refusal(status int, kind string) lambdatest.Fault {
	return lambdatest.Fault{Status: status, Kind: kind}
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again.
func TestFaults(t *testing.T) {
	t.Parallel()
	always := func(f lambdatest.Fault) lambdatest.Fault { f.Times = 1000; return f }
	for name, c := range map[string]struct {
		fault lambdatest.Fault
		code  schemas.Code // empty: it succeeds
		ran   int          // how often it has run
		most  int          // invocations that the service has begun
	}{
		"too many requests, and when to come again": {
			fault: lambdatest.Fault{Status: http.StatusTooManyRequests, Kind: "TooManyRequestsException", RetryAfter: 1}, ran: 1, most: 1,
		},
		"too many requests, and no word on when": {
			fault: lambdatest.Fault{Status: http.StatusTooManyRequests, Kind: "TooManyRequestsException", Times: 2}, ran: 1, most: 1,
		},
		"too many requests for longer than anybody waits": {
			fault: always(lambdatest.Fault{Status: http.StatusTooManyRequests, Kind: "TooManyRequestsException", RetryAfter: 60}),
			code:  schemas.Exhausted,
		},
		"the network of the function has no room": {
			fault: refusal(http.StatusBadGateway, "ENILimitReachedException"), ran: 1, most: 1,
		},
		"the file system was not mounted": {
			fault: refusal(http.StatusRequestTimeout, "S3FilesMountTimeoutException"), ran: 1, most: 1,
		},
		"the file system cannot be mounted": {
			fault: always(refusal(403, "S3FilesMountFailureException")), code: schemas.Unavailable,
		},
		"the function is being changed": {
			fault: refusal(http.StatusConflict, "ResourceConflictException"), ran: 1, most: 1,
		},
		"the function is prepared after weeks without calls": {
			fault: lambdatest.Fault{Status: http.StatusConflict, Kind: "CodeArtifactUserPendingException", Times: 2}, ran: 1, most: 1,
		},
		"the function is prepared, as an older service says it": {
			fault: refusal(http.StatusInternalServerError, "CodeArtifactUserPendingException"), ran: 1, most: 1,
		},
		"the function is prepared for longer than anybody waits": {
			fault: always(lambdatest.Fault{Status: http.StatusConflict, Kind: "CodeArtifactUserPendingException", RetryAfter: 600}),
			code:  schemas.Unavailable,
		},
		"the network of the function was taken back": {
			fault: lambdatest.Fault{Status: http.StatusBadGateway, Kind: "ResourceNotReadyException", Times: 2}, ran: 1, most: 1,
		},
		"the network interface of the function is not ready": {
			fault: refusal(http.StatusBadGateway, "ENINotReadyException"), ran: 1, most: 1,
		},
		"the subnets have no address left": {
			fault: refusal(http.StatusBadGateway, "SubnetIPAddressLimitReachedException"), ran: 1, most: 1,
		},
		"the network of the function is throttled": {
			fault: refusal(http.StatusBadGateway, "EC2ThrottledException"), ran: 1, most: 1,
		},
		"the network of the function cannot be set up": {
			fault: always(refusal(http.StatusBadGateway, "EC2UnexpectedException")), code: schemas.Unavailable,
		},
		"the image of the function cannot be used": {
			fault: refusal(http.StatusConflict, "CodeArtifactUserFailedException"), code: schemas.Unsupported,
		},
		"a quota is used up": {
			fault: refusal(http.StatusPaymentRequired, "ServiceQuotaExceededException"), code: schemas.Exhausted,
		},
		"the file system cannot be reached": {
			fault: refusal(http.StatusRequestTimeout, "EFSMountConnectivityException"), ran: 1, most: 1,
		},
		"the file system fails, maybe under the command": {
			fault: lambdatest.Fault{Status: http.StatusGone, Kind: "EFSIOException", Late: true}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"there is no such function": {
			fault: refusal(http.StatusNotFound, "ResourceNotFoundException"), code: schemas.Unsupported,
		},
		"the request is refused": {
			fault: refusal(http.StatusBadRequest, "SomethingNewException"), code: schemas.Unsupported,
		},
		"the key cannot be used": {
			fault: refusal(http.StatusBadGateway, "KMSDisabledException"), code: schemas.Unsupported,
		},
		"the service does not let us in": {
			fault: refusal(http.StatusForbidden, "AccessDeniedException"), code: schemas.Denied,
		},
		"the service fails": {
			fault: refusal(http.StatusInternalServerError, "ServiceException"), code: schemas.Interrupted,
		},
		"the service fails when it has run": {
			fault: lambdatest.Fault{Status: 500, Kind: "ServiceException", Late: true}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"a gateway on the way gives up": {
			fault: lambdatest.Fault{Status: 504, Late: true}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"the connection breaks before it starts": {
			fault: lambdatest.Fault{Drop: lambdatest.Before}, code: schemas.Interrupted,
		},
		"the connection breaks after it started": {
			fault: lambdatest.Fault{Drop: lambdatest.After}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"half an answer": {
			fault: lambdatest.Fault{Drop: lambdatest.Half}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"a slow service": {
			fault: lambdatest.Fault{Slow: 300 * time.Millisecond}, ran: 1, most: 1,
		},
		"a slow answer": {
			fault: lambdatest.Fault{SlowBody: 300 * time.Millisecond}, ran: 1, most: 1,
		},
		"the function ends without an answer": {
			fault: lambdatest.Fault{Failed: "Runtime.ExitError"}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"the answer of the function is too large": {
			fault: lambdatest.Fault{Failed: "Function.ResponseSizeTooLarge"}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"the function has an error that nobody knows": {
			fault: lambdatest.Fault{Failed: "Something.New"}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"the program of the function does not come up": {
			fault: lambdatest.Fault{Failed: "Runtime.InvalidEntrypoint"}, code: schemas.Unsupported, ran: 1, most: 1,
		},
		"an answer without an exit": {
			fault: lambdatest.Fault{Answer: `{"ok":true}`}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"an answer that is none": {
			fault: lambdatest.Fault{Answer: `"done"`}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"an empty answer": {
			fault: lambdatest.Fault{Answer: ` `}, code: schemas.Interrupted, ran: 1, most: 1,
		},
		"the function says that it has not started it": {
			fault: lambdatest.Fault{Answer: `{"ok":false,"code":"unavailable","stderr":"no"}`}, code: schemas.Unavailable, ran: 1, most: 1,
		},
		"the function refuses it and does not say how": {
			fault: lambdatest.Fault{Answer: `{"ok":false,"stderr":"no"}`}, code: schemas.Unsupported, ran: 1, most: 1,
		},
		"the function's own time is over, as it says so": {
			fault: lambdatest.Fault{Failed: "Sandbox.Timedout"}, code: "timed out", ran: 1, most: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, lambdatest.Options{}, nil)
			s.Fail(c.fault)
			res, err := p.Run(t.Context(), command("echo x >>ran; echo done"))
			code := schemas.CodeOf(err)
			if err == nil {
				code = ""
			}
			if res.TimedOut && err == nil && res.ExitCode == 124 {
				code = "timed out"
			}
			if code != c.code {
				t.Errorf("%v (code %q), want code %q", err, code, c.code)
			}
			started := c.code == "" || c.code == schemas.Interrupted || c.code == "timed out"
			if res.Started != started {
				t.Errorf("started %v, want %v", res.Started, started)
			}
			if (string(res.Stdout) == "done\n") != (c.code == "") {
				t.Errorf("it printed %q", res.Stdout)
			}
			if n := ran(t, s); n != c.ran || s.Begun() != c.most {
				t.Errorf("it ran %d times, in %d invocations, want %d and %d", n, s.Begun(), c.ran, c.most)
			}
		})
	}
}

// TestNoWorkerThere: a service that cannot be reached has started nothing.
func TestNoWorkerThere(t *testing.T) {
	t.Parallel()
	res, err := on(t, "http://127.0.0.1:1", nil).Run(t.Context(), command("true"))
	if schemas.CodeOf(err) != schemas.Unavailable || res.Started {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestCredentials: a refused caller gets the reason, and no secret is printed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service lambdatest.Options
		token   string
		says    string
	}{
		"a token that has ended": {token: lambdatest.ExpiredToken, says: "does not let this worker"},
		"a clock that is slow":   {service: lambdatest.Options{Ahead: 17 * time.Minute}, token: "session", says: "slow"},
		"a clock that is fast":   {service: lambdatest.Options{Ahead: -17 * time.Minute}, token: "session", says: "fast"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, c.service, func(o *lambda.Options) { o.Credentials = credentials(c.token) })
			res, err := p.Run(t.Context(), command("true"))
			if schemas.CodeOf(err) != schemas.Denied || res.Started || s.Begun() != 0 || !strings.Contains(err.Error(), c.says) ||
				strings.Contains(err.Error(), lambdatest.SecretKey) {
				t.Errorf("%v, %+v", err, res)
			}
		})
	}
}

// TestConcurrency: where as many run as may, a run waits for its turn, and is refused when none comes.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{Concurrency: 1}, nil)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.Run(t.Context(), command("echo x >>ran; sleep 0.3"))
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := ran(t, s); n != 2 {
		t.Errorf("they ran %d times", n)
	}
}

// TestReservedConcurrency: as many runs of one function are active as it may have, which is reported. The other functions keep working.
func TestReservedConcurrency(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{Reserved: 1}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := going(ctx, t, p, s, command("echo x >>ran; sleep 600"))
	if got := ok(t, p, plain("echo other")); got != "other" {
		t.Errorf("another function said %q", got)
	}
	s.Fail(lambdatest.Fault{Status: http.StatusTooManyRequests, Kind: "TooManyRequestsException", RetryAfter: 60,
		Reason: "ReservedFunctionConcurrentInvocationLimitExceeded"})
	_, err := p.Run(t.Context(), command("true"))
	if schemas.CodeOf(err) != schemas.Exhausted || !strings.Contains(err.Error(), "Concurrency of the stack") {
		t.Errorf("got %v", err)
	}
	s.Crash()
	<-done
}

// TestStates: a call to a function that is idle or new waits until that is ready, and is answered at once where it cannot be.
func TestStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state lambdatest.State
		code  schemas.Code // empty: it succeeds
	}{
		"new":             {state: lambdatest.State{State: types.StatePending, Code: types.StateReasonCodeCreating, Wake: 3}},
		"idle for weeks":  {state: lambdatest.State{State: types.StateInactive, Code: types.StateReasonCodeIdle, Wake: 2}},
		"being changed":   {state: lambdatest.State{Update: types.LastUpdateStatusInProgress}},
		"changed in vain": {state: lambdatest.State{Update: types.LastUpdateStatusFailed}},
		"failed":          {lambdatest.State{State: types.StateFailed, Code: types.StateReasonCodeInvalidImage}, schemas.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, lambdatest.Options{}, nil)
			s.SetState(lambdatest.MountNoNet, c.state)
			_, err := p.Run(t.Context(), command("echo x >>ran"))
			want := 1
			if c.code != "" {
				want = 0
			}
			if n := ran(t, s); n != want || (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code {
				t.Errorf("it ran %d times: %v", n, err)
			}
		})
	}
}

// TestDoctorSaysStates: the doctor says what state a function is in, and what to do about it.
func TestDoctorSaysStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state        lambdatest.State
		good         bool
		says, remedy string
	}{
		"new": {lambdatest.State{State: types.StatePending, Code: types.StateReasonCodeCreating}, false, "(Pending)", "in some minutes"},
		"without an image": {lambdatest.State{State: types.StateFailed, Code: types.StateReasonCodeImageDeleted, Reason: "it is gone"}, false,
			"(Failed): it is gone (ImageDeleted)", "ImageTag"},
		"without addresses": {lambdatest.State{State: types.StateFailed, Code: types.StateReasonCodeSubnetOutOfIPAddresses}, false,
			"SubnetOutOfIPAddresses", "more addresses"},
		"without its file system": {lambdatest.State{State: types.StateFailed, Code: types.StateReasonCodeEFSMountConnectivityError}, false,
			"EFSMountConnectivityError", "port 2049"},
		"idle, and soon there":   {lambdatest.State{State: types.StateInactive, Code: types.StateReasonCodeIdle, Wake: 1}, true, "(Inactive)", ""},
		"being changed":          {lambdatest.State{Update: types.LastUpdateStatusInProgress}, true, "is being changed", ""},
		"changed in vain":        {lambdatest.State{Update: types.LastUpdateStatusFailed, UpdateCode: "InvalidImage"}, false, "has failed", "ImageTag"},
		"going away":             {lambdatest.State{State: types.StateDeleting}, false, "(Deleting)", "events"},
		"without its key of KMS": {lambdatest.State{State: types.StateFailed, Code: "DisabledKMSKey"}, false, "DisabledKMSKey", "key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := lambdatest.Start(t, lambdatest.Options{})
			s.SetState(lambdatest.NoMountNet, c.state)
			o := settings(url)
			o.Functions = lambda.Functions{NoMountNet: lambdatest.NoMountNet}
			found := lambda.Diagnose(t.Context(), o)
			d := found[2]
			if d.Good != c.good || !strings.Contains(d.Says, c.says) || !strings.Contains(d.Remedy, c.remedy) {
				t.Errorf("%+v", d)
			}
		})
	}
	s, url := lambdatest.Start(t, lambdatest.Options{})
	s.Fail(lambdatest.Fault{Status: http.StatusConflict, Kind: "CodeArtifactUserPendingException", RetryAfter: 600, Times: 1000})
	for _, d := range lambda.Diagnose(t.Context(), settings(url)) {
		if d.Good || !strings.Contains(d.Says, "AWS prepares") || d.Remedy != "run this again in some minutes" {
			t.Errorf("while it is prepared: %+v", d)
		}
	}
}

// outcome is what a Run in another goroutine returned.
type outcome struct {
	res providers.Result
	err error
}

// going runs cmd, which writes an x, beside the test, and returns when it has begun.
func going(ctx context.Context, t *testing.T, p *lambda.Provider, s *lambdatest.Service, cmd providers.Command) <-chan outcome {
	t.Helper()
	done := make(chan outcome, 1)
	go func() {
		res, err := p.Run(ctx, cmd)
		done <- outcome{res, err}
	}()
	begun(t, s)
	return done
}

// begun waits until a script that writes an x runs.
func begun(t *testing.T, s *lambdatest.Service) {
	t.Helper()
	testwait.Eventually(t, "the start of the command", func() bool {
		b, err := os.ReadFile(filepath.Join(s.Workspace(namespace), "ran"))
		return err == nil && len(b) > 0
	})
}

// TestCancelled: a run whose call is cancelled keeps running, and the result says so. EndRun waits for its end.
func TestCancelled(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := command("echo x >>ran; sleep 1; echo end >>ran")
	cmd.ID = "run-1"
	done := going(ctx, t, p, s, cmd)
	cancel()
	o := <-done
	e, said := errors.AsType[*schemas.Error](o.err)
	if !said || e.Code != schemas.Interrupted || !errors.Is(o.err, context.Canceled) || !o.res.Started {
		t.Errorf("%v, %+v", o.err, o.res)
	}
	if err := p.EndRun(t.Context(), "", account, cmd.ID); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("a run that may go on for a minute has ended: %v", err)
	}
	s.Wait()
	if b, _ := os.ReadFile(filepath.Join(s.Workspace(namespace), "ran")); string(b) != "x\nend\n" {
		t.Errorf("it did not go on: %q", b)
	}
}

// TestALateCommandIsNotStarted: what reaches its function when its caller may count on its end is not started; a difference of the clocks is
// found out and keeps none from its start.
func TestALateCommandIsNotStarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service lambdatest.Options
		code    schemas.Code
		ran     int // of two commands
		begun   int // invocations for them
	}{
		"a delayed start":        {lambdatest.Options{Delay: 3 * time.Minute}, schemas.Unavailable, 0, 4},
		"a clock that is slow":   {lambdatest.Options{Ahead: 3 * time.Minute}, "", 2, 3},
		"a clock that is fast":   {lambdatest.Options{Ahead: -3 * time.Minute}, "", 2, 2},
		"slow, and a late start": {lambdatest.Options{Ahead: 3 * time.Minute, Delay: 2 * time.Minute}, schemas.Unavailable, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, c.service, nil)
			for range 2 {
				res, err := p.Run(t.Context(), command("echo x >>ran"))
				if err != nil && schemas.CodeOf(err) != c.code || (err == nil) != (c.code == "") || res.Started != (c.code == "") {
					t.Errorf("%v, started %v", err, res.Started)
				}
			}
			if n := ran(t, s); n != c.ran || s.Begun() != c.begun {
				t.Errorf("it ran %d times in %d invocations, want %d in %d", n, s.Begun(), c.ran, c.begun)
			}
		})
	}
}

// TestEndRun: what has answered is over, and of another worker's run nothing is known.
func TestEndRun(t *testing.T) {
	t.Parallel()
	p, _ := start(t, lambdatest.Options{}, nil)
	cmd := command("true")
	cmd.ID = "run-1"
	ok(t, p, cmd)
	testwait.OK(t, p.EndRun(t.Context(), "", account, cmd.ID))
	if err := p.EndRun(t.Context(), "", account, "another"); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("got %v", err)
	}
}

// TestCrash: the environment of a command ends while it runs, and the next one gets another.
func TestCrash(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	cmd := command("echo x >>ran; sleep 600")
	cmd.ID = "run-1"
	done := going(t.Context(), t, p, s, cmd)
	s.Crash()
	if o := <-done; schemas.CodeOf(o.err) != schemas.Interrupted || !o.res.Started {
		t.Errorf("%v, %+v", o.err, o.res)
	}
	testwait.OK(t, p.EndRun(t.Context(), "", account, cmd.ID)) // it ended with its environment
	ok(t, p, command("true"))
	if n := ran(t, s); n != 1 || s.Made() != 2 {
		t.Errorf("it ran %d times, in %d environments", n, s.Made())
	}
}

// TestTimeLimitOfTheFunction: a command has less than its function's time, so that what it printed is not lost with that.
func TestTimeLimitOfTheFunction(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{Timeout: 5 * time.Second}, nil)
	cmd := command("echo before; sleep 600")
	cmd.Grace = 100 * time.Millisecond
	res, err := p.Run(t.Context(), cmd)
	if err != nil || !res.TimedOut || res.ExitCode != 124 || string(res.Stdout) != "before\n" {
		t.Errorf("%v, %+v", err, res)
	}
	if ok(t, p, command("echo next")) != "next" || s.Made() != 1 {
		t.Errorf("%d environments were made", s.Made())
	}
}

// TestSizes: what does not fit into an invocation is refused here, and what a command prints is cut there.
func TestSizes(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	cmd := command("cat | wc -c")
	cmd.Stdin = make([]byte, 5<<20)
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Invalid || res.Started || s.Begun() != 0 {
		t.Errorf("%v, %+v", err, res)
	}
	cmd.Stdin = make([]byte, 4<<20)
	if got := ok(t, p, cmd); got != "4194304" {
		t.Errorf("it read %s bytes", got)
	}
	cmd = command("head -c 3000000 /dev/urandom; head -c 3000000 /dev/urandom >&2")
	cmd.OutputLimit = 256 << 10
	res, err := p.Run(t.Context(), cmd)
	if err != nil || !res.Truncated || res.StdoutBytes != 3_000_000 || res.StderrBytes != 3_000_000 || len(res.Stdout) > 256<<10+64 {
		t.Errorf("%v, truncated %v, %d and %d bytes", err, res.Truncated, res.StdoutBytes, res.StderrBytes)
	}
}

// TestOutputComesAtTheEnd: a caller that follows a run receives what its result has.
func TestOutputComesAtTheEnd(t *testing.T) {
	t.Parallel()
	p, _ := start(t, lambdatest.Options{}, nil)
	cmd := command("head -c 200000 /dev/zero; echo err >&2")
	cmd.OutputLimit = 256 << 10
	var got [2]int
	cmd.Output = func(c providers.Chunk) {
		if len(c.Data) > schemas.MaxChunk {
			t.Errorf("a chunk of %d bytes", len(c.Data))
		}
		if c.Stderr {
			got[1] += len(c.Data)
		} else {
			got[0] += len(c.Data)
		}
	}
	ok(t, p, cmd)
	if got != [2]int{200_000, 4} {
		t.Errorf("it heard %v bytes", got)
	}
}
