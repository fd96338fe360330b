package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

// reverser is a key service whose wrapping every process can undo.
type reverser struct{ asked []seal.Wrapped }

func (r *reverser) Unwrap(ctx context.Context, w seal.Wrapped) ([]byte, error) {
	r.asked = append(r.asked, w)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	secret := bytes.Clone(w.Blob)
	for i, j := 0, len(secret)-1; i < j; i, j = i+1, j-1 {
		secret[i], secret[j] = secret[j], secret[i]
	}
	return secret, nil
}

func TestLoadOpensWrappedKeys(t *testing.T) {
	t.Parallel()
	w := seal.Wrapped{ID: "k", Service: "rev", Key: "arn:aws:kms:eu-west-1:1:key/a", Blob: []byte(strings.Repeat("ab", seal.KeyBytes/2))}
	plain := seal.Generate()
	service := &reverser{}
	got, err := seal.Load(t.Context(), []byte(w.Line()+"\n"+plain.Line()), map[string]seal.Unwrapper{"rev": service})
	if err != nil || got.String() != "k, "+plain.ID || len(service.asked) != 1 || service.asked[0].Key != w.Key {
		t.Fatalf("%v, %v after %+v", got, err, service.asked)
	}
	same, err := seal.NewKey("k", []byte(strings.Repeat("ba", seal.KeyBytes/2)))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := ring(t, same).Seal([]byte("s3cret"), place)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := got.Open(sealed, place); err != nil || string(text) != "s3cret" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	blob := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", seal.KeyBytes)))
	for name, c := range map[string]struct{ text, words string }{
		"another service":   {"a other:key:" + blob, `service "other", which is not known here`},
		"no name of a key":  {"a rev::" + blob, `entry 1 is not "ID SERVICE:KEY:BASE64"`},
		"no service":        {"a :key:" + blob, "entry 1 is not"},
		"no blob":           {"a rev:key:", "entry 1 is not"},
		"no base64":         {"a rev:key:zzzz!", "entry 1 is not"},
		"a long blob":       {"a rev:key:" + base64.StdEncoding.EncodeToString(make([]byte, seal.MaxWrapped+1)), "entry 1 is not"},
		"a key of 16 bytes": {"a rev:key:" + base64.StdEncoding.EncodeToString(make([]byte, 16)), "has 16 bytes"},
		"the same id twice": {"a rev:key:" + blob + "," + line("a", 32), "a is there twice"},
		"too many":          {strings.Repeat("a rev:k:"+blob+"\n", seal.MaxKeys+1), "there are 65"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := seal.Load(t.Context(), []byte(c.text), map[string]seal.Unwrapper{"rev": &reverser{}})
			if !errors.Is(err, schemas.ErrInvalid) || r != nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, %v: want %q", r, err, c.words)
			}
		})
	}
	if _, err := seal.Parse([]byte("a rev:key:" + blob)); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("without a service: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := seal.Load(ctx, []byte("a rev:key:"+blob), map[string]seal.Unwrapper{"rev": &reverser{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("after a stop: %v", err)
	}
}
