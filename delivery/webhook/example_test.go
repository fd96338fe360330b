package webhook_test

import (
	"fmt"
	"time"

	"github.com/sandjet/sandjet/delivery/webhook"
	"github.com/sandjet/sandjet/schemas"
)

// A receiver verifies what it got, as any library for Standard Webhooks does.
func ExampleVerify() {
	secret, now := webhook.NewSecret(), time.Now()
	h, err := webhook.Sign("del_1", `{"type":"job.finished"}`, now, []schemas.EndpointSecret{{Key: secret}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(webhook.Verify(h, []byte(`{"type":"job.finished"}`), now, secret))
	fmt.Println(webhook.Verify(h, []byte(`{"type":"job.forged"}`), now, secret) != nil)
	// Output:
	// <nil>
	// true
}
