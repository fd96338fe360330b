package streams

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/sandjet/sandjet/schemas"
)

// ServiceOptions describe a NATS micro service.
type ServiceOptions struct {
	Name        string
	Version     string // semantic
	Description string
	Subjects    []string // wildcards are allowed
	// Slots is how many requests are handled at the same time; more wait. 0: 64.
	Slots int
}

// Request is one request to a service.
type Request struct {
	Subject string
	Account schemas.AccountID // from a subject that ends in it; else empty
	Data    []byte
	Headers Headers
}

// MaxAnswer is how many bytes an answer to a request may have at most: what is larger is not sent.
func (b *Bus) MaxAnswer() int { return b.limit }

// Serve answers requests until ctx ends; then it takes no more, lets those in hand end and returns
// nil. Several that serve under one name share the requests. What the handler returns is the answer;
// an error becomes an error answer of the service protocol with [schemas.Public] as its JSON. A
// request without a reply subject is handled and not answered.
func (b *Bus) Serve(ctx context.Context, o ServiceOptions, handle func(context.Context, Request) ([]byte, error)) error {
	const defaultSlots = 64
	s, err := micro.AddService(b.work, micro.Config{Name: o.Name, Version: o.Version, Description: o.Description})
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "serve "+o.Name, "the service is not described rightly", err)
	}
	hard := context.WithoutCancel(ctx)
	slots := make(chan struct{}, orDefault(o.Slots, defaultSlots))
	var inHand sync.WaitGroup
	handler := micro.HandlerFunc(func(r micro.Request) {
		slots <- struct{}{}
		inHand.Go(func() {
			defer func() { <-slots }()
			b.serveOne(hard, r, handle)
		})
	})
	for i, subject := range o.Subjects {
		if err = s.AddEndpoint("e"+strconv.Itoa(i), handler, micro.WithEndpointSubject(subject)); err != nil {
			break
		}
	}
	if err == nil {
		<-ctx.Done()
	}
	stopErr := s.Stop()
	inHand.Wait()
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "serve "+o.Name, "a subject is refused", err)
	}
	if stopErr != nil && b.work.Status() == nats.CONNECTED {
		return coded("end the service "+o.Name, stopErr)
	}
	return nil
}

func (b *Bus) serveOne(ctx context.Context, r micro.Request, handle func(context.Context, Request) ([]byte, error)) {
	answer, err := func() (answer []byte, err error) {
		defer func() {
			if p := recover(); p != nil {
				b.log.Error("a service's handler panicked", "subject", r.Subject(), "panic", p, "stack", string(debug.Stack()))
				err = schemas.Errorf(schemas.Internal, "", "internal error")
			}
		}()
		return handle(ctx, Request{
			Subject: r.Subject(), Account: accountOf(r.Subject()), Data: r.Data(), Headers: copyHeaders(nats.Header(r.Headers())),
		})
	}()
	if r.Reply() == "" {
		return
	}
	if err == nil {
		err = r.Respond(answer)
	} else {
		public := schemas.Public(err)
		body, _ := json.Marshal(public) //nolint:errchkjson // a type of ours that always encodes
		err = r.Error(string(public.Code), strings.Map(oneLine, public.Message), body)
	}
	if err != nil {
		b.log.Info("a request could not be answered", "subject", r.Subject(), "error", err)
	}
}

// oneLine keeps text fit for a header.
func oneLine(r rune) rune {
	if r < ' ' || r == '\u007f' {
		return ' '
	}
	return r
}
