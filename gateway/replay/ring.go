package replay

import "sort"

// Limits of the frames of one conversation.
const (
	ringFrames = 512
	ringBytes  = 1 << 20
	ringSlack  = 4 // a ring is cut once it exceeds its limits by a quarter, so that this is rare
	pagesKept  = 8
)

// span is a part of a conversation without holes: all frames after from, up to to. Frames are only added at the end, or into a new slice,
// so a copy of the slice can be read without a lock.
type span struct {
	from   uint64
	first  bool   // nothing existed at or before from when it was read
	to     uint64 // of the last frame; from if there is none
	frames []*Frame
	bytes  int
}

// after returns the frames after seq; nil if there are none.
func (s *span) after(seq uint64) []*Frame {
	n := len(s.frames)
	if n == 0 || s.to <= seq {
		return nil
	}
	return s.frames[sort.Search(n, func(i int) bool { return s.frames[i].Seq > seq }):]
}

// covers reports whether a reader that has everything up to seq can continue with this span.
func (s *span) covers(seq uint64) bool {
	return seq < s.to && (s.from <= seq || seq == 0 && s.first)
}

// has reports whether seq is the beginning of the span or the sequence of one of its frames.
func (s *span) has(seq uint64) bool {
	if seq == s.from {
		return true
	}
	i := sort.Search(len(s.frames), func(i int) bool { return s.frames[i].Seq >= seq })
	return i < len(s.frames) && s.frames[i].Seq == seq
}

// at returns the frame with the sequence seq; nil if it is not in the span.
func (s *span) at(seq uint64) *Frame {
	i := sort.Search(len(s.frames), func(i int) bool { return s.frames[i].Seq >= seq })
	if i < len(s.frames) && s.frames[i].Seq == seq {
		return s.frames[i]
	}
	return nil
}

func (s *span) add(f *Frame) {
	s.frames = append(s.frames, f)
	s.to = f.Seq
	s.bytes += f.cost()
}

// cut drops the oldest frames of a ring that exceeds its limits by more than a quarter.
func (s *span) cut() {
	if len(s.frames) <= ringFrames+ringFrames/ringSlack && s.bytes <= ringBytes+ringBytes/ringSlack {
		return
	}
	drop := 0
	for ; drop < len(s.frames) && (len(s.frames)-drop > ringFrames || s.bytes > ringBytes); drop++ {
		s.bytes -= s.frames[drop].cost()
		s.from, s.first = s.frames[drop].Seq, false
	}
	s.frames = append(make([]*Frame, 0, ringFrames+ringFrames/ringSlack+1), s.frames[drop:]...)
}

// precede puts an older span that reaches the beginning of s before it. It returns false, and changes nothing, if there is a hole between
// them or both together exceed the limits of a ring.
func (s *span) precede(old *span) bool {
	if old.to < s.from || old.from >= s.from {
		return false
	}
	n := sort.Search(len(old.frames), func(i int) bool { return old.frames[i].Seq > s.from })
	bytes := s.bytes
	for _, f := range old.frames[:n] {
		bytes += f.cost()
	}
	if n+len(s.frames) > ringFrames || bytes > ringBytes {
		return false
	}
	frames := append(make([]*Frame, 0, n+len(s.frames)), old.frames[:n]...)
	s.frames, s.bytes, s.from, s.first = append(frames, s.frames...), bytes, old.from, old.first
	return true
}
