package providertest

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

type pauseCase struct {
	name string
	run  func(t *testing.T, s subject, r providers.Reserver, p providers.Pauser)
}

func pauseCases() []pauseCase {
	return []pauseCase{
		{"a paused box runs nothing, and the next Reserve wakes it", pauseAndWake},
		{"a paused box is released as any other", pauseReleased},
		{"pausing what is gone is no error", pauseGone},
		{"an old ref does not pause the woken box", pauseOld},
	}
}

// pause pauses a box twice: the second time is no error.
func pause(t *testing.T, p providers.Pauser, ref schemas.Ref) {
	t.Helper()
	for range 2 {
		if err := p.Pause(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
}

func pauseAndWake(t *testing.T, s subject, r providers.Reserver, p providers.Pauser) {
	ref := s.keep(t, r)
	s.ok(t, s.in(ref, `echo kept >"$HOME/file"; echo kept >file; echo kept >"$TMPDIR/file"`))
	pause(t, p, ref)
	res, err := s.Run(t.Context(), s.in(ref, "echo ran"))
	wantCode(t, err, schemas.NotFound)
	want(t, "Started", res.Started, false)
	woken := s.keep(t, r)
	want(t, "what stays", s.ok(t, s.in(woken, `cat "$HOME/file" file`)), "kept\nkept")
	if providers.ProfileOf(s.Provider).Pause == schemas.PauseKeepsProcesses {
		want(t, "the box whose processes stay", woken, ref)
		want(t, "what stays beside the home", s.ok(t, s.in(woken, `cat "$TMPDIR/file"`)), "kept")
	} else if woken.Epoch == ref.Epoch {
		t.Errorf("the processes have ended and the epoch %q has not", ref.Epoch)
	}
}

func pauseReleased(t *testing.T, s subject, r providers.Reserver, p providers.Pauser) {
	ref := s.keep(t, r)
	s.ok(t, s.in(ref, `echo left >"$HOME/left"`))
	pause(t, p, ref)
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	again := s.keep(t, r)
	if again.Epoch == ref.Epoch {
		t.Errorf("the new box has the old epoch %q", ref.Epoch)
	}
	want(t, "what is left", s.ok(t, s.in(again, `ls -A "$HOME" | grep -c left; true`)), "0")
}

func pauseGone(t *testing.T, s subject, r providers.Reserver, p providers.Pauser) {
	ref := s.keep(t, r)
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	pause(t, p, ref)
	pause(t, p, schemas.Ref{ID: "no-such-box", Epoch: "none"})
}

func pauseOld(t *testing.T, s subject, r providers.Reserver, p providers.Pauser) {
	ref := s.keep(t, r)
	pause(t, p, ref)
	woken := s.keep(t, r)
	if woken == ref {
		t.Skip("its processes stay, and with them its ref")
	}
	if err := p.Pause(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	want(t, "the woken box", s.ok(t, s.in(woken, "echo lives")), "lives")
}
