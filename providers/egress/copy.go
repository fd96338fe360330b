package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }} //nolint:gochecknoglobals // a pool is shared

// pipe copies bytes both ways until both sides have ended, one fails, or neither sends anything for the idle time.
func (r *Relay) pipe(a, b net.Conn) {
	p := &piping{relay: r}
	p.said.Store(time.Now().UnixNano())
	var both sync.WaitGroup
	both.Go(func() { p.carry(a, b) })
	p.carry(b, a)
	both.Wait()
}

type piping struct {
	relay *Relay
	said  atomic.Int64 // when either side last said something
}

// carry copies what src sends to dst. An error closes both connections.
func (p *piping) carry(dst, src net.Conn) {
	err := p.copy(dst, src)
	if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = dst.Close()
	_ = src.Close()
}

// copy copies until the end of src, which is no error. It holds no buffer while the connection is silent.
func (p *piping) copy(dst, src net.Conn) error {
	idle := p.relay.limits.Idle
	read := reader(src)
	for {
		if err := src.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		data, give, err := read()
		if len(data) > 0 {
			p.said.Store(time.Now().UnixNano())
			werr := p.relay.count(len(data))
			if werr == nil {
				werr = dst.SetWriteDeadline(time.Now().Add(idle))
			}
			if werr == nil {
				_, werr = dst.Write(data)
			}
			give()
			if werr != nil {
				return werr
			}
		} else {
			give()
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, p.said.Load())) < idle:
		default:
			return err
		}
	}
}

// plainReader returns a reader that holds its buffer while it waits.
func plainReader(c io.Reader) func() ([]byte, func(), error) {
	return func() ([]byte, func(), error) {
		buf, _ := buffers.Get().(*[bufferSize]byte)
		n, err := c.Read(buf[:])
		return buf[:n], func() { buffers.Put(buf) }, err
	}
}
