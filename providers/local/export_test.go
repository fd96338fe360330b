//go:build linux

package local

import "github.com/sandjet/sandjet/providers/local/box"

// NewAt is New where the host can do no more than level.
func NewAt(o Options, level string) (*Provider, error) {
	p, err := prepare(o)
	if err != nil {
		return nil, err
	}
	switch level {
	case levelIsolated:
	case levelLandlocked:
		p.modes = []box.Mode{box.Landlocked}
	default:
		p.modes = nil
	}
	return p.start()
}

// NewExcerpt is a box's record of a stream.
func NewExcerpt(limit int) *Excerpt { return newExcerpt(limit) }

// Excerpt is excerpt.
type Excerpt = excerpt

// Add is add.
func (e *excerpt) Add(p []byte) { e.add(p) }

// Bytes is bytes.
func (e *excerpt) Bytes() []byte { return e.bytes() }
