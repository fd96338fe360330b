package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/sandjet/sandjet/internal/wait"
)

// answerAll answers the DNS queries that arrive at a socket, each from the address to which it was sent.
func (r *Relay) answerAll(ctx context.Context, socket net.PacketConn) {
	conn := ipv4.NewPacketConn(socket)
	_ = conn.SetControlMessage(ipv4.FlagDst, true) // without it answers come from an address of the system's choice
	buf := make([]byte, longestQuestion+1)
	for {
		if r.asked.Wait(ctx) != nil {
			return
		}
		n, about, from, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an earlier answer that was not read
			if !wait.Sleep(ctx, time.Millisecond) {
				return
			}
			continue
		}
		reply, refused, err := answer(r.opt.Rules, r.names, buf[:n])
		if refused != nil {
			r.note(*refused)
		}
		if err != nil {
			continue
		}
		var as *ipv4.ControlMessage
		if about != nil {
			as = &ipv4.ControlMessage{Src: about.Dst}
		}
		_, _ = conn.WriteTo(reply, as, from) // the client repeats its question
	}
}

// answerStream answers the DNS queries of a connection, one after the other.
func (r *Relay) answerStream(ctx context.Context, c net.Conn) {
	const patience = 10 * time.Second
	for ctx.Err() == nil {
		if r.asked.Wait(ctx) != nil || c.SetDeadline(time.Now().Add(patience)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		reply, refused, err := answer(r.opt.Rules, r.names, question)
		if refused != nil {
			r.note(*refused)
		}
		if err != nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil { // at most 512 bytes
			return
		}
	}
}
