package schemas

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Cursor is a place in a conversation: a reader resumes after it. As text it is "<epoch>_<20 digits>", for that of an event "<epoch>_<20
// digits>_<4 hexadecimal digits>", which sorts and is safe in URLs and SSE ids. Epoch identifies the incarnation of the stream: when it
// differs, the stream was recreated and the position means nothing. Mark distinguishes the event from another one that came to lie at its
// position after the log had lost its end; 0: the place is not that of an event, or the cursor is an older one. The zero Cursor is the
// beginning, and reads as "-1"; [Tail] is the present end, "now".
type Cursor struct {
	Epoch string
	Seq   uint64
	Mark  uint16
	now   bool
}

// Tail is the cursor "now": only what comes later.
var Tail = Cursor{now: true} //nolint:gochecknoglobals // a constant in all but syntax

// MarkOf is the mark of the event that was stored under an id, 0 if it had none.
func MarkOf(id string) uint16 {
	if id == "" {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(id)) // never fails
	sum := h.Sum32()
	return max(uint16(sum>>16)^uint16(sum), 1)
}

// Place is the cursor without its mark, to be compared.
func (c Cursor) Place() Cursor {
	c.Mark = 0
	return c
}

// IsTail reports whether c is [Tail].
func (c Cursor) IsTail() bool { return c.now }

// IsStart reports whether c is the beginning.
func (c Cursor) IsStart() bool { return c == Cursor{} }

// String returns the text form.
func (c Cursor) String() string {
	switch {
	case c.now:
		return "now"
	case c == Cursor{}:
		return "-1"
	}
	if c.Mark != 0 {
		return fmt.Sprintf("%s_%020d_%04x", c.Epoch, c.Seq, c.Mark)
	}
	return fmt.Sprintf("%s_%020d", c.Epoch, c.Seq)
}

// ParseCursor reads the text form; "" and "-1" are the beginning, "now" is [Tail].
func ParseCursor(s string) (Cursor, error) {
	switch s {
	case "", "-1":
		return Cursor{}, nil
	case "now":
		return Tail, nil
	}
	epoch, digits, ok := strings.Cut(s, "_")
	digits, hex, marked := strings.Cut(digits, "_")
	mark := uint64(0)
	if marked {
		var err error
		mark, err = strconv.ParseUint(hex, 16, 16)
		ok = ok && err == nil && mark != 0 && len(hex) == 4 && hex == strings.ToLower(hex)
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || len(digits) != 20 || epoch == "" || len(epoch) > 16 || strings.IndexFunc(epoch, notAlnum) >= 0 {
		return Cursor{}, Invalidf("after", "%q is not a cursor: use one that came with an event, -1 for the beginning or now", Quotable(s))
	}
	return Cursor{Epoch: epoch, Seq: seq, Mark: uint16(mark)}, nil
}

// MarshalText returns the text form.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text form.
func (c *Cursor) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCursor(string(b))
	return err
}
