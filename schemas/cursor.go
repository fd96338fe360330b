package schemas

import (
	"fmt"
	"strconv"
	"strings"
)

// Cursor is a place in a conversation: a reader resumes after it. As text it is
// "<epoch>_<20 digits>", which sorts and is safe in URLs and SSE ids. Epoch identifies the
// incarnation of the stream: when it differs, the stream was made anew and the place means nothing.
// The zero Cursor is the beginning, and reads as "-1"; [Tail] is the present end, "now".
type Cursor struct {
	Epoch string
	Seq   uint64
	now   bool
}

// Tail is the cursor "now": only what comes later.
var Tail = Cursor{now: true} //nolint:gochecknoglobals // a constant in all but syntax

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
	seq, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || len(digits) != 20 || epoch == "" || len(epoch) > 16 || strings.IndexFunc(epoch, notAlnum) >= 0 {
		return Cursor{}, Invalidf("after", "%q is not a cursor: use one that came with an event, -1 for the beginning or now", Quotable(s))
	}
	return Cursor{Epoch: epoch, Seq: seq}, nil
}

// MarshalText returns the text form.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text form.
func (c *Cursor) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCursor(string(b))
	return err
}
