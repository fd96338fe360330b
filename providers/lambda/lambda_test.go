//go:build linux

package lambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	service "github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/providers/lambda/lambdatest"
	"github.com/sandjet/sandjet/schemas"
)

// TestFunctions: the function of a run follows from its workspace and network alone.
func TestFunctions(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, func(o *lambda.Options) {
		o.Functions.MountNet = ""
		o.Networks = append(o.Networks, schemas.Restricted)
	})
	for name, c := range map[string]struct {
		mount   bool
		mode    schemas.NetworkMode
		runtime string
		code    schemas.Code
	}{
		"a workspace and nothing else":  {true, schemas.DenyAll, "lambda/MOUNT_NONET", ""},
		"a workspace, and no word":      {true, "", "lambda/MOUNT_NONET", ""},
		"a workspace and the internet":  {true, schemas.AllowAll, "lambda/MOUNT_NET", schemas.Unsupported}, // the operator has named none
		"nothing":                       {false, schemas.DenyAll, "lambda/NOMOUNT_NONET", ""},
		"the internet":                  {false, schemas.AllowAll, "lambda/NOMOUNT_NET", ""},
		"rules for names":               {false, schemas.Restricted, "lambda/NOMOUNT_NONET", ""},
		"a mode that there is not":      {false, "some", "lambda/NOMOUNT_NONET", schemas.Unsupported},
		"rules for names, and my files": {true, schemas.Restricted, "lambda/MOUNT_NONET", ""},
	} {
		cmd := plain("(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1 | grep -q refused && echo 1 || echo 0")
		if c.mount {
			cmd.Mounts = []providers.Mount{{Namespace: namespace}}
		}
		cmd.Network = schemas.Network{Mode: c.mode}
		cmd.Spec.Mounts, cmd.Spec.Network = cmd.Mounts, cmd.Network
		res, err := p.Run(t.Context(), cmd)
		if (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code || res.Runtime != c.runtime {
			t.Errorf("%s: %s, %v", name, res.Runtime, err)
		}
		if err != nil {
			continue
		}
		// With a network the connection is refused because no process listens, without one there is not even a socket.
		if got, want := strings.TrimSpace(string(res.Stdout)), map[bool]string{true: "1", false: "0"}[c.mode == schemas.AllowAll]; got != want {
			t.Errorf("%s: it has sockets: %q, want %q", name, got, want)
		}
		if warned := strings.Contains(strings.Join(res.Notices, "; "), "nothing can be reached"); warned != (c.mode == schemas.Restricted) {
			t.Errorf("%s: stderr %q", name, res.Stderr)
		}
	}
	if s.Made() != 3 {
		t.Errorf("%d environments were made for 3 functions", s.Made())
	}
}

// TestReadsMounted: calls without a sandbox read through a mount where there is the function for that: one with a mount and no network.
func TestReadsMounted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*lambda.Options)
		want   bool
	}{
		"all functions":            {func(*lambda.Options) {}, true},
		"a mount only for others":  {func(o *lambda.Options) { o.Functions.MountNoNet = "" }, false},
		"no runs without internet": {func(o *lambda.Options) { o.Networks = []schemas.NetworkMode{schemas.AllowAll} }, false},
	} {
		p, _ := start(t, lambdatest.Options{}, tc.change)
		if f := p.Profile(); f.ReadsMounted != tc.want || f.Storage != schemas.StorageYes {
			t.Errorf("%s: the profile says reads_mounted %t with storage %q", name, f.ReadsMounted, f.Storage)
		}
	}
	p, _ := start(t, lambdatest.Options{}, nil)
	cmd := command("ls -A && echo there")
	cmd.Mounts[0].ReadOnly, cmd.Spec.Mounts = true, cmd.Mounts
	if shown := ok(t, p, cmd); shown != "there" {
		t.Errorf("a workspace that was not used yet shows %q", shown)
	}
}

// TestApart: a command sees neither the credentials of its function nor the workspaces of others, and another account has environments
// of its own.
func TestApart(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	other := command("echo secret >file")
	other.Mounts = []providers.Mount{{Namespace: "fs-2"}}
	other.Spec.Mounts = other.Mounts
	ok(t, p, other)
	script := `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -c ` + lambdatest.Canary + `
ls /mnt/workspaces 2>/dev/null; cat /mnt/workspaces/fs-2/file 2>/dev/null; cat /workspace/../fs-2/file 2>/dev/null
echo x >/mnt/workspaces/fs-2/other 2>/dev/null; ls /run/lambdatest 2>/dev/null
echo own >file; cat /workspace/file; ps -e 2>/dev/null | grep -c beats; true`
	if got := ok(t, p, command(script)); got != "0\nown\n0" {
		t.Errorf("it sees %q", got)
	}
	if _, err := os.Stat(filepath.Join(s.Workspace("fs-2"), "other")); err == nil {
		t.Error("it has written into another workspace")
	}
	if s.Made() != 1 {
		t.Errorf("%d environments were made for one account", s.Made())
	}
	third := command("true")
	third.Spec.Account = "acct_third"
	ok(t, p, third)
	if s.Made() != 2 {
		t.Errorf("%d environments were made for two accounts", s.Made())
	}
}

// TestSync: what a command has left in the file system's memory is written before its answer goes out, where it has a workspace.
func TestSync(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	ok(t, p, plain("true"))
	if n := s.Synced(); n != 0 {
		t.Errorf("synced %d times for a command without a workspace", n)
	}
	ok(t, p, command("true"))
	if n := s.Synced(); n != 1 {
		t.Errorf("synced %d times", n)
	}
}

// TestLeftovers: nothing of a command is there in the next one of the same environment, whatever it has done to its files.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	ok(t, p, plain(`mkdir -p /tmp/a/b; echo x >/tmp/a/b/c; chmod 0 /tmp/a/b /tmp/a; echo x >"$HOME/.bashrc"; touch /tmp/.hidden
(setsid bash -c 'trap "" TERM HUP; while :; do echo x >>/tmp/beats; sleep 0.01; done' >/dev/null 2>&1 </dev/null &) ; sleep 0.05`))
	if got := ok(t, p, plain(`ls -A /tmp "$HOME"; ls /proc | grep -c '^[0-9]'`)); !strings.HasPrefix(got, "/tmp:\nhome\n\n/tmp/home:\n") {
		t.Errorf("left is %q", got)
	}
	if s.Made() != 1 {
		t.Errorf("%d environments were made", s.Made())
	}
}

// TestUnconfined: what a function says that it has not kept is not said to be kept.
func TestUnconfined(t *testing.T) {
	t.Parallel()
	p, s := start(t, lambdatest.Options{}, nil)
	s.Fail(lambdatest.Fault{Answer: `{"ok":true,"exit_code":0,"confined":["seccomp"]}`})
	res, err := p.Run(t.Context(), command("true"))
	if err != nil || res.Isolation.Level != "L0" || !slices.Contains(res.Isolation.Missing, "landlock") {
		t.Errorf("%v, %+v", err, res.Isolation)
	}
	if res, err = p.Run(t.Context(), command("true")); err != nil || res.Isolation.Level != "L2" {
		t.Errorf("%v, %+v", err, res.Isolation)
	}
}

// invoke sends a request to a function by the vendor's client alone.
func invoke(t *testing.T, url, function string, payload []byte) (invocation.Response, *service.InvokeOutput) {
	t.Helper()
	c := service.New(service.Options{
		Region: lambdatest.Region, BaseEndpoint: aws.String(url), Credentials: credentials(""), RetryMaxAttempts: 1,
	})
	out, err := c.Invoke(t.Context(), &service.InvokeInput{FunctionName: aws.String(function), TenantId: aws.String("t"), Payload: payload})
	testwait.OK(t, err)
	var r invocation.Response
	if out.FunctionError == nil {
		testwait.OK(t, json.Unmarshal(out.Payload, &r))
	}
	return r, out
}

// TestContract: what functions take and answer, by any client of Lambda: all runtimes, and bad requests that are answered and no errors.
func TestContract(t *testing.T) {
	t.Parallel()
	_, url := lambdatest.Start(t, lambdatest.Options{})
	for name, c := range map[string]struct {
		needs, request, stdout, stderr string
		ok                             bool
		code                           int
	}{
		"bash":       {"bash", `{"runtime":"sh","code":"echo $1; exit 3","args":["a b"]}`, "a b\n", "", true, 3},
		"python":     {"python3", `{"runtime":"py","code":"import sys\nprint(sys.argv[1], sys.stdin.read())","args":["a"],"stdin_base64":"Yg=="}`, "a b\n", "", true, 0},
		"node":       {"node", `{"runtime":"javascript","code":"console.log(process.argv[2]); process.exitCode = 4","args":["a"]}`, "a\n", "", true, 4},
		"modules":    {"node", `{"runtime":"node","code":"import os from 'node:os'; console.log(typeof os.cpus)"}`, "function\n", "", true, 0},
		"variables":  {"bash", `{"runtime":"bash","code":"echo $A $HOME","env":{"A":"b","HOME":"/x"}}`, "b /tmp/home\n", "", true, 0},
		"no module":  {"node", `{"runtime":"node","code":"console.log('import no more', typeof require)"}`, "import no more function\n", "", true, 0},
		"no runtime": {"bash", `{"runtime":"perl","code":"1"}`, "", "use bash, python, node or uv", false, 0},
		"no object":  {"bash", `[]`, "", "not JSON of this form", false, 0},
		"a name":     {"bash", `{"runtime":"bash","namespace":"../etc"}`, "", "is not the name", false, 0},
		"no mount":   {"bash", `{"runtime":"bash","namespace":"fs-1"}`, "", "no file system", false, 0},
		"no folder":  {"bash", `{"runtime":"bash","code":"true","dir":"/missing"}`, "", "no such file", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat("/usr/bin/" + c.needs); err != nil {
				longtest.Missing(t, "commands need /usr/bin/%s here", c.needs)
			}
			r, out := invoke(t, url, lambdatest.NoMountNoNet, []byte(c.request))
			if out.FunctionError != nil {
				t.Fatalf("a function's error: %s", out.Payload)
			}
			if r.OK != c.ok || string(r.Out()) != c.stdout || !strings.Contains(string(r.Err()), c.stderr) || r.OK && *r.ExitCode != c.code {
				t.Errorf("%s", out.Payload)
			}
		})
	}
}

// TestReservedTenant: functions for tenants refuse who names none, and the other way round.
func TestReservedTenant(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		p, s := start(t, lambdatest.Options{Shared: shared}, func(o *lambda.Options) { o.SharedEnvironments = !shared })
		if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started || s.Begun() > 0 {
			t.Errorf("%v, %+v", err, res)
		}
	}
	p, _ := start(t, lambdatest.Options{Shared: true}, func(o *lambda.Options) { o.SharedEnvironments = true })
	ok(t, p, command("true"))
}

func TestRefused(t *testing.T) {
	t.Parallel()
	p := on(t, "http://127.0.0.1:1", nil)
	for name, change := range map[string]func(*providers.Command){
		"limits of memory": func(c *providers.Command) { c.Spec.MemoryLimit = 1 << 30 },
		"a kept sandbox":   func(c *providers.Command) { c.Sandbox = schemas.Ref{ID: "x"} },
		"more isolation":   func(c *providers.Command) { c.Spec.MinIsolation = "L3" },
		"two workspaces":   func(c *providers.Command) { c.Mounts = append(c.Mounts, providers.Mount{Namespace: "b"}) },
		"too long":         func(c *providers.Command) { c.Timeout = 301e9 },
		"credentials":      func(c *providers.Command) { c.Network.Credentials = map[string][]string{"A": {"b"}} },
	} {
		cmd := command("true")
		change(&cmd)
		if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	_, url := lambdatest.Start(t, lambdatest.Options{})
	_, small := lambdatest.Start(t, lambdatest.Options{MemorySize: 128})
	_, short := lambdatest.Start(t, lambdatest.Options{Timeout: 3e9})
	expired := func(o *lambda.Options) { o.Credentials = credentials(lambdatest.ExpiredToken) }
	for name, c := range map[string]struct {
		url    string
		change func(*lambda.Options)
		good   int // findings
		says   string
	}{
		"all is there":      {url, func(*lambda.Options) {}, 4, "may be run: 512 MB, 330 s"},
		"no functions":      {url, func(o *lambda.Options) { o.Functions = lambda.Functions{} }, 0, "SANDBOX_FN_MOUNT_NET"},
		"one is not there":  {url, func(o *lambda.Options) { o.Functions.MountNet = "none" }, 3, "no such function"},
		"one is not named":  {url, func(o *lambda.Options) { o.Functions.MountNet = "" }, 3, "no function is named"},
		"not for tenants":   {url, func(o *lambda.Options) { o.SharedEnvironments = true }, 0, "the function or its settings are wrong"},
		"no file system":    {url, func(o *lambda.Options) { o.Functions.MountNet = lambdatest.NoMountNet }, 3, "has no file system"},
		"nobody answers":    {"http://127.0.0.1:1", func(*lambda.Options) {}, 0, "cannot be reached"},
		"not let in":        {url, expired, 0, "does not let this worker"},
		"not an address":    {"ftp://x", func(*lambda.Options) {}, 0, "is not a URL"},
		"too little memory": {small, func(*lambda.Options) {}, 0, "has 128 MB"},
		"too little time":   {short, func(*lambda.Options) {}, 0, "ends after 3 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := settings(c.url)
			c.change(&o)
			good, text := 0, ""
			for _, d := range lambda.Diagnose(t.Context(), o) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, lambdatest.SecretKey) {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
}

// TestDiagnoseLeavesNothing: the doctor runs one command in each function, and no workspace is made for it.
func TestDiagnoseLeavesNothing(t *testing.T) {
	t.Parallel()
	s, url := lambdatest.Start(t, lambdatest.Options{})
	lambda.Diagnose(t.Context(), settings(url))
	left, err := os.ReadDir(filepath.Dir(s.Workspace(namespace)))
	if err != nil || len(left) > 0 || s.Begun() != 4 {
		t.Errorf("%d invocations were begun and left %v, %v", s.Begun(), left, err)
	}
}

// TestOldKernel: where the kernel has no Landlock and takes no filter, a command is refused, or runs and is not said to be confined, as the
// function's variable says; and the doctor says which.
func TestOldKernel(t *testing.T) {
	t.Parallel()
	for unconfined, says := range map[bool]string{
		false: "runs no commands: the command cannot be started: the kernel has no Landlock",
		true:  "isolation L0 (missing: memory, cpu, pids, landlock, seccomp)",
	} {
		t.Run(fmt.Sprint(unconfined), func(t *testing.T) {
			t.Parallel()
			s, url := lambdatest.Start(t, lambdatest.Options{OldKernel: true, Unconfined: unconfined})
			o := settings(url)
			p := on(t, url, nil)
			res, err := p.Run(t.Context(), command("echo x >>ran"))
			if unconfined != (err == nil) || res.Isolation.Level == "L2" && err == nil {
				t.Errorf("%v, %+v", err, res.Isolation)
			}
			if n := ran(t, s); n != 0 && !unconfined {
				t.Errorf("it ran %d times", n)
			}
			strict := command("true")
			strict.Spec.MinIsolation = "L2"
			if _, err := p.Run(t.Context(), strict); schemas.CodeOf(err) != schemas.Unsupported {
				t.Errorf("with a least isolation: %v", err)
			}
			for _, d := range lambda.Diagnose(t.Context(), o) {
				if d.Good != unconfined || !strings.Contains(d.Says, says) || !d.Good && d.Remedy == "" {
					t.Errorf("the doctor: %+v", d)
				}
			}
		})
	}
}

// TestOldLandlockKeepsFilesWhole: where Landlock is of a kernel before 6.2, whose rules do not keep files from being emptied, a command
// empties none of another workspace and none of its own that it only reads, and works on those that it may write.
func TestOldLandlockKeepsFilesWhole(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		longtest.Missing(t, "files are emptied by perl here: install it")
	}
	const other = "fs-2"
	// Two ways that need no right to write by Landlock: a path alone, and an open to read, or for neither, that empties.
	const empty = `perl -e 'use Fcntl; my $f = shift; print "cut " if truncate($f, 0);
for my $flags (O_RDONLY|O_TRUNC, 3|O_TRUNC) { print "opened " if sysopen(my $h, $f, $flags); }' `
	for _, abi := range []int{0, 2, 1} {
		t.Run(fmt.Sprint(abi), func(t *testing.T) {
			t.Parallel()
			p, s := start(t, lambdatest.Options{LandlockABI: abi}, nil)
			for _, ns := range []string{namespace, other} {
				testwait.OK(t, errors.Join(os.MkdirAll(s.Workspace(ns), 0o700), os.WriteFile(filepath.Join(s.Workspace(ns), "x"), []byte("whole"), 0o600)))
			}
			reads := command(empty + "x; " + empty + filepath.Join(invocation.WorkspacesPath, other, "x"))
			reads.Mounts = []providers.Mount{{Namespace: namespace, ReadOnly: true}}
			said := ok(t, p, reads)
			whole := func(ns string) {
				t.Helper()
				if data, err := os.ReadFile(filepath.Join(s.Workspace(ns), "x")); err != nil || string(data) != "whole" || said != "" {
					t.Errorf("the file of %s is %q, %v; the command said %q", ns, data, err, said)
				}
			}
			whole(namespace)
			writes := "echo more >x; cat x; : >x; perl -e 'open(F, \"+<\", \"y\") or die; truncate(F, 1) or die' ; cat y"
			if got := ok(t, p, command("echo yes >y; "+writes+"; "+empty+filepath.Join(invocation.WorkspacesPath, other, "x"))); got != "more\ny" {
				t.Errorf("a command that may write printed %q", got)
			}
			whole(other)
		})
	}
}

// TestWithoutCredentials: where the worker cannot get its credentials Lambda was not asked, whatever was asked for them.
func TestWithoutCredentials(t *testing.T) {
	t.Parallel()
	asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer asked.Close()
	broken := aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, asked.URL, nil)
		if err == nil {
			var res *http.Response
			if res, err = http.DefaultClient.Do(req); err == nil { // a connection, and no credentials
				err = errors.Join(errors.New("no role: "+res.Status), res.Body.Close())
			}
		}
		return aws.Credentials{}, err
	})
	s, url := lambdatest.Start(t, lambdatest.Options{})
	o := settings(url)
	o.Credentials = broken
	p := on(t, url, func(o *lambda.Options) { o.Credentials = broken })
	res, err := p.Run(t.Context(), command("true"))
	if schemas.CodeOf(err) != schemas.Unavailable || res.Started || s.Begun() != 0 || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("%v, %+v", err, res)
	}
	for _, d := range lambda.Diagnose(t.Context(), o) {
		if d.Good || !strings.Contains(d.Remedy, "AWS_PROFILE") {
			t.Errorf("the doctor: %+v", d)
		}
	}
}
