//go:build linux

package box

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Name is the program's name: argv[0] of a process that is to be a spawner or an init.
const Name = "sandjet-box"

// controlFD is the socket that both get from their parent.
const controlFD = 3

// Main is the whole program: os.Args[1] selects spawner or init. It never returns.
func Main() {
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
	}
	switch part {
	case partSpawner, partInit, partClosed:
	default:
		fmt.Fprintln(os.Stderr, Name+" is started by sandjet, which needs it to make boxes. It does nothing by itself.")
		os.Exit(2)
	}
	if kind, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		fmt.Fprintln(os.Stderr, Name+": no control socket: it is started by sandjet only")
		os.Exit(2)
	}
	// Whatever else was inherited goes no further.
	if err := unix.CloseRange(controlFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, Name+": close inherited files:", err)
		os.Exit(2)
	}
	switch part {
	case partSpawner:
		os.Exit(spawn(controlFD))
	case partInit:
		os.Exit(startInit(controlFD))
	default:
		os.Exit(resumeInit(controlFD))
	}
}

// The parts of the program.
const (
	partSpawner = "spawn"
	partInit    = "init"
	partClosed  = "init-closed" // an init that has dropped its rights by being executed again
)
