package streams

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/intake"
)

// Server is an embedded server at which clients can publish calls. It is safe for concurrent use.
type Server struct {
	*embedded.Server

	bus atomic.Pointer[Bus] // that this process opened on it: it knows what there is room for
}

// StartServer starts a server, whose Intake and Duplicates it sets, and returns when it serves. Publications bound what one account may have
// on its way into the log. Codes: those of [embedded.Start].
func StartServer(ctx context.Context, o embedded.Options, publications fair.Shares) (*Server, error) {
	s := new(Server)
	o.Duplicates = dedupe
	o.Intake = func(conn *nats.Conn) (func(context.Context), error) {
		door, err := intake.Open(intake.Options{
			Conn: conn, Stream: streamIntake, Shares: publications, Warn: o.Logger().Warn, Admit: s.admitPublication,
		})
		if err != nil {
			return nil, err
		}
		return door.Run, nil
	}
	var err error
	if s.Server, err = embedded.Start(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) admitPublication(a schemas.AccountID, m *nats.Msg) error {
	if b := s.bus.Load(); b != nil {
		return b.capacity.admitPublication(a, sizeOfMessage(m.Subject, m.Data))
	}
	return nil // without a Bus no consumer runs, and the number of each account is bounded
}
