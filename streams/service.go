package streams

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// ServiceOptions describe a NATS micro service.
type ServiceOptions struct {
	Name        string
	Version     string // semantic
	Description string
	Subjects    []string // wildcards are allowed
	// Shares bound what one account may ask; requests without an account share one place.
	Shares fair.Shares
	// Refused words the answer to a request that is not handled, for the reason err: the account has too much
	// waiting, or the service stops. Nil: an error of the service protocol.
	Refused func(err error) []byte
}

// Request is one request to a service.
type Request struct {
	Subject string
	Account schemas.AccountID // from a subject that ends in it; else empty
	Data    []byte
	Headers Headers
}

// MaxAnswer is how many bytes an answer to a request may have at most: what is larger is not sent.
func (b *Bus) MaxAnswer() int { return b.payloads.Limit() }

// Serve answers requests until ctx ends; then it takes no more, lets those in flight end and returns nil. Several that serve under one name
// share the requests. Accounts take turns, see [fair.Shares]: what is beyond an account's share is refused at once. It has a connection of its
// own, so that many requests delay nothing else. What the handler returns is the answer; an error becomes an error answer of the service
// protocol with [schemas.Public] as its JSON. A request without a reply subject is handled and not answered.
func (b *Bus) Serve(ctx context.Context, o ServiceOptions, handle func(context.Context, Request) ([]byte, error)) error {
	var conn *nats.Conn
	err := b.insist(ctx, "service", func() (err error) {
		conn, err = b.dial(ctx, "service")
		return err
	})
	if conn != nil {
		defer conn.Close()
	}
	if err != nil || ctx.Err() != nil { // or stopped before it began
		return unlessEnded(ctx, err)
	}
	s, err := micro.AddService(conn, micro.Config{Name: o.Name, Version: o.Version, Description: o.Description})
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "serve "+o.Name, "the service is not described rightly", err)
	}
	hard := context.WithoutCancel(ctx)
	waiting := fair.NewQueue[micro.Request](o.Shares)
	h := requestHandler{log: b.log, handle: handle, refused: o.Refused}
	// The subscriptions are shared by all accounts: their callback never waits.
	handler := micro.HandlerFunc(func(r micro.Request) {
		if err := waiting.Offer(subjects.AccountOf(r.Subject()), len(r.Data())+len(r.Subject()), r, time.Now()); err != nil {
			h.refuse(r, err)
		}
	})
	var inFlight sync.WaitGroup
	taking, stop := context.WithCancel(ctx)
	defer stop()
	var turning sync.WaitGroup
	turning.Go(func() {
		waiting.Run(taking, func(r micro.Request, done func()) {
			inFlight.Go(func() {
				defer done()
				h.serve(hard, r)
			})
		}, h.refuse)
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
	stop()
	turning.Wait()
	inFlight.Wait()
	flush(conn) // the last answers
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "serve "+o.Name, "a subject is refused", err)
	}
	if stopErr != nil && conn.Status() == nats.CONNECTED {
		return natserr.Coded("end the service "+o.Name, stopErr)
	}
	return nil
}

// Respond answers what is published to a subject until ctx ends, at most slots at a time; then it takes no more, lets those in flight end
// and returns nil. Several processes share the requests. If answer fails no reply is sent.
func (b *Bus) Respond(ctx context.Context, subject string, slots int, answer func(data []byte, h Headers) ([]byte, error)) error {
	var inFlight sync.WaitGroup
	places := make(chan struct{}, slots)
	sub, err := b.work.QueueSubscribe(subject, subjects.SharedQueue, func(m *nats.Msg) {
		places <- struct{}{}
		inFlight.Go(func() {
			defer func() { <-places }()
			body, err := answer(m.Data, copyHeaders(m.Header))
			if err != nil {
				return
			}
			if err := m.Respond(body); err != nil {
				b.log.Warn("request not answered", "subject", subject, "error", err)
			}
		})
	})
	if err != nil {
		return natserr.Coded("answer on "+subject, err)
	}
	<-ctx.Done()
	err = sub.Unsubscribe()
	inFlight.Wait()
	if err != nil && b.work.Status() == nats.CONNECTED {
		return natserr.Coded("stop answering on "+subject, err)
	}
	return nil
}

// requestHandler answers single requests to a service.
type requestHandler struct {
	log     *slog.Logger
	handle  func(context.Context, Request) ([]byte, error)
	refused func(error) []byte // see ServiceOptions.Refused
}

// serve handles a request and answers it.
func (h requestHandler) serve(ctx context.Context, r micro.Request) {
	answer, err := func() (answer []byte, err error) {
		defer func() {
			if p := recover(); p != nil {
				h.log.Error("service handler panicked", "subject", r.Subject(), "panic", p, "stack", string(debug.Stack()))
				err = schemas.Errorf(schemas.Internal, "internal error")
			}
		}()
		return h.handle(ctx, Request{
			Subject: r.Subject(), Account: subjects.AccountOf(r.Subject()), Data: r.Data(), Headers: copyHeaders(nats.Header(r.Headers())),
		})
	}()
	if r.Reply() == "" {
		return
	}
	if err == nil {
		err = r.Respond(answer)
	} else {
		err = respondError(r, err)
	}
	if err != nil {
		h.log.Info("request not answered", "subject", r.Subject(), "error", err)
	}
}

func respondError(r micro.Request, err error) error {
	public := schemas.Public(err)
	body, _ := schemas.EncodeJSON(public) // a type of ours that always encodes
	return r.Error(string(public.Code), strings.Map(oneLine, public.Message), body)
}

// refuse answers a request that is not handled.
func (h requestHandler) refuse(r micro.Request, err error) {
	switch {
	case r.Reply() == "":
		return
	case h.refused == nil:
		err = respondError(r, err)
	default:
		err = r.Respond(h.refused(err))
	}
	if err != nil {
		h.log.Debug("refusal of a request not sent", "subject", r.Subject(), "error", err)
	}
}

// oneLine keeps text fit for a header.
func oneLine(r rune) rune {
	if r < ' ' || r == '\u007f' {
		return ' '
	}
	return r
}
