package bench

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The offers of followers of batches, and the beginnings of frames that they read.
const (
	offerDeflate = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
	opDeflated   = opText | 0x40
	opBatch      = `{"op":"batch"`
	deflateTail  = "\x00\x00\xff\xff\x01\x00\x00\xff\xff" // what the sender omits, and a last block
)

// packed opens a socket that receives replays in compressed batches.
func (g *gate) packed(ctx context.Context, room int) (*follower, error) {
	f, err := dialOffering(ctx, g.address, g.key, room, offerDeflate)
	if err == nil {
		f.batch, f.inflate = true, flate.NewReader(strings.NewReader(""))
	}
	return f, err
}

// unpack decompresses a message.
func (f *follower) unpack(body []byte) ([]byte, error) {
	r, ok := f.inflate.(flate.Resetter)
	if !ok {
		return nil, fmt.Errorf("a compressed message: %w", errors.ErrUnsupported)
	}
	if err := r.Reset(io.MultiReader(bytes.NewReader(body), strings.NewReader(deflateTail)), nil); err != nil {
		return nil, fmt.Errorf("a compressed message: %w", err)
	}
	f.unpacked.Reset()
	if _, err := f.unpacked.ReadFrom(f.inflate); err != nil {
		return nil, fmt.Errorf("a compressed message: %w", err)
	}
	return f.unpacked.Bytes(), nil
}

// followBatch follows the events of a batch. Each begins where the lead occurs: within a text its quotes would be escaped.
func (f *follower) followBatch(text []byte) {
	at := bytes.Index(text, f.lead)
	for at >= 0 {
		next := bytes.Index(text[at+1:], f.lead)
		end := len(text)
		if next >= 0 {
			next += at + 1
			end = next - len(",")
		}
		f.follow(text[at:end])
		at = next
	}
}

// crossing is the measurements of replays of one kind.
type crossing struct {
	rates []float64 // events per second
	bytes []float64 // per event, on the wire
	cost  []float64 // processor time of the gateway per event, in nanoseconds
}

// replayAll makes all clients replay the conversation hotReplays times, concurrently, and adds the measurements.
func (c *crossing) replayAll(ctx context.Context, g *gate, all []*follower, conv string) error {
	before, err := g.use(ctx)
	if err != nil {
		return err
	}
	read := 0
	for _, f := range all {
		read -= f.read
	}
	began := time.Now()
	if err := each(len(all), len(all), func(i int) error { return replayAgain(all[i], conv, hotReplays) }); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := g.use(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		read += f.read
	}
	n := float64(len(all) * hotReplays * hotEvents)
	c.rates = append(c.rates, n/took.Seconds())
	c.bytes = append(c.bytes, float64(read)/n)
	c.cost = append(c.cost, float64((after.cpu-before.cpu).Nanoseconds())/n)
	return nil
}
