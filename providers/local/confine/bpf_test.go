//go:build linux

package confine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// syscallData is what the kernel hands to a filter.
type syscallData struct {
	nr, arch uint32
	args     [6]uint64
}

func (d syscallData) bytes() []byte {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint32(b[0:], d.nr)
	binary.LittleEndian.PutUint32(b[4:], d.arch)
	for i, a := range d.args {
		binary.LittleEndian.PutUint64(b[16+8*i:], a)
	}
	return b
}

// interpret runs classic BPF as the kernel does, as far as the filter uses it. It is written from the
// kernel's documentation and shares nothing with the compiler.
func interpret(prog []unix.SockFilter, data []byte) (uint32, error) {
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		switch in.Code {
		case 0x20: // ld [k]
			if in.K%4 != 0 || int(in.K)+4 > len(data) {
				return 0, fmt.Errorf("%d: load at %d", pc, in.K)
			}
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case 0x15, 0x25, 0x35, 0x45: // jeq, jgt, jge, jset
			if in.Code == 0x15 && acc == in.K || in.Code == 0x25 && acc > in.K || in.Code == 0x35 && acc >= in.K ||
				in.Code == 0x45 && acc&in.K != 0 {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		case 0x06: // ret k
			return in.K, nil
		default:
			return 0, fmt.Errorf("%d: unknown instruction %#x", pc, in.Code)
		}
	}
	return 0, errors.New("the program runs past its end")
}

const (
	wantAllow = 0x7fff0000
	wantEPERM = 0x00050001
	wantNoSys = 0x00050026
	wantKill  = 0x80000000
)

// filter is a program beside what it is made of.
type filter struct {
	native uint32
	o      SeccompOptions
	prog   []unix.SockFilter
	rules  map[uint32]rule // by number
}

func newFilter(native uint32, o SeccompOptions) filter {
	f := filter{native: native, o: o, prog: program(native, o), rules: map[uint32]rule{}}
	for _, r := range append(rules(), o.rows()...) {
		if n := r.number(native); n != none {
			f.rules[uint32(n)] = r
		}
	}
	return f
}

// oracle is the filter in plain Go.
func (f filter) oracle(d syscallData) uint32 {
	native, o := f.native, f.o
	if d.arch != native {
		return wantKill
	}
	if native == archAMD64 && d.nr&0x40000000 != 0 {
		return wantEPERM
	}
	if d.nr > 469 {
		return wantNoSys
	}
	low := func(i int) uint32 { return uint32(d.args[i]) }
	allowed, r := true, f.rules[d.nr]
	switch r.name {
	case "":
	case "clone":
		allowed = low(0)&(0x20000|0x2000000|0x4000000|0x8000000|0x10000000|0x20000000|0x40000000) == 0
	case "personality":
		allowed = low(0) == 0 || low(0) == 0xffffffff
	case "ioctl":
		allowed = low(1) != 0x5412 && low(1) != 0x541c && low(1) != 0x5423
	case "open", "openat":
		flags := low(1)
		if r.name == "openat" {
			flags = low(2)
		}
		allowed = flags&0x200 == 0 || flags&3 == 1 || flags&3 == 2
	case "socketpair":
		allowed = low(0) == 1
	case "socket":
		switch low(0) {
		case 1:
			allowed = !o.DenyInet
		case 2, 10:
			allowed = !o.DenyInet && (low(2) == 0 || low(2) == 6 || low(2) == 17)
		case 16:
			allowed = low(2) == 0
		default:
			allowed = false
		}
	default:
		if r.action == absent {
			return wantNoSys
		}
		allowed = false
	}
	if allowed {
		return wantAllow
	}
	return wantEPERM
}

// check compares program and oracle for one call.
func (f filter) check(t *testing.T, d syscallData) {
	t.Helper()
	got, err := interpret(f.prog, d.bytes())
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	if want := f.oracle(d); got != want {
		t.Fatalf("arch %#x options %+v call %+v: %#x, want %#x", f.native, f.o, d, got, want)
	}
}

var allOptions = []SeccompOptions{{}, {DenyInet: true}, {DenyUnseen: true}, {DenyInet: true, DenyUnseen: true}, {DenySysV: true},
	{DenyInet: true, DenyUnseen: true, DenySysV: true}, {DenyTruncate: true}, {DenyInet: true, DenyTruncate: true}}

// TestEveryNumber runs the program of each architecture for each number, with arguments at all the
// places where a condition changes its mind, and with the upper halves set that the kernel ignores.
func TestEveryNumber(t *testing.T) {
	values := []uint64{
		0, 1, 2, 3, 4, 6, 10, 15, 16, 17, 30, 31, 38, 40, 44, 0x5411, 0x5412, 0x5413, 0x541c, 0x5423, 0x20000, 0x80,
		0x200, 0x201, 0x202, 0x203, 0x240, 0x241, 0x242, 0x243, 0x80200, 1<<32 | 0x200, 1<<32 | 0x201,
		0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x1200011, 0xffffffff,
		1 << 32, 1<<32 | 0x5412, 1<<32 | 1, 0xffffffff00000010, 1<<63 | 0x10000000,
	}
	for _, native := range []uint32{archAMD64, archARM64} {
		for _, o := range allOptions {
			f := newFilter(native, o)
			for nr := range uint32(1024) {
				for _, v := range values {
					for i := range 3 {
						d := syscallData{nr: nr, arch: native}
						d.args[i] = v
						f.check(t, d)
						if i == 2 { // the protocol of netlink and of the internet
							for _, family := range []uint64{16, 2, 10} {
								d.args[0] = family
								f.check(t, d)
							}
						}
					}
				}
			}
			for _, nr := range []uint32{0x40000000, 0x40000000 + 59, 0x7fffffff, 0x80000000, 0xffffffff} {
				f.check(t, syscallData{nr: nr, arch: native})
			}
			for _, arch := range []uint32{0, 0x40000003, 0x40000028, archAMD64, archARM64, 0xc00000f3, 0xffffffff} {
				f.check(t, syscallData{nr: 1, arch: arch})
			}
		}
	}
}

// TestLimitsOfOthersAndTheMarkOfARunAreRefused runs the second filter for every number, and for every kind of
// pointer that a call may hand over.
//
//guarantee:a-run-stays-in-its-box
func TestLimitsOfOthersAndTheMarkOfARunAreRefused(t *testing.T) {
	for native, nr := range map[uint32]struct{ setrlimit, prlimit uint32 }{archAMD64: {160, 302}, archARM64: {164, 261}} {
		prog := limitsProgram(native)
		for n := range uint32(600) {
			for _, pid := range []uint64{0, 1, 77, 1 << 32, 1<<32 | 1} {
				for _, resource := range []uint64{0, 6, 7, 15, 16, 1<<32 | 15} {
					for _, limit := range []uint64{0, 1, 1 << 32, 0x7fffffffe000} {
						d := syscallData{nr: n, arch: native, args: [6]uint64{pid, resource, limit}}
						if n == nr.setrlimit {
							d.args = [6]uint64{resource, limit}
						}
						got, err := interpret(prog, d.bytes())
						if err != nil {
							t.Fatal(err)
						}
						want := uint32(wantAllow)
						mark := uint32(resource) == 15
						if n == nr.setrlimit && mark || n == nr.prlimit && limit != 0 && (uint32(pid) != 0 || mark) {
							want = wantEPERM
						}
						if got != want {
							t.Fatalf("arch %#x call %+v: %#x, want %#x", native, d, got, want)
						}
					}
				}
			}
		}
	}
}

// TestProgramFits: the kernel takes 4096 instructions, and every jump must land inside.
func TestProgramFits(t *testing.T) {
	for _, native := range []uint32{archAMD64, archARM64} {
		for _, o := range allOptions {
			prog := program(native, o)
			if len(prog) > 4096 {
				t.Errorf("%d instructions", len(prog))
			}
			for pc, in := range prog {
				if in.Code&7 == unix.BPF_JMP && pc+1+max(int(in.Jt), int(in.Jf)) >= len(prog) {
					t.Errorf("instruction %d jumps out of the program", pc)
				}
			}
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(uint32(56), archAMD64, uint64(0x10000000), uint64(0), uint64(0), uint8(0))
	f.Add(uint32(41), archAMD64, uint64(16), uint64(3), uint64(12), uint8(1))
	f.Add(uint32(29), archARM64, uint64(0), uint64(1<<32|0x5412), uint64(0), uint8(3))
	f.Fuzz(func(t *testing.T, nr, arch uint32, a0, a1, a2 uint64, pick uint8) {
		o := allOptions[int(pick)%len(allOptions)]
		for _, native := range []uint32{archAMD64, archARM64} {
			newFilter(native, o).check(t, syscallData{nr: nr, arch: arch, args: [6]uint64{a0, a1, a2}})
		}
	})
}
