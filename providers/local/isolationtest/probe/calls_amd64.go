//go:build linux

package main

import "golang.org/x/sys/unix"

// nativeCalls exist on this architecture only.
func nativeCalls() map[string]call {
	return map[string]call{
		"iopl":       {unix.SYS_IOPL, [5]uintptr{3}},
		"ioperm":     {unix.SYS_IOPERM, [5]uintptr{0x80, 1, 1}},
		"modify_ldt": {unix.SYS_MODIFY_LDT, [5]uintptr{0, 0, 0}},
		"uselib":     {unix.SYS_USELIB, [5]uintptr{nowhere}},
		// getpid by the x32 interface.
		"x32": {0x40000000 + unix.SYS_GETPID, [5]uintptr{}},
		// clone with CLONE_NEWUSER by the x32 interface.
		"x32-clone": {0x40000000 + unix.SYS_CLONE, [5]uintptr{unix.CLONE_NEWUSER}},
	}
}

// int80 makes system call nr without arguments by the 32-bit interface.
func int80(nr uint64) uint64

func foreignCall(string) uint64 { return int80(20) } // getpid there
