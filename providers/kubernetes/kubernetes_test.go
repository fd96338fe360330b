package kubernetes_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

const account = schemas.AccountID("acct_kubernetes")

// open connects to a cluster.
func open(tb testing.TB, c *kubetest.Cluster, change func(*kubernetes.Options)) *kubernetes.Provider {
	tb.Helper()
	o := kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "registry.example/sandbox:1", StartTimeout: time.Minute}
	if change != nil {
		change(&o)
	}
	p, err := kubernetes.New(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// mode is a kind of cluster: what it serves of Sandbox objects.
type mode struct {
	name   string
	served []string
}

func modes() []mode {
	return []mode{{"v1beta1", []string{"v1beta1", "v1alpha1"}}, {"v1alpha1", []string{"v1alpha1"}}, {"pods", nil}}
}

// inEach runs a test in a cluster of each kind, with further options where some are given.
func inEach(t *testing.T, f func(t *testing.T, c *kubetest.Cluster), with ...kubetest.Options) {
	t.Helper()
	var o kubetest.Options
	for _, more := range with {
		o = more
	}
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			if m.name == "v1alpha1" {
				longtest.Only(t, "the older version of Sandbox objects")
			}
			t.Parallel()
			o := o
			o.Sandboxes = m.served
			f(t, kubetest.Start(t, o))
		})
	}
}

func TestConformance(t *testing.T) {
	longtest.Only(t, "the whole suite, and parts of it in a cluster of each kind; the tests beside it show the same way of running")
	for i, m := range modes() {
		with := []providertest.Option{providertest.Declares(kubernetes.Declared())}
		if i > 0 { // the ways differ in how pods are made and found
			with = append(with, providertest.Groups("Run", "Reserver", "Pauser", "Lister"))
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t, kubetest.Options{Sandboxes: m.served})
			providertest.Test(t, func(tb testing.TB) providers.Provider {
				tb.Helper()
				return supervisor.Wrap(open(tb, c, nil), supervisor.Options{})
			}, with...)
		})
	}
}

// TestListKept is the suite's parts on listing and pausing, in a cluster of each kind, and the state of a box that is paused.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestListKept(t *testing.T) {
	longtest.Only(t, "ten seconds with an API server and its pods")
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		providertest.Test(t, func(tb testing.TB) providers.Provider {
			tb.Helper()
			return open(tb, c, nil)
		}, providertest.Groups("Lister", "Pauser"))
		p := open(t, c, nil)
		spec := command("").Spec
		spec.Deployment = "dep_1"
		ref, err := p.Reserve(t.Context(), "key", spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Pause(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		all, err := p.ListKept(t.Context(), "dep_1")
		if err != nil || len(all) != 1 || all[0].State != providers.BoxPaused || all[0].Ref.ID != ref.ID {
			t.Fatalf("%+v, %v, want the paused box %+v", all, err, ref)
		}
		if err := p.Release(t.Context(), all[0].Ref); err != nil {
			t.Fatal(err)
		}
		if all, err = p.ListKept(t.Context(), "dep_1"); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v are left of a paused box that was released", all, err)
		}
		_, err = p.ListKept(t.Context(), "a,b")
		wantCode(t, err, schemas.Invalid)
	})
}

// command is script in a fresh box with a workspace.
func command(script string) providers.Command {
	mounts := []providers.Mount{{Namespace: schemas.Namespace(account, "ws_1")}}
	return providers.Command{Script: script, Timeout: time.Minute, Mounts: mounts, Spec: providers.Spec{Account: account, Mounts: mounts}}
}

// in is script in a kept box.
func in(ref schemas.Ref, script string) providers.Command {
	cmd := command(script)
	cmd.Sandbox = ref
	return cmd
}

func sh(t *testing.T, p providers.Provider, cmd providers.Command) string {
	t.Helper()
	res, err := p.Run(t.Context(), cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: exit code %d, stdout %q, stderr %q, %v", cmd.Script, res.ExitCode, res.Stdout, res.Stderr, err)
	}
	return string(res.Stdout)
}

func reserve(t *testing.T, p *kubernetes.Provider) schemas.Ref {
	t.Helper()
	ref, err := p.Reserve(t.Context(), "key", command("").Spec)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// until waits for what has to come.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		wait.Sleep(t.Context(), 20*time.Millisecond)
	}
	t.Fatalf("%s did not come", what)
}

func wantCode(t *testing.T, err error, code schemas.Code) {
	t.Helper()
	if err == nil || schemas.CodeOf(err) != code {
		t.Errorf("error %v with code %q, want %q", err, schemas.CodeOf(err), code)
	}
}

// background runs cmd until it prints a word.
func background(t *testing.T, p *kubernetes.Provider, cmd providers.Command) <-chan outcome {
	t.Helper()
	heard, done := make(chan struct{}, 1), make(chan outcome, 1)
	cmd.Output = func(c providers.Chunk) {
		if c.Stderr { // a shell may complain before its command begins
			return
		}
		select {
		case heard <- struct{}{}:
		default:
		}
	}
	go func() {
		res, err := p.Run(t.Context(), cmd)
		done <- outcome{res, err}
	}()
	select {
	case <-heard:
	case o := <-done:
		t.Fatalf("it ended before it said anything: %+v, %v", o.res, o.err)
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	return done
}

type outcome struct {
	res providers.Result
	err error
}

func ended(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		panic("unreachable")
	}
}

func TestRunInAFreshBoxLeavesNothing(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		res, err := p.Run(t.Context(), command("id -u; echo err >&2; exit 3"))
		if err != nil || res.ExitCode != 3 || string(res.Stdout) != "1000\n" || string(res.Stderr) != "err\n" {
			t.Errorf("%+v, %v", res, err)
		}
		until(t, "the end of pod, policy and box", func() bool {
			return len(c.Objects("pods"))+len(c.Objects("networkpolicies"))+len(c.Objects("sandboxes")) == 0 && c.Processes() == 0
		})
		if n := len(c.Objects("persistentvolumeclaims")); n != 1 {
			t.Errorf("%d claims are left, want that of the workspace", n)
		}
	})
}

func TestFirstUsesRace(t *testing.T) {
	longtest.Only(t, "ten seconds with an API server and its pods")
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		const n = 50
		refs, errs := make(chan schemas.Ref, n), make(chan error, n)
		for range n {
			go func() {
				ref, err := p.Reserve(t.Context(), "key", command("").Spec)
				refs <- ref
				errs <- err
			}()
		}
		first := <-refs
		for range n - 1 {
			if ref := <-refs; ref != first {
				t.Errorf("%+v and %+v", ref, first)
			}
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if pods := c.Objects("pods"); len(pods) != 1 {
			t.Errorf("pods %v", pods)
		}
	})
}

func TestPauseAndWake(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		ref := reserve(t, p)
		sh(t, p, in(ref, "echo kept >~/file; echo gone >$TMPDIR/file"))
		for range 2 {
			if err := p.Pause(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Processes(); n != 0 {
			t.Errorf("%d processes live in a box that is paused", n)
		}
		_, err := p.Run(t.Context(), in(ref, "true"))
		wantCode(t, err, schemas.NotFound)
		woken := reserve(t, p)
		if woken.ID != ref.ID || woken.Epoch == ref.Epoch {
			t.Errorf("%+v was %+v", woken, ref)
		}
		if got := sh(t, p, in(woken, "cat ~/file; ls -A $TMPDIR")); got != "kept\n" {
			t.Errorf("the woken box has %q", got)
		}
		if err := p.Release(t.Context(), woken); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of its home", func() bool { return len(c.Objects("persistentvolumeclaims")) == 1 })
	})
}

func TestJobsOutliveTheirWorker(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		first := open(t, c, nil)
		ref := reserve(t, first)
		worker := supervisor.Wrap(first, supervisor.Options{})
		starter, _ := providers.As[providers.JobStarter](worker)
		command := in(ref, "echo begun; until [ -e go ]; do sleep 0.02; done; echo done; exit 4")
		job, err := starter.StartJob(t.Context(), schemas.NewJobID(), command, providers.JobOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := open(t, c, nil)
		if again := reserve(t, second); again != ref {
			t.Fatalf("another worker finds %+v, not %+v", again, ref)
		}
		control, _ := providers.As[providers.JobController](supervisor.Wrap(second, supervisor.Options{}))
		s, err := control.JobStatus(t.Context(), job)
		if err != nil || !s.Running {
			t.Fatalf("%+v, %v", s, err)
		}
		sh(t, second, in(ref, "touch go"))
		until(t, "the job's end", func() bool {
			s, err = control.JobStatus(t.Context(), job)
			return err != nil || !s.Running
		})
		if err != nil || s.End.ExitCode != 4 || string(s.End.Tail) != "begun\ndone\n" {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
