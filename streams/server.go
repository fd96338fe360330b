package streams

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
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
		door, err := openIntakeDoor(conn, publications, s.admitPublication, o.Logger().Warn)
		if err != nil {
			return nil, err
		}
		return door.run, nil
	}
	var err error
	if s.Server, err = embedded.Start(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) admitPublication(a schemas.AccountID, n int64) error {
	if b := s.bus.Load(); b != nil {
		return b.capacity.admitPublication(a, n)
	}
	return nil // without a Bus no consumer runs, and the number of each account is bounded
}
