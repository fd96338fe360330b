//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// inline is the most bytes of a frame that travel in the packet; longer ones in a memory file.
	inline = 32 << 10
	// longest is the most bytes of a frame at all: a script, its environment and some.
	longest = 4 << 20
)

// packet is a received frame.
type packet struct {
	kind  kind
	body  []byte
	files []int // close on exec
}

// close closes the descriptors that were not taken from the packet.
func (p *packet) close() {
	for _, fd := range p.files {
		_ = unix.Close(fd)
	}
	p.files = nil
}

// pack encodes a frame as the bytes (a kind, a flag and the body) and the control message with the descriptors to send. A long body is put
// into a memory file whose descriptor comes last; the caller closes it: extra, -1 if there is none.
func pack(k kind, f encoder, files []int) (data, oob []byte, extra int, err error) {
	w := make(writer, 2, 256)
	f.encode(&w)
	if len(w) > longest {
		return nil, nil, -1, fmt.Errorf("box: a frame of %d bytes is too long", len(w))
	}
	w[0] = byte(k)
	extra = -1
	if len(w) > inline {
		if extra, err = unix.MemfdCreate("frame", unix.MFD_CLOEXEC); err != nil {
			return nil, nil, -1, fmt.Errorf("box: memory file: %w", err)
		}
		for rest := w[2:]; len(rest) > 0; {
			n, err := unix.Write(extra, rest)
			if err != nil {
				_ = unix.Close(extra)
				return nil, nil, -1, fmt.Errorf("box: memory file: %w", err)
			}
			rest = rest[n:]
		}
		w = writer{byte(k), 1}
		files = append(append([]int{}, files...), extra)
	}
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	return w, oob, extra, nil
}

// sendOn sends a frame on a blocking socket.
func sendOn(fd int, k kind, f encoder, files ...int) error {
	data, oob, extra, err := pack(k, f, files)
	if err != nil {
		return err
	}
	if extra >= 0 {
		defer unix.Close(extra) //nolint:errcheck // the other end has its own
	}
	for {
		err := unix.Sendmsg(fd, data, oob, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receiver holds the buffers for receiving frames on one socket.
type receiver struct {
	data [inline + 16]byte
	oob  [256]byte
}

// receive receives one frame. The error is io.EOF when the other end is closed.
func (r *receiver) receive(fd, flags int) (packet, error) {
	var n, oobn, got int
	var err error
	for reset := false; ; reset = true {
		n, oobn, got, _, err = unix.Recvmsg(fd, r.data[:], r.oob[:], flags|unix.MSG_CMSG_CLOEXEC)
		for errors.Is(err, unix.EINTR) {
			n, oobn, got, _, err = unix.Recvmsg(fd, r.data[:], r.oob[:], flags|unix.MSG_CMSG_CLOEXEC)
		}
		// Where the other end closes with something unread the system says so first, once, and then gives what it sent before.
		if reset || !errors.Is(err, unix.ECONNRESET) {
			break
		}
	}
	if err != nil {
		return packet{}, err
	}
	p := packet{}
	if oobn > 0 {
		p.files = rights(r.oob[:oobn])
	}
	if n == 0 {
		p.close()
		return packet{}, io.EOF
	}
	if n < 2 || got&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || r.data[1] > 1 {
		p.close()
		return packet{}, errFrame
	}
	p.kind = kind(r.data[0])
	if r.data[1] == 0 {
		p.body = append([]byte(nil), r.data[2:n]...)
		return p, nil
	}
	if len(p.files) == 0 {
		return packet{}, errFrame
	}
	last := p.files[len(p.files)-1]
	p.files = p.files[:len(p.files)-1]
	if p.body, err = readWhole(last); err != nil {
		p.close()
		return packet{}, err
	}
	return p, nil
}

// rights returns the descriptors that a control message carries.
func rights(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

// readWhole returns the content of a memory file and closes it.
func readWhole(fd int) ([]byte, error) {
	f := os.NewFile(uintptr(fd), "frame") // a descriptor
	defer f.Close()                       //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > longest {
		return nil, errFrame
	}
	body := make([]byte, info.Size())
	if _, err := f.ReadAt(body, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("box: read frame: %w", err)
	}
	return body, nil
}

// pair returns the two ends of a new socket pair, close on exec.
func pair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("box: socket pair: %w", err)
	}
	return fds[0], fds[1], nil
}
