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

// Messages may be compressed as RFC 7692 says (permessage-deflate), if [Options.Compression] lets them and the client offers it.
// Each is compressed for itself, so that a connection keeps nothing for it between two messages.
const (
	deflateFrom = 4 << 10 // bytes; what is smaller gains too little for its time

	deflateExtension = "permessage-deflate"
	deflateTail      = "\x00\x00\xff\xff"                   // ends what a compressor flushes, and is not sent
	inflateTail      = deflateTail + "\x01\x00\x00\xff\xff" // and a last, empty block, by which the reader ends
)

// offersDeflate reports whether a client offers compression in a form that is taken here: with the largest window
// for what it gets. That neither side keeps what came before is the server's to demand.
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
		case key == "client_max_window_bits" && (!given || isWindow(value)): // it may use less: any is read here
		default: // a smaller window for what it gets too: there is none in the standard library
			return false
		}
		seen[key] = true
	}
	return true
}

// isWindow reports whether text is a number of bits as the RFC has them.
func isWindow(text string) bool {
	const least, most = 8, 15
	bits, err := strconv.Atoi(text)
	return err == nil && least <= bits && bits <= most && strconv.Itoa(bits) == text
}

// deflaters compress. One of them holds about a megabyte, so there are no more than processors to use them, and none
// for long when there is nothing to do.
type deflaters struct {
	turns chan struct{}
	pool  sync.Pool
}

type deflater struct {
	w   *flate.Writer
	out bytes.Buffer
}

func newDeflaters() *deflaters { return &deflaters{turns: make(chan struct{}, runtime.GOMAXPROCS(0))} }

// message adds a compressed message made of parts, which may lie behind b in the same array. It reports false, and adds
// nothing, where that would not be smaller. It waits for its turn while others compress, never for a client.
func (d *deflaters) message(b []byte, kind Opcode, parts ...[]byte) ([]byte, bool) {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	z, ok := d.pool.Get().(*deflater)
	if !ok {
		z = new(deflater)
		z.w, _ = flate.NewWriter(&z.out, flate.BestSpeed) // the level is one that there is
	}
	z.out.Reset()
	z.w.Reset(&z.out)
	size := 0
	for _, p := range parts {
		size += len(p)
		_, _ = z.w.Write(p) // into memory: it does not fail
	}
	_ = z.w.Flush() // as above
	out := bytes.TrimSuffix(z.out.Bytes(), []byte(deflateTail))
	smaller := len(out) < size
	if smaller {
		b = append(appendHeader(b, bitLast|bitDeflated|byte(kind), len(out)), out...)
	}
	if z.out.Cap() <= 2*FlushAbove { // what a very large message took is not kept
		d.pool.Put(z)
	}
	return b, smaller
}

// inflaters read compressed messages. Only connections from which one comes have one.
type inflaters struct {
	pool sync.Pool
	most int // bytes of one message
}

// message returns what a compressed message of a client says, at most so many bytes of it: more is an error, however
// small it was on the way.
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
