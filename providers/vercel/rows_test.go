package vercel

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

func TestRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 aGk=\n":                        `"hi" false 1 []`,
		"1 aGk=\r\n2 Cg==\n":              `"hi\n" false 2 []`,
		"1 aGk=\n1 aGk=\n":                `"hi" false 1 []`, // it came before
		"1 aGk=\n1 end\n":                 `"hi" true 1 []`,
		"0 end\n":                         `"" true 0 []`,
		"0 over\n1 aGk=\n":                `"hi" false 1 [over]`,
		"1 aG":                            `"" false 0 []`, // the rest comes
		"2 aGk=\n":                        "not understood",
		"1 end\n":                         "not understood",
		"1 !\n":                           "not understood",
		"-1 aGk=\n":                       "not understood",
		"bash: fork: no\n":                "not understood",
		strings.Repeat("a", longestRow+1): "not a piece",
	} {
		var got bytes.Buffer
		var words []string
		o := output{to: &got}
		err := o.take(text, func(word string) error { words = append(words, word); return nil })
		if said := fmt.Sprintf("%q %v %d %v %v", got.String(), o.ended, o.got, words, err); !strings.Contains(said, want) {
			t.Errorf("%.40q: %s, want %s", text, said, want)
		}
	}
}

// clean is what the client of a provider does to words of the service.
func clean(text string) string { return cloud.Clean(text, "vcp_secret_of_a_team") }

func TestExecuted(t *testing.T) {
	t.Parallel()
	const begun = `{"command":{"id":"c","exitCode":null}}` + "\n"
	for text, want := range map[string]string{
		begun + `{"stream":"stdout","data":"a\n"}` + "\n\n" + `{"stream":"stderr","data":"b"}` + "\n" +
			`{"command":{"id":"c","exitCode":3}}`: "{3 a\nb} <nil>",
		begun + `{"stream":"stdout","data":"a"}` + "\n": "ended before the command",
		begun:                         "ended before the command",
		"":                            "ended before the command",
		begun + `{"stream":"stdout",`: "not understood",
		begun + `{"stream":"error","data":{"code":"sandbox_stopped","message":"gone"}}`:                          "410 sandbox_stopped: gone",
		begun + `{"stream":"error","data":{"code":"vcp_secret_of_a_team","message":"bad vcp_secret_of_a_team"}}`: "410 [redacted]: bad [redacted]",
		begun + `{"stream":"stdout","data":7}`:                                                                   "no text",
	} {
		e, err := readExecuted("POST /cmd", clean, []byte(text))
		if got := fmt.Sprint(e, err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzRows: however a log is cut and however often it is sent from its beginning, the output arrives once and whole, and a text that is
// no log is no success.
func FuzzRows(f *testing.F) {
	f.Add([]byte("data"), []byte("more\x00"), 3, 1)
	f.Add([]byte{}, []byte{0}, 1, 0)
	f.Fuzz(func(t *testing.T, one, two []byte, size, seen int) {
		var log strings.Builder
		n := 0
		for _, piece := range [][]byte{one, two} {
			if len(piece) > 0 {
				n++
				fmt.Fprintln(&log, n, base64.StdEncoding.EncodeToString(piece))
			}
		}
		fmt.Fprintln(&log, n, "end")
		var got bytes.Buffer
		o := output{to: &got}
		never := func(string) error { t.Error("nothing was said"); return nil }
		tell := func(text string) {
			o.rest = nil
			for len(text) > 0 {
				k := min(max(1, size%64), len(text))
				if err := o.take(text[:k], never); err != nil {
					t.Fatal(err)
				}
				text = text[k:]
			}
		}
		tell(log.String()[:max(0, seen)%(len(log.String())+1)])
		tell(log.String())
		if want := string(one) + string(two); got.String() != want || !o.ended {
			t.Errorf("%q came as %q, ended %v", want, got.String(), o.ended)
		}
		if e, err := readExecuted("x", clean, append(one, two...)); err == nil && !bytes.Contains(append(one, two...), []byte("exitCode")) {
			t.Errorf("%q was taken for %+v", one, e)
		}
	})
}
