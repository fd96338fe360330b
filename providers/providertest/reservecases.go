package providertest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

type reserveCase struct {
	name string
	run  func(t *testing.T, s subject, r providers.Reserver)
}

func reserveCases() []reserveCase {
	return []reserveCase{
		{"the same key is the same box", reserveTwice},
		{"racing for a key makes one box", reserveRace},
		{"different keys are different boxes", reserveApart},
		{"the box keeps its state and the workspace's files", keptState},
		{"a run says in which box it was", keptRef},
		{"the box's variables are there", keptEnvironment},
		{"many runs at once in one box do not mix", keptConcurrent},
		{"a timeout ends one run and not the box", keptTimeout},
		{"cancelling kills the run's whole tree and not the box", keptCancel},
		{"a process left in the background does not hold up the run", keptBackground},
		{"a released box is gone, its files stay", released},
		{"releasing again is no error", releaseTwice},
		{"a released box takes its processes along", releaseProcesses},
		{"releasing ends what runs", releaseRunning},
		{"an old ref does not touch the new box", releaseOld},
		{"what the profile cannot keep is not reserved", reserveRefused},
	}
}

// keep reserves a box of the test's own and releases it at its end.
func (s subject) keep(t *testing.T, r providers.Reserver) schemas.Ref {
	t.Helper()
	ref, err := r.Reserve(t.Context(), t.Name(), s.spec())
	if err != nil {
		t.Fatal(err)
	}
	if ref.ID == "" || ref.Epoch == "" {
		t.Fatalf("an empty ref: %+v", ref)
	}
	*s.keeps = ref
	t.Cleanup(func() {
		if err := r.Release(context.WithoutCancel(t.Context()), ref); err != nil { // the test's own has ended
			t.Error(err)
		}
	})
	return ref
}

// in returns a command with script in the persistent box.
func (s subject) in(ref schemas.Ref, script string) providers.Command {
	cmd := s.command(script)
	cmd.Sandbox = ref
	return cmd
}

func reserveTwice(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	want(t, "the second time", s.keep(t, r), ref)
	s.ok(t, s.in(ref, "true"))
	want(t, "after a run", s.keep(t, r), ref)
}

func reserveRace(t *testing.T, s subject, r providers.Reserver) {
	type answer struct {
		ref schemas.Ref
		err error
	}
	const n = 12
	answers := make(chan answer, n)
	for range n {
		go func() {
			ref, err := r.Reserve(t.Context(), t.Name(), s.spec())
			answers <- answer{ref, err}
		}()
	}
	first := receive(t, "an answer", answers)
	for range n - 1 {
		want(t, "the others' box", receive(t, "an answer", answers), first)
	}
	if first.err != nil {
		t.Fatal(first.err)
	}
	if err := r.Release(t.Context(), first.ref); err != nil {
		t.Error(err)
	}
}

func reserveApart(t *testing.T, s subject, r providers.Reserver) {
	one := s.keep(t, r)
	other := s.another()
	two, err := r.Reserve(t.Context(), t.Name()+"/two", other.spec())
	if err != nil {
		t.Fatal(err)
	}
	if one == two {
		t.Fatalf("both are %+v", one)
	}
	s.ok(t, s.in(one, `echo one >"$TMPDIR/mine"`))
	want(t, "what the other box sees", s.ok(t, other.in(two, `ls -A "$TMPDIR" | grep -c mine; true`)), "0")
	if err := r.Release(t.Context(), two); err != nil {
		t.Error(err)
	}
	want(t, "the first box", s.ok(t, s.in(one, `cat "$TMPDIR/mine"`)), "one")
}

func keptState(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	s.ok(t, s.in(ref, `echo a >"$HOME/a"; echo b >"$TMPDIR/b"; echo c >c; cd /; export X=1`))
	want(t, "state", s.ok(t, s.in(ref, `cat "$HOME/a" "$TMPDIR/b" c; echo "[$X]"`)), "a\nb\nc\n[]")
	if s.profile.ExclusiveWorkspaces {
		if err := r.Release(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "the file from outside of the box", s.sh(t, "cat c"), "c")
}

func keptRef(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	want(t, "Sandbox", s.run(t, s.in(ref, "true")).Sandbox, ref)
}

func keptEnvironment(t *testing.T, s subject, r providers.Reserver) {
	spec := s.spec()
	spec.Env = map[string]string{"OF_THE_BOX": "box", "BOTH": "box", "HOME": "/evil"}
	ref, err := r.Reserve(t.Context(), t.Name(), spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.in(ref, `echo "$OF_THE_BOX $BOTH"; [ "$HOME" != /evil ]`)
	cmd.Spec = spec
	cmd.Env = map[string]string{"BOTH": "run"}
	want(t, "variables", s.ok(t, cmd), "box run")
	if err := r.Release(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

func keptConcurrent(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	const n = 12
	outcomes := make([]<-chan outcome, n)
	for i := range n {
		cmd := s.in(ref, "cat; for i in $(seq 300); do echo $ID; done; (exit 3) & wait $!; [ $? = 3 ] && exit $ID")
		cmd.Env = map[string]string{"ID": strconv.Itoa(i)}
		cmd.Stdin = []byte(strconv.Itoa(i) + "\n")
		outcomes[i] = s.start(t.Context(), cmd)
	}
	for i, done := range outcomes {
		got := receive(t, "a run's end", done)
		if got.err != nil || string(got.res.Stdout) != strings.Repeat(strconv.Itoa(i)+"\n", 301) || got.res.ExitCode != i {
			t.Errorf("run %d: exit code %d, %d bytes, %v", i, got.res.ExitCode, len(got.res.Stdout), got.err)
		}
	}
}

func keptTimeout(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	other := s.in(ref, "until [ -e go ]; do sleep 0.02; done; echo done")
	other.Timeout += patience // the other run may be tried a few times
	done := s.start(t.Context(), other)
	cmd := s.in(ref, "echo before; trap '' TERM; sleep 600")
	cmd.Grace = 100 * time.Millisecond
	want(t, "stdout", string(s.timedOut(t, cmd, "before").Stdout), "before\n")
	s.ok(t, s.in(ref, "touch go"))
	if o := receive(t, "the other run", done); o.err != nil || string(o.res.Stdout) != "done\n" {
		t.Errorf("the other run: %q, %v", o.res.Stdout, o.err)
	}
}

func keptCancel(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := listenFor("beating")
	cmd := s.in(ref, beating+"sleep 600")
	cmd.Output = h.output
	done := s.start(ctx, cmd)
	receive(t, "the first beat", h.arrived)
	cancel()
	if o := receive(t, "the end", done); !isCancelled(o.err) {
		t.Errorf("error %v, want context.Canceled", o.err)
	}
	s.wantSilence(t)
	want(t, "the next run in the box", s.ok(t, s.in(ref, "echo fine")), "fine")
}

func keptBackground(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	o := receive(t, "the end", s.start(t.Context(), s.in(ref, "sleep 600 & echo done; exit 5")))
	if o.err != nil || o.res.ExitCode != 5 || string(o.res.Stdout) != "done\n" {
		t.Errorf("%+v, %v", o.res, o.err)
	}
}

func released(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	s.ok(t, s.in(ref, `echo x >file; echo x >"$TMPDIR/left"`))
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(t.Context(), s.in(ref, "echo ran"))
	wantCode(t, err, schemas.NotFound)
	want(t, "Started", res.Started, false)
	again := s.keep(t, r)
	if again.Epoch == ref.Epoch {
		t.Errorf("the new box has the old epoch %q", ref.Epoch)
	}
	want(t, "what is left", s.ok(t, s.in(again, `cat file; ls -A "$TMPDIR" | grep -c left; true`)), "x\n0")
}

func releaseTwice(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	for range 3 {
		if err := r.Release(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if err := r.Release(t.Context(), schemas.Ref{ID: "no-such-box", Epoch: "none"}); err != nil {
		t.Errorf("a box that never was: %v", err)
	}
}

func releaseProcesses(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	want(t, "stdout", s.ok(t, s.in(ref, beating)), "beating")
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	s.wantSilence(t)
}

func releaseRunning(t *testing.T, s subject, r providers.Reserver) {
	ref := s.keep(t, r)
	h := listenFor("beating")
	cmd := s.in(ref, beating+"sleep 600")
	cmd.Output = h.output
	done := s.start(t.Context(), cmd)
	receive(t, "the first beat", h.arrived)
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	o := receive(t, "the end", done)
	wantCode(t, o.err, schemas.Interrupted)
	want(t, "Started", o.res.Started, true)
	s.wantSilence(t)
}

func releaseOld(t *testing.T, s subject, r providers.Reserver) {
	old := s.keep(t, r)
	if err := r.Release(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	fresh := s.keep(t, r)
	if err := r.Release(t.Context(), old); err != nil {
		t.Error(err)
	}
	want(t, "the new box", s.ok(t, s.in(fresh, "echo lives")), "lives")
}

func reserveRefused(t *testing.T, s subject, r providers.Reserver) {
	spec := s.spec()
	spec.MinIsolation = "L9"
	_, err := r.Reserve(t.Context(), t.Name(), spec)
	wantCode(t, err, schemas.Unsupported)
}
