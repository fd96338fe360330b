package providers_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func TestAwait(t *testing.T) {
	refused, short := errors.New("no such process"), providers.Command{Timeout: 5, Grace: 9}
	for name, c := range map[string]struct {
		cmd                    providers.Command
		endsAfter, cancelAfter time.Duration // 0: never
		term                   error
		want                   error
		after                  time.Duration
		terms                  int
	}{
		"it ends":                    {cmd: providers.Command{Timeout: time.Minute}, endsAfter: time.Second, after: time.Second},
		"it is cancelled":            {cancelAfter: time.Second, want: context.Canceled, after: time.Second},
		"it does not hear":           {want: providers.ErrTimeout, after: schemas.DefaultTimeout + providers.DefaultGrace, terms: 1},
		"it hears":                   {cmd: short, endsAfter: 7, want: providers.ErrTimeout, after: 7, terms: 1},
		"it cannot be asked":         {cmd: short, term: refused, want: providers.ErrTimeout, after: 5, terms: 1},
		"it is cancelled in between": {cmd: short, cancelAfter: 8, want: providers.ErrTimeout, after: 8, terms: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan struct{})
				if c.endsAfter > 0 {
					time.AfterFunc(c.endsAfter, func() { close(ended) })
				}
				if c.cancelAfter > 0 {
					time.AfterFunc(c.cancelAfter, cancel)
				}
				began, terms := time.Now(), 0
				err := providers.Await(ctx, c.cmd, ended, func() error { terms++; return c.term })
				if !errors.Is(err, c.want) || time.Since(began) != c.after || terms != c.terms {
					t.Errorf("%v after %s, %d times TERM; want %v after %s, %d", err, time.Since(began), terms, c.want, c.after, c.terms)
				}
			})
		})
	}
}
