package awskms_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/records/seal/awskms"
	"github.com/sandjet/sandjet/records/seal/awskms/kmstest"
	"github.com/sandjet/sandjet/schemas"
)

// start serves, and gives the process the credentials for it and no region.
func start(t *testing.T) *kmstest.Server {
	t.Helper()
	server := kmstest.Start(t)
	for name, value := range kmstest.Env() {
		t.Setenv(name, value)
	}
	t.Setenv("AWS_REGION", "")
	return server
}

func TestAWrappedKeyOpensAtTheService(t *testing.T) {
	server := start(t)
	service := awskms.Service{Endpoint: server.URL}
	for _, name := range []string{kmstest.ARN("one"), "alias/sandjet"} {
		t.Setenv("AWS_REGION", kmstest.Region)
		w, err := service.Wrap(t.Context(), "key_a", name)
		if err != nil {
			t.Fatal(err)
		}
		if w.Key != kmstest.ARN("one") || w.Service != awskms.Name {
			t.Errorf("%+v: want the ARN of what %s names", w, name)
		}
		t.Setenv("AWS_REGION", "") // the line names it
		first, err := seal.Load(t.Context(), []byte(w.Line()), map[string]seal.Unwrapper{awskms.Name: service})
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := first.Seal([]byte("s3cret"), seal.Context{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		second, err := seal.Load(t.Context(), []byte(w.Line()), map[string]seal.Unwrapper{awskms.Name: service})
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := second.Open(sealed, seal.Context{ID: "a"}); err != nil || string(plain) != "s3cret" {
			t.Errorf("%q, %v", plain, err)
		}
	}
	if got := server.Calls(); slices.Contains(got, "GenerateDataKey") {
		t.Errorf("%v: the plain key was sent where nobody needs it", got)
	}
}

func TestErrorsNameTheRemedy(t *testing.T) {
	server := start(t)
	good := awskms.Service{Endpoint: server.URL}
	w, err := good.Wrap(t.Context(), "key_a", kmstest.ARN("one"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		service awskms.Service
		env     map[string]string
		refuse  string
		change  func(*seal.Wrapped)
		want    schemas.Code
		words   string
	}{
		"another id":   {change: func(w *seal.Wrapped) { w.ID = "key_b" }, want: schemas.Invalid, words: "made for another id"},
		"another blob": {change: func(w *seal.Wrapped) { w.Blob[len(w.Blob)-1] ^= 1 }, want: schemas.Invalid, words: "the line was changed"},
		"another key":  {change: func(w *seal.Wrapped) { w.Key = kmstest.ARN("two") }, want: schemas.Invalid, words: "under another key"},
		"no such key":  {change: func(w *seal.Wrapped) { w.Key = kmstest.ARN("three") }, want: schemas.NotFound, words: "has no key"},
		"no region":    {change: func(w *seal.Wrapped) { w.Key = "alias/sandjet" }, want: schemas.Invalid, words: "set AWS_REGION"},
		"no credentials": {env: map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, want: schemas.Denied,
			words: "there are no AWS credentials"},
		"wrong credentials": {env: map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong"}, want: schemas.Denied,
			words: "does not take the credentials"},
		"not allowed":  {refuse: "AccessDeniedException", want: schemas.Denied, words: "does not allow kms:Decrypt"},
		"disabled":     {refuse: "DisabledException", want: schemas.Conflict, words: "disabled"},
		"throttled":    {refuse: "ThrottlingException", want: schemas.Unavailable, words: "ThrottlingException"},
		"nobody there": {service: awskms.Service{Endpoint: "http://127.0.0.1:1"}, want: schemas.Unavailable, words: "is not reached"},
		"plain text":   {service: awskms.Service{Endpoint: "http://kms.example.com"}, want: schemas.Invalid, words: "must be https"},
		"no URL":       {service: awskms.Service{Endpoint: "kms"}, want: schemas.Invalid, words: "is not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			server.Refuse("Decrypt", c.refuse)
			service := c.service
			if service.Endpoint == "" {
				service = good
			}
			line := w
			line.Blob = bytes.Clone(w.Blob)
			if c.change != nil {
				c.change(&line)
			}
			secret, err := service.Unwrap(t.Context(), line)
			if secret != nil || schemas.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, %v: want %s with %q", secret, err, c.want, c.words)
			}
		})
	}
}

func TestAStopEndsTheWait(t *testing.T) {
	server := start(t)
	defer server.Hang()()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := awskms.Service{Endpoint: server.URL}.Wrap(ctx, "key_a", kmstest.ARN("one"))
		done <- err
	}()
	for len(server.Calls()) == 0 {
		select {
		case err := <-done:
			t.Fatalf("it has not waited: %v", err)
		case <-time.After(time.Millisecond): // polls the server
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the stop", err)
	}
}
