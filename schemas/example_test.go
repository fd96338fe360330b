package schemas_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// A gateway reads what a client sent, and answers what is wrong with it. What the client's model has written wrongly is taken, and
// becomes the result of its call.
func ExampleDecodeRequest() {
	_, err := schemas.DecodeRequest([]byte(`{"tool":"bash","input":{"command":"echo hello"},"sandbx":"a"}`))
	e, _ := errors.AsType[*schemas.Error](err)
	fmt.Println(e.Code, e.Field, e.Message)

	r, err := schemas.DecodeRequest([]byte(`{"tool":"bash","input":{"comand":"echo hello"}}`))
	fmt.Println(err, r.Misuse().Field)

	r, err = schemas.DecodeRequest([]byte(`{"tool":"bash","input":{"command":"echo hello"},"timeout":"5s"}`))
	fmt.Println(r.Tool, time.Duration(r.Timeout), err)
	// Output:
	// invalid sandbx is not a known field: use "sandbox"
	// <nil> input.comand
	// bash 5s <nil>
}

// Codes compare by value, also after they have crossed a wire.
func ExampleError() {
	err := fmt.Errorf("ask: %w", schemas.OpErrorf(schemas.Exhausted, "run", "all places are taken"))
	fmt.Println(errors.Is(err, schemas.ErrExhausted), schemas.CodeOf(err).Retryable())
	// Output: true true
}
