package providertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func profileCases() []testCase {
	return []testCase{
		{"a network that it cannot keep is refused", refuseNetwork},
		{"a level above its own is refused", refuseLevel},
		{"its own level is accepted", acceptLevel},
		{"a limit that it cannot keep is refused", refuseLimits},
		{"a memory limit is kept", keepMemory},
		{"a process limit is kept", keepPids},
	}
}

// isolationCases returns the test cases for providers that isolate.
func isolationCases() []testCase {
	return []testCase{
		{"a read-only mount cannot be written", readOnlyMount},
		{"deny-all reaches nothing", denyAll},
		{"a namespace that is no name is refused", badNamespaces},
	}
}

// wantRefused runs cmd, which must be refused as unsupported without having been started.
func (s subject) wantRefused(t *testing.T, cmd providers.Command) {
	t.Helper()
	cmd.Script = "touch ran"
	res, err := s.Run(t.Context(), cmd)
	wantCode(t, err, schemas.Unsupported)
	want(t, "Started", res.Started, false)
	want(t, "files", s.sh(t, "ls"), "")
}

func refuseNetwork(t *testing.T, s subject) {
	for _, mode := range []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted, "no-such-mode"} {
		if slices.Contains(s.profile.Networks, mode) {
			continue
		}
		cmd := s.command("")
		cmd.Network = schemas.Network{Mode: mode, AllowDomains: []string{"example.com"}}
		cmd.Spec.Network = cmd.Network
		s.wantRefused(t, cmd)
	}
}

func refuseLevel(t *testing.T, s subject) {
	cmd := s.command("")
	cmd.Spec.MinIsolation = "L9"
	s.wantRefused(t, cmd)
}

func acceptLevel(t *testing.T, s subject) {
	cmd := s.command("echo x")
	cmd.Spec.MinIsolation = s.profile.Isolation.Level
	want(t, "stdout", s.ok(t, cmd), "x")
}

func refuseLimits(t *testing.T, s subject) {
	for _, l := range []struct {
		kept bool
		set  func(*providers.Spec)
	}{
		{s.profile.MemoryLimit, func(sp *providers.Spec) { sp.MemoryLimit = 1 << 30 }},
		{s.profile.PidsLimit, func(sp *providers.Spec) { sp.Pids = 100 }},
		{s.profile.CPULimit, func(sp *providers.Spec) { sp.CPUs = 1 }},
	} {
		cmd := s.command("echo x")
		l.set(&cmd.Spec)
		if l.kept {
			want(t, "stdout", s.ok(t, cmd), "x")
		} else {
			s.wantRefused(t, cmd)
		}
	}
}

func keepMemory(t *testing.T, s subject) {
	if !s.profile.MemoryLimit {
		t.Skipf("%s keeps no memory limit", s.profile.Name)
	}
	// Of a pipe tail keeps what it reads until the end, which never comes. (/dev/zero itself can be sought.)
	cmd := s.command("echo before; cat /dev/zero | tail -c 4G | wc -c; echo survived")
	cmd.Spec.MemoryLimit = 128 << 20
	res := s.run(t, cmd)
	want(t, "OOMKilled", res.OOMKilled, true)
	if !strings.HasPrefix(string(res.Stdout), "before\n") {
		t.Errorf("stdout %.100q", res.Stdout)
	}
	if res.TimedOut {
		t.Error("it ended by its timeout, not by its limit")
	}
	want(t, "the next run", s.sh(t, "echo fine"), "fine")
}

func keepPids(t *testing.T, s subject) {
	if !s.profile.PidsLimit {
		t.Skipf("%s keeps no process limit", s.profile.Name)
	}
	// At the first fork that fails bash says so and then waits 15 s for a slot before it ends: its first word is enough, and is read without a
	// fork.
	cmd := s.command(`coproc { exec 2>&1; for i in $(seq 300); do sleep 60 & done; echo started all; }; read -r word <&"${COPROC[0]}"; echo "$word"`)
	cmd.Spec.Pids = 50
	if word := string(s.run(t, cmd).Stdout); !strings.Contains(word, "fork") {
		t.Errorf("300 processes at a limit of 50: %q, want bash's word on a fork that failed", word)
	}
	want(t, "the next run", s.sh(t, "echo fine"), "fine")
}

// checkProfile checks facts against capabilities.
func checkProfile(t *testing.T, p providers.Provider, f providers.Profile) {
	t.Helper()
	if f.Name == "" || f.MaxTimeout <= 0 || f.MaxMemory <= 0 || f.MaxOutput <= 0 || f.Shell == "" || f.Isolation.Level == "" {
		t.Errorf("something is not told: %+v", f)
	}
	if len(f.Networks) == 0 {
		t.Error("it can enforce no network mode at all: then it can run nothing")
	}
	_, reserves := providers.As[providers.Reserver](p)
	want(t, "Persistent", f.Persistent, reserves)
	if _, starts := providers.As[providers.JobStarter](p); starts && !f.Jobs || f.Jobs && !f.Persistent {
		t.Errorf("Jobs is %v: it has JobStarter %v, and keeps boxes %v", f.Jobs, starts, f.Persistent)
	}
	for _, word := range f.Isolation.Enforced {
		if slices.Contains(f.Isolation.Missing, word) {
			t.Errorf("%s is both enforced and missing", word)
		}
	}
}

func readOnlyMount(t *testing.T, s subject) {
	s.needIsolation(t)
	s.sh(t, "echo content >file; mkdir dir")
	s.mount.ReadOnly = true
	script := "cat file; for try in 'echo x >file' 'touch new' 'rm file' 'mkdir d' 'mv file g' 'ln file h' 'touch dir/x'; do (eval " +
		"\"$try\") 2>/dev/null && echo \"$try\"; done; true"
	want(t, "what a read-only mount lets through", s.sh(t, script), "content")
	if s.hasRoot() {
		want(t, "a change of mode", s.sh(t, "chmod 777 file 2>/dev/null && echo done; true"), "")
	}
	s.mount.ReadOnly = false
	want(t, "files", s.sh(t, "cat file; ls"), "content\ndir\nfile")
}

func denyAll(t *testing.T, s subject) {
	s.needIsolation(t)
	script := `for a in 127.0.0.1/22 127.0.0.1/4222 8.8.8.8/53 169.254.169.254/80; do (exec 3<>/dev/tcp/$a) 2>/dev/null && echo "$a"; done; true`
	want(t, "what can be reached", s.sh(t, script), "")
}

func badNamespaces(t *testing.T, s subject) {
	for _, ns := range []string{"", ".", "..", "a/b", "/etc", "../x", "a\x00b"} {
		cmd := s.command("echo ran")
		cmd.Mounts = []providers.Mount{{Namespace: ns}}
		cmd.Spec.Mounts = cmd.Mounts
		res, err := s.Run(t.Context(), cmd)
		if err == nil || res.Started {
			t.Errorf("namespace %q was taken", ns)
		}
	}
}
