package wsconn

import (
	"bytes"
	"compress/flate"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Messages may be compressed (permessage-deflate, RFC 7692) if [Options.Compression] is set and the client offers it. Each is compressed
// separately, so that a connection needs no memory for it between two messages.
const (
	deflateFrom = 4 << 10 // bytes; compressing smaller messages gains too little for its time

	deflateExtension = "permessage-deflate"
	deflateTail      = "\x00\x00\xff\xff"                   // ends what a compressor flushes, and is not sent
	inflateTail      = deflateTail + "\x01\x00\x00\xff\xff" // and a final, empty block, at which the reader ends
)

// offersDeflate reports whether a client offers compression in a form that this package supports: with the largest window for what the
// client receives. The server itself demands that neither side keeps its window between messages.
func offersDeflate(h http.Header) bool {
	for _, line := range h.Values("Sec-Websocket-Extensions") {
		for offer := range strings.SplitSeq(line, ",") {
			if takenOffer(offer) {
				return true
			}
		}
	}
	return false
}

func takenOffer(offer string) bool {
	name, rest, more := strings.Cut(offer, ";")
	if !strings.EqualFold(strings.TrimSpace(name), deflateExtension) {
		return false
	}
	seen := map[string]bool{}
	for more {
		var param string
		param, rest, more = strings.Cut(rest, ";")
		key, value, given := strings.Cut(param, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		switch key = strings.ToLower(key); {
		case seen[key]:
			return false
		case (key == "server_no_context_takeover" || key == "client_no_context_takeover") && !given:
		case key == "client_max_window_bits" && (!given || isWindow(value)): // it may use a smaller window: any is decompressed here
		default: // a smaller window for the client, which the standard library does not support
			return false
		}
		seen[key] = true
	}
	return true
}

// isWindow reports whether text is a valid number of bits of a window (RFC 7692).
func isWindow(text string) bool {
	const least, most = 8, 15
	bits, err := strconv.Atoi(text)
	return err == nil && least <= bits && bits <= most && strconv.Itoa(bits) == text
}

// deflaters compresses messages. A compressor uses about a megabyte, so there are at most as many as processors, and unused ones are
// freed.
type deflaters struct {
	turns chan struct{}
	pool  sync.Pool
}

type deflater struct {
	w   *flate.Writer
	out bytes.Buffer
}

func newDeflaters() *deflaters { return &deflaters{turns: make(chan struct{}, runtime.GOMAXPROCS(0))} }

// message appends a compressed message made of parts to b; the parts may be behind b in the same array. If it would not be smaller,
// nothing is appended and it returns false. It may wait for a compressor, but never for a client.
func (d *deflaters) message(b []byte, kind Opcode, parts ...[]byte) ([]byte, bool) {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	z, ok := d.pool.Get().(*deflater)
	if !ok {
		z = new(deflater)
		z.w, _ = flate.NewWriter(&z.out, flate.BestSpeed) // the level is valid
	}
	z.out.Reset()
	z.w.Reset(&z.out)
	size := 0
	for _, p := range parts {
		size += len(p)
		_, _ = z.w.Write(p) // into memory, which does not fail
	}
	_ = z.w.Flush() // as above
	out := bytes.TrimSuffix(z.out.Bytes(), []byte(deflateTail))
	smaller := len(out) < size
	if smaller {
		b = append(appendHeader(b, bitLast|bitDeflated|byte(kind), len(out)), out...)
	}
	if z.out.Cap() <= 2*FlushAbove { // the buffer of a very large message is not retained
		d.pool.Put(z)
	}
	return b, smaller
}

// inflaters decompresses messages. Only connections that receive one use memory for it.
type inflaters struct {
	pool sync.Pool
	most int // maximum size of a decompressed message in bytes
}

// message returns the decompressed content of a client's message. If it is larger than p.most, it returns an error, however small the
// compressed message is.
func (p *inflaters) message(packed []byte) ([]byte, error) {
	from := bytes.NewReader(append(slices.Clip(packed), inflateTail...))
	r, ok := p.pool.Get().(io.Reader)
	if !ok {
		r = flate.NewReader(from)
	}
	if again, ok := r.(flate.Resetter); !ok || again.Reset(from, nil) != nil {
		return nil, errNotDeflate
	}
	defer p.pool.Put(r)
	text, err := io.ReadAll(io.LimitReader(r, int64(p.most)+1))
	switch {
	case len(text) > p.most:
		return nil, errTooLarge
	case err != nil:
		return nil, errNotDeflate
	}
	return text, nil
}
