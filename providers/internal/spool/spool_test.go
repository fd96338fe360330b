package spool

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func TestPieces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "[] false",
		"end\n":                     "[] true",
		"gone\n":                    "[] true",
		"o 1 aGk=\ne 7 \n":          "not understood",
		"o 1 aGk=\r\ne 7 AA==\nend": "[{o 1 [104 105]} {e 7 [0]}] true",
		"o 0 aGk=\n":                "not understood",
		"o 1 !\n":                   "not understood",
		"bash: fork: no\n":          "not understood",
	} {
		pieces, over, err := readPieces(text)
		if got := fmt.Sprint(pieces, over, err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzPieces: whatever a sandbox returns, each piece is valid, and the printed output arrives unchanged.
func FuzzPieces(f *testing.F) {
	f.Add("o 1 aGk=\ne 2 AA==\nend\n", []byte("data"))
	f.Add("gone", []byte{0, '\n'})
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		if pieces, _, err := readPieces(text); err == nil {
			for _, p := range pieces {
				if p.n < 1 || p.output != "o" && p.output != "e" {
					t.Errorf("a piece that is none: %+v", p)
				}
			}
		}
		if len(data) == 0 {
			return
		}
		pieces, over, err := readPieces("e 3 " + base64.StdEncoding.EncodeToString(data) + "\nend\n")
		if err != nil || !over || len(pieces) != 1 || !bytes.Equal(pieces[0].data, data) {
			t.Errorf("%q came as %v, %v, %v", data, pieces, over, err)
		}
	})
}
