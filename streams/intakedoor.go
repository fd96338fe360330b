package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/intake"
)

// IntakeDoor accepts what clients of an outside server publish on sandjet.calls.auto.<account>. An embedded server has one of its own. Any
// number of processes may run it; while none does, publications are not confirmed.
type IntakeDoor struct {
	Bus    *Bus
	Shares fair.Shares
}

// Run accepts publications until ctx ends, then returns nil. While the log is unavailable it waits.
func (i IntakeDoor) Run(ctx context.Context) error {
	var (
		d      *intake.Listener
		opened *nats.Conn
	)
	err := i.Bus.insist(ctx, "intake", func() error {
		conn, err := i.Bus.dial(ctx, "intake")
		if err != nil {
			return err
		}
		d, err = intake.Open(intake.Options{
			Conn: conn, Stream: streamIntake, Shares: i.Shares, Warn: i.Bus.log.Warn, Admit: func(a schemas.AccountID, m *nats.Msg) error {
				return i.Bus.capacity.admitPublication(a, sizeOfMessage(m.Subject, m.Data))
			},
		})
		if err != nil {
			conn.Close()
		}
		opened = conn
		return err
	})
	if d == nil {
		return unlessEnded(ctx, err)
	}
	defer opened.Close()
	d.Run(ctx)
	flush(opened) // the last answers
	return nil
}

// unlessEnded returns err, or nil when ctx has ended: not starting is no error then.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // as said
	}
	return err
}

// flush waits briefly until what was published has reached the server. It is used where a failure has no consequence. The client library's
// own timeouts would share timers between connections.
func flush(conn *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.FlushWithContext(ctx)
}
