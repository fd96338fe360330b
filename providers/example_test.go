package providers_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// fixed is a provider that responds to every command in the same way, and has persistent sandboxes.
type fixed struct{}

func (fixed) Run(context.Context, providers.Command) (providers.Result, error) {
	return providers.Result{Runtime: "fixed", Started: true, Stdout: []byte("hello\n")}, nil
}

func (fixed) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: "1"}, nil
}

func (fixed) Release(context.Context, schemas.Ref) error { return nil }

// timed is a decorator: it has Run and Unwrap, and hides no capability of the provider that it wraps.
type timed struct{ inner providers.Provider }

func (t timed) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	begin := time.Now()
	r, err := t.inner.Run(ctx, cmd)
	r.Duration = time.Since(begin)
	return r, err
}

func (t timed) Unwrap() providers.Provider { return t.inner }

// Callers check for capabilities, never for the name of a backend.
func ExampleAs() {
	var p providers.Provider = timed{fixed{}}
	if keeper, ok := providers.As[providers.Reserver](p); ok {
		box, err := keeper.Reserve(context.Background(), "default", providers.Spec{})
		fmt.Println(box.ID, err)
	}
	_, ok := providers.As[providers.Filer](p)
	fmt.Println("reaches files directly:", ok)
	fmt.Println(providers.ProfileOf(p).Name)
	// Output:
	// default <nil>
	// reaches files directly: false
	// unknown
}
