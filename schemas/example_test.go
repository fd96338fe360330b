package schemas_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// A front door reads what a client sent, and answers what is wrong with it.
func ExampleDecodeRequest() {
	_, err := schemas.DecodeRequest([]byte(`{"tool":"bash","input":{"comand":"echo hello"}}`))
	e, _ := errors.AsType[*schemas.Error](err)
	fmt.Println(e.Code, e.Field)
	fmt.Println(e.Message)

	r, err := schemas.DecodeRequest([]byte(`{"tool":"bash","input":{"command":"echo hello"},"timeout":"5s"}`))
	fmt.Println(r.Tool, time.Duration(r.Timeout), err)
	// Output:
	// invalid input.comand
	// is not a known field: use "command"
	// bash 5s <nil>
}

// Codes compare by value, also after they have crossed a wire.
func ExampleError() {
	err := fmt.Errorf("ask: %w", schemas.Errorf(schemas.Exhausted, "run", "all places are taken"))
	fmt.Println(errors.Is(err, schemas.ErrExhausted), schemas.CodeOf(err).Retryable())
	// Output: true true
}
