package live

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/schemas"
)

// TestNoRequestEntersAGatewayThatDrains: a request that has entered before is waited for, also if it runs nothing yet.
func TestNoRequestEntersAGatewayThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining, drain := context.WithCancel(t.Context())
		s := New(Options{Draining: draining})
		leave, err := s.enter()
		if err != nil {
			t.Fatal(err)
		}
		drain()
		if _, err := s.enter(); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("a gateway that drains lets in: %v", err)
		}
		if _, err := s.Page(t.Context(), View{}, 1, 0); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("a gateway that drains begins a page: %v", err)
		}
		over := make(chan struct{})
		go func() { defer close(over); s.Wait() }()
		synctest.Wait()
		select {
		case <-over:
			t.Error("what has entered is not waited for")
		default:
		}
		leave()
		<-over
	})
}
