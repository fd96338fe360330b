//go:build linux

package box

import (
	"bytes"
	"reflect"
	"testing"
)

func TestFramesComeBack(t *testing.T) {
	enc := func(f encoder) []byte {
		w := writer{}
		f.encode(&w)
		return w
	}
	check := func(name string, want, got any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %+v came back as %+v, %v", name, want, got, err)
		}
	}
	m := makeFrame{ID: 1 << 40, Mode: Landlocked, HostNet: true, HostID: 1 << 30, Cgroup: true, Tasks: []string{"/a/tasks", ""}}
	gotMake, err := decodeMake(enc(m))
	check("make", m, gotMake, err)
	made := madeFrame{ID: 3, Pid: 4, Errno: 5, Step: "x"}
	gotMade, err := decodeMade(enc(made))
	check("made", made, gotMade, err)
	s := Setup{Mode: Bare, HostNet: true, Pids: 7, Memory: 1 << 50, Tmp: 1 << 40, FileSize: 5, OpenFiles: 6,
		Relay: true, MaxABI: 2, Ports: []int{80, 65535}}
	gotSetup, err := decodeSetup(enc(s))
	check("setup", s, gotSetup, err)
	c := Claim{Mounts: []Mount{{"a", true}, {"b", false}}, TempDir: "/t", Trust: "certificate", DenyNetwork: true}
	gotClaim, err := decodeClaim(enc(c))
	check("claim", c, gotClaim, err)
	e := Exec{ID: 9, Script: "echo\x00", Dir: "/", Env: []string{"A=1", ""}, Frugal: true}
	gotExec, err := decodeExec(enc(e))
	check("exec", e, gotExec, err)
	x := Exit{ID: 1, Status: 137, Left: true, OOM: true}
	gotExit, err := decodeExit(enc(x))
	check("exit", x, gotExit, err)
	k := killFrame{ID: 2, Moment: 200}
	gotKill, err := decodeKill(enc(k))
	check("kill", k, gotKill, err)
	kd := killedFrame{ID: 2, Killed: 7}
	gotKilled, err := decodeKilled(enc(kd))
	check("killed", kd, gotKilled, err)
	f := Facts{BootID: "ab", Landlock: 7, Shell: "/bin/sh"}
	gotFacts, err := decodeFacts(enc(f))
	check("facts", f, gotFacts, err)
	st := state{setup: s, claim: c, bootID: "cd"}
	gotState, err := decodeState(enc(st))
	check("state", st, gotState, err)
}

func TestForeignProtocolIsRefused(t *testing.T) {
	w := writer{}
	w.num(Protocol + 1)
	w.str("")
	w.num(0)
	w.str("")
	if _, err := decodeFacts(w); err == nil {
		t.Error("facts of another protocol were taken")
	}
}

func TestClaimRefusesPaths(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00", string(bytes.Repeat([]byte("x"), 256))} {
		w := writer{}
		Claim{Mounts: []Mount{{Name: name}}}.encode(&w)
		if _, err := decodeClaim(w); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

// FuzzFrames decodes hostile frames: no panic, and what is taken says the same again.
func FuzzFrames(f *testing.F) {
	w := writer{}
	Exec{ID: 1, Script: "s", Dir: "d", Env: []string{"A=b"}}.encode(&w)
	f.Add([]byte(w))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, p []byte) {
		again := func(v encoder, err error, decode func([]byte) (encoder, error)) {
			if err != nil {
				return
			}
			w := writer{}
			v.encode(&w)
			got, err := decode(w)
			if err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("%+v came back as %+v, %v", v, got, err)
			}
		}
		for _, decode := range []func([]byte) (encoder, error){
			func(p []byte) (encoder, error) { return decodeMake(p) },
			func(p []byte) (encoder, error) { return decodeMade(p) },
			func(p []byte) (encoder, error) { return decodeSetup(p) },
			func(p []byte) (encoder, error) { return decodeClaim(p) },
			func(p []byte) (encoder, error) { return decodeExec(p) },
			func(p []byte) (encoder, error) { return decodeSignal(p) },
			func(p []byte) (encoder, error) { return decodeKill(p) },
			func(p []byte) (encoder, error) { return decodeKilled(p) },
			func(p []byte) (encoder, error) { return decodeExit(p) },
			func(p []byte) (encoder, error) { return decodeStepError(p) },
			func(p []byte) (encoder, error) { return decodeFacts(p) },
			func(p []byte) (encoder, error) { return decodeState(p) },
		} {
			v, err := decode(p)
			again(v, err, decode)
		}
	})
}
