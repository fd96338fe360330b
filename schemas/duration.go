package schemas

import (
	"encoding/json"
	"time"
)

// Duration is a time.Duration that reads as seconds (30, 1.5) or as text ("30s", "5m") and is
// written as text. It is never negative once decoded.
type Duration time.Duration

// MarshalText returns Go's notation, such as "1m30s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads Go's notation.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil && v < 0 {
		return Invalidf("", "%s is negative: write seconds (30) or a text such as 30s or 5m", v)
	}
	if err != nil {
		return Invalidf("", "%q is not a duration: write seconds (30) or a text such as 30s or 5m", Quotable(string(b)))
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON reads seconds or text. As everywhere in encoding/json, null changes nothing.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		return d.UnmarshalText([]byte(s))
	}
	var sec float64
	const most = float64(1<<63-1) / float64(time.Second)
	if err := json.Unmarshal(b, &sec); err != nil || sec < 0 || sec >= most {
		return Invalidf("", "%s is not a duration: write seconds (30) or a text such as 30s or 5m", Quotable(string(b)))
	}
	*d = Duration(sec * float64(time.Second))
	return nil
}
