package kubernetes

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/schemas"
)

// output collects the output of a run.
type output struct {
	streams [2]*records // stdout, stderr
	kept    [2]*capture.Excerpt
	want    func(providers.Chunk)
	buf     []byte // what want is given: it may change it
	in      *input // finished when both streams have said how the run ended

	mu       sync.Mutex // the two streams come from two goroutines
	says     [2]verdict
	sent     time.Time
	began    time.Time
	ended    time.Time
	progress atomic.Int64 // grows with each piece
	busy     atomic.Bool  // want has not returned yet
}

func newOutput(token string, cmd providers.Command, in *input) *output {
	limit := cmd.OutputLimit
	if limit <= 0 {
		limit = schemas.DefaultOutputLimit
	}
	o := &output{want: cmd.Output, in: in, sent: time.Now(), buf: make([]byte, schemas.MaxChunk)}
	for i := range o.streams {
		o.kept[i] = capture.NewExcerpt(limit)
		o.streams[i] = newRecords(token, func(data []byte) { o.take(i, data) }, func(text string) { o.record(i, text) })
	}
	return o
}

// take keeps and delivers a piece of output of stream i.
func (o *output) take(i int, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress.Add(1)
	o.kept[i].Add(data)
	if o.want == nil {
		return
	}
	o.busy.Store(true)
	defer o.busy.Store(false)
	for len(data) > 0 {
		n := copy(o.buf, data)
		o.want(providers.Chunk{Stderr: i == 1, Data: o.buf[:n]})
		data = data[n:]
	}
}

// record processes a record of the runner on stream i. When both streams have the record of the end, all output has arrived and the input
// is finished.
func (o *output) record(i int, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress.Add(1)
	o.says[i].read(text)
	if o.says[i].started && o.began.IsZero() {
		o.began = time.Now()
	}
	over := func(v verdict) bool { return v.ended || v.refused != "" }
	if over(o.says[0]) && over(o.says[1]) {
		o.ended = time.Now()
		o.in.finish()
	}
}

// verdict returns what the runner has reported so far, on both streams.
func (o *output) verdict() verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.says[0]
	v.ended = v.ended && o.says[1].ended
	v.started = v.started || o.says[1].started
	return v
}

// finish copies the kept output into the result when the stream has ended.
func (o *output) finish(res *providers.Result) {
	for _, s := range o.streams {
		s.flush()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	res.Stdout, res.Stderr = o.kept[0].Bytes(), o.kept[1].Bytes()
	res.StdoutBytes, res.StderrBytes = o.kept[0].Total(), o.kept[1].Total()
	res.Truncated = o.kept[0].Truncated() || o.kept[1].Truncated()
	if o.ended.IsZero() {
		o.ended = time.Now()
	}
	if !o.began.IsZero() { // the word of its start may have come late
		res.Duration = min(max(o.says[0].took, o.ended.Sub(o.began)), o.ended.Sub(o.sent))
	}
}
