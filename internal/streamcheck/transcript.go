package streamcheck

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// longestLine is the maximum length of a line of a transcript, in bytes: an event is below 1 MiB, and JSON may make it longer.
const longestLine = 8 << 20

// Bytes returns the digest of an event for clients that have its exact bytes.
func Bytes(event []byte) string {
	sum := sha256.Sum256(event)
	return hex.EncodeToString(sum[:16])
}

// Content returns the digest of an event for clients that have parsed it. It does not depend on white space, on the order of members or on
// the escapes of characters.
func Content(event []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(event))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("the event is not JSON: %w", err)
	}
	canonical, err := json.Marshal(v) // names are sorted
	if err != nil {
		return "", fmt.Errorf("the event cannot be written again: %w", err)
	}
	return Bytes(canonical), nil
}

// Read reads a transcript in lines of JSON, as clients in other languages write it. A line may have the event itself, in the field event,
// instead of its digest; the digest is then its [Content].
func Read(r io.Reader) ([]Seen, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	var all []Seen
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line struct {
			Seen

			Event json.RawMessage `json:"event"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(line.Event) > 0 {
			digest, err := Content(line.Event)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			line.Digest = digest
		}
		all = append(all, line.Seen)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the transcript: %w", err)
	}
	return all, nil
}
