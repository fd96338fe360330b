package durable

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Offsets are shown to clients as two numbers of 16 digits, so that they sort as text. The first is the sequence on the log. The second is
// 0; it is reserved for positions inside a message.
const offsetDigits = 16

// start is the position at which a reader begins.
type start struct {
	after uint64 // a sequence on the log
	now   bool   // the present end
}

func formatOffset(seq uint64) string {
	return fmt.Sprintf("%0*d_%0*d", offsetDigits, seq, offsetDigits, 0)
}

// parsePlace parses an offset that the server returned.
func parsePlace(s string) (uint64, error) {
	first, second, ok := strings.Cut(s, "_")
	a, err1 := digits(first)
	_, err2 := digits(second)
	if !ok || len(first) != offsetDigits || len(second) != offsetDigits || err1 != nil || err2 != nil {
		return 0, schemas.Invalidf("offset", "%q is none: send one that the server returned, -1 or now",
			schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")))
	}
	return a, nil
}

// parseOffset parses the offset of a query. Given is false if there is none.
func parseOffset(q url.Values) (at start, given bool, err error) {
	all, given := q["offset"]
	switch {
	case !given:
		return start{}, false, nil
	case len(all) > 1:
		return start{}, true, schemas.Invalidf("offset", "is there more than once")
	case all[0] == "-1":
		return start{}, true, nil
	case all[0] == "now":
		return start{now: true}, true, nil
	}
	at.after, err = parsePlace(all[0])
	return at, true, err
}

// digits parses a decimal number without a sign.
func digits(s string) (uint64, error) {
	if s == "" || strings.TrimLeft(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, 10, 64)
}
