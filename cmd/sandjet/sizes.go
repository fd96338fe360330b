package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// byteSize is a number of bytes, written as 1073741824, 1GiB or 1GB.
type byteSize int64

// UnmarshalText parses a number with an optional unit. Code: invalid.
func (b *byteSize) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if i < 0 {
		i = len(s)
	}
	const thousand, binary = 1000, 1024
	units := map[string]int64{
		"": 1, "B": 1, "KB": thousand, "MB": thousand * thousand, "GB": thousand * thousand * thousand,
		"KiB": binary, "MiB": binary * binary, "GiB": binary * binary * binary, "TiB": binary * binary * binary * binary,
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	unit, ok := units[strings.TrimSpace(s[i:])]
	if err != nil || !ok || n > math.MaxInt64/unit {
		return schemas.Invalidf("", "%q is not a size: write bytes, or a number with KiB, MiB, GiB, TiB, KB, MB or GB", schemas.Quotable(s))
	}
	*b = byteSize(n * unit)
	return nil
}

func (b byteSize) String() string {
	for _, u := range []struct {
		name string
		size byteSize
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.size {
			return fmt.Sprintf("%.1f %s", float64(b)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}
