package tools

import (
	"bytes"
	"strings"
	"testing"
)

// BenchmarkLines searches 8 MiB of text for patterns that match nothing, with and without a literal.
func BenchmarkLines(b *testing.B) {
	const size = 8 << 20
	line := "func (t read) line(b *strings.Builder, number int64, line string) { return }\n"
	data := bytes.NewReader([]byte(strings.Repeat(line, size/len(line))))
	for name, source := range map[string]string{"literal": `needle\d+`, "class": `[0-9]{3}`, "fold": `(?i)needle`} {
		b.Run(name, func(b *testing.B) {
			p, err := newPattern(source, false)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(data.Size())
			for b.Loop() {
				err := p.lines(b.Context(), data, data.Size(), func(int, []byte) bool { b.Fatal("found"); return false })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
