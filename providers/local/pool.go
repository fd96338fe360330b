//go:build linux

package local

import (
	"time"
)

// pool holds boxes made in advance. A box belongs to no tenant until it is claimed, and then to one tenant for good.
type pool struct {
	size   int // of each shape; 0: no pool
	idle   map[shape][]*sandbox
	coming map[shape]int
	timer  *time.Timer
}

// mostShapes is how many kinds of box are kept ready at a time.
const mostShapes = 4

// drain empties the pool and returns its boxes.
func (p *pool) drain() []*sandbox {
	var all []*sandbox
	for s, boxes := range p.idle {
		all = append(all, boxes...)
		delete(p.idle, s)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	return all
}

// take returns a box from the pool; nil if it has none of that shape.
func (p *boxes) take(s shape) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		boxes := p.pool.idle[s]
		if len(boxes) == 0 {
			return nil
		}
		sb := boxes[len(boxes)-1]
		p.pool.idle[s] = boxes[:len(boxes)-1]
		select {
		case <-sb.Ended():
			go sb.end()
		default:
			return sb
		}
	}
}

// warm fills the pool with boxes of a shape, in the background, and ends those of another if there are too many shapes.
func (p *boxes) warm(s shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.pool.size == 0 {
		return
	}
	if p.pool.timer == nil {
		p.pool.timer = time.AfterFunc(idleTime, p.cool)
	} else {
		p.pool.timer.Reset(idleTime)
	}
	if p.pool.coming == nil {
		p.pool.coming = map[shape]int{}
	}
	if _, ok := p.pool.idle[s]; !ok && len(p.pool.idle) >= mostShapes {
		for other, boxes := range p.pool.idle {
			delete(p.pool.idle, other)
			for _, sb := range boxes {
				go sb.end()
			}
			break
		}
	}
	if _, ok := p.pool.idle[s]; !ok {
		p.pool.idle[s] = nil
	}
	if p.pool.coming[s] > 0 || len(p.pool.idle[s]) >= p.pool.size {
		return
	}
	p.pool.coming[s]++
	p.ending.Go(func() { p.fill(s) })
}

// fill makes boxes until the pool has enough of the shape.
func (p *boxes) fill(s shape) {
	for {
		sb, err := p.build(s)
		if err == nil {
			if err = sb.Ready(); err != nil {
				sb.end()
			}
		}
		p.mu.Lock()
		_, wanted := p.pool.idle[s]
		keep := err == nil && wanted && !p.closed
		if keep {
			p.pool.idle[s] = append(p.pool.idle[s], sb)
		}
		more := keep && len(p.pool.idle[s]) < p.pool.size
		if !more {
			p.pool.coming[s]--
		}
		p.mu.Unlock()
		switch {
		case err != nil:
			p.log.Warn("sandbox instance not created in advance", "error", err)
		case !keep:
			sb.end()
		}
		if !more {
			return
		}
	}
}

// cool ends all boxes of the pool because none was requested for a while.
func (p *boxes) cool() {
	p.mu.Lock()
	idle := p.pool.drain()
	p.mu.Unlock()
	for _, sb := range idle {
		sb.end()
	}
}
