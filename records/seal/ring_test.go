package seal_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

func line(id string, bytes int) string {
	return id + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", bytes)))
}

func TestParseReadsKeysInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"one":                     {line("a", 32), "a"},
		"lines":                   {line("b", 32) + "\n" + line("a", 32) + "\n", "b, a"},
		"commas":                  {line("b", 32) + "," + line("a", 32), "b, a"},
		"comments and empty ones": {"# new\n\n" + line("b-1_X", 32) + "\r\n  \n#old\n  " + line("a", 32), "b-1_X, a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := seal.Parse([]byte(c.text))
			if err != nil || r.String() != c.want || r.Current() != strings.Split(c.want, ", ")[0] || !r.Has("a") || r.Has("c") {
				t.Errorf("%v, %v: want %s", r, err, c.want)
			}
		})
	}
}

func TestParseRefusesAndShowsNothing(t *testing.T) {
	t.Parallel()
	many := make([]string, 0, seal.MaxKeys+1)
	for n := range seal.MaxKeys + 1 {
		many = append(many, line(fmt.Sprint("k", n), 32))
	}
	for name, c := range map[string]struct{ text, words string }{
		"nothing":           {"", "there are 0"},
		"a comment":         {"# x", "there are 0"},
		"no id":             {base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))), `entry 1 is not "ID BASE64"`},
		"a short key":       {line("a", 32) + "\n" + line("b", 31), "entry 2 has no 32 bytes"},
		"a long key":        {line("a", 33), "entry 1 has no 32 bytes"},
		"no base64":         {"a zzzzsecretzzzz!", "entry 1 has no 32 bytes"},
		"an id with a dot":  {line("a.b", 32), "entry 1 is not"},
		"a long id":         {line(strings.Repeat("a", seal.MaxKeyID+1), 32), "entry 1 is not"},
		"the same id twice": {line("a", 32) + "\n" + line("a", 32), "a is there twice"},
		"too many":          {strings.Join(many, "\n"), "there are 65"},
		"too long":          {strings.Repeat("#\n", seal.MaxRingText), "longer than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := seal.Parse([]byte(c.text))
			if !errors.Is(err, schemas.ErrInvalid) || r != nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, %v: want %q", r, err, c.words)
			}
			if err != nil && (strings.Contains(err.Error(), "a2tra2tr") || strings.Contains(err.Error(), "zzzz")) {
				t.Errorf("the error shows what may be a key: %v", err)
			}
		})
	}
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := seal.NewKey("a", make([]byte, 16)); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("a short key: %v", err)
	}
	if _, err := seal.NewKey("", make([]byte, 32)); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	if _, err := seal.NewRing(seal.Key{ID: "a"}); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("a key without bytes: %v", err)
	}
	if _, err := seal.NewKey("a", make([]byte, 32)); err != nil {
		t.Error(err)
	}
}

func TestAGeneratedKeyIsReadBackAndNeverPrinted(t *testing.T) {
	t.Parallel()
	k := seal.Generate()
	if k.Line() == seal.Generate().Line() {
		t.Error("two keys are the same")
	}
	r, err := seal.Parse([]byte(k.Line() + "\n"))
	if err != nil || r.Current() != k.ID {
		t.Fatalf("%v, %v", r, err)
	}
	secret := strings.Fields(k.Line())[1]
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, k); strings.Contains(text, secret) || !strings.Contains(text, k.ID) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(line("a", 32))
	f.Add("# c\n" + line("b", 32) + "," + line("a", 32))
	f.Add("a b c")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := seal.Parse([]byte(text))
		if err != nil {
			return
		}
		sealed, err := r.Seal([]byte("x"), seal.Context{})
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := r.Open(sealed, seal.Context{}); err != nil || string(plain) != "x" {
			t.Errorf("%q, %v", plain, err)
		}
	})
}
