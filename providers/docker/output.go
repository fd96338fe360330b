package docker

import (
	"log/slog"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/schemas"
)

// output delivers a command's output and keeps an excerpt of it.
type output struct {
	want    func(providers.Chunk)
	streams [2]*capture.Excerpt
	spill   *capture.Spill // where the whole output goes when it is too long to keep; nil: nowhere
	spills  bool           // it does
}

// newOutput returns the output of a command. The whole output goes to spill if it is too long to keep; nil: nowhere.
func newOutput(cmd providers.Command, spill *capture.Spill) *output {
	limit := cmd.OutputLimit
	if limit <= 0 {
		limit = schemas.DefaultOutputLimit
	}
	return &output{want: cmd.Output, streams: [2]*capture.Excerpt{capture.NewExcerpt(limit), capture.NewExcerpt(limit)}, spill: spill}
}

// take processes a piece of output: it keeps and delivers it.
func (o *output) take(stderr bool, data []byte) {
	kept := o.streams[0]
	if stderr {
		kept = o.streams[1]
	}
	if o.spill != nil && !o.spills && kept.Total()+int64(len(data)) > kept.Limit() {
		o.spills = true
		o.spill.Add(o.streams[0].Bytes()) // all there was: neither is cut yet
		o.spill.Add(o.streams[1].Bytes())
	}
	if o.spills {
		o.spill.Add(data)
	}
	kept.Add(data)
	if o.want != nil {
		o.want(providers.Chunk{Stderr: stderr, Data: data})
	}
}

// fill copies the kept output into a result.
func (o *output) fill(res *providers.Result, log *slog.Logger) {
	stdout, stderr := o.streams[0], o.streams[1]
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	res.StdoutBytes, res.StderrBytes = stdout.Total(), stderr.Total()
	res.Truncated = stdout.Truncated() || stderr.Truncated()
	if !o.spills {
		return
	}
	name, err := o.spill.Done()
	if err != nil {
		log.Warn("full output of a run not stored", "error", err)
	}
	res.FullOutput = name
}

// close closes the spill file, if any.
func (o *output) close() {
	if o.spill != nil {
		o.spill.Close()
	}
}
