//go:build linux

package box

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatWasSentBeforeACloseIsReceived: an end that closes with something unread has sent its last frames nevertheless,
// such as that a command has started.
func TestWhatWasSentBeforeACloseIsReceived(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pair[0], pair[1]
	defer unix.Close(ours)
	for range 2 {
		if err := sendOn(theirs, kindStarted, signalFrame{ID: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sendOn(ours, kindSignal, signalFrame{ID: 7}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(theirs); err != nil {
		t.Fatal(err)
	}
	var r receiver
	for range 2 {
		p, err := r.receive(ours, unix.MSG_DONTWAIT)
		if err != nil || p.kind != kindStarted {
			t.Fatalf("frame %v, error %v", p.kind, err)
		}
	}
	if _, err := r.receive(ours, unix.MSG_DONTWAIT); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}
