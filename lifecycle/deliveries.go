package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DeliveryReplay says which deliveries to webhook endpoints are made again. Empty fields leave their
// side open, but for Account.
type DeliveryReplay struct {
	Account  schemas.AccountID
	Endpoint schemas.EndpointID
	ID       schemas.DeliveryID
	Since    time.Time // deliveries that were made at this time or later
}

func (r DeliveryReplay) matches(d schemas.Delivery) bool {
	return (r.Endpoint == "" || d.Endpoint == r.Endpoint) && (r.ID == "" || d.ID == r.ID) && !d.Created.Before(r.Since)
}

// ReplayDeliveries has deliveries of the last seven days made again, those that arrived as well as
// those that did not, and returns how many: at once and with all their tries anew, under the same id and
// with the same bytes, so that a receiver can tell that it has one already. What is made while it
// reads is left out. After an error the first n are on their way; going through them once more does
// no harm. Codes: not_found (there is no delivery of the ID), and those of the log.
func ReplayDeliveries(ctx context.Context, b *streams.Bus, r DeliveryReplay) (n int, err error) {
	if err := r.Account.Validate(); err != nil {
		return 0, err
	}
	if r.ID != "" && !streams.IsToken(string(r.ID)) {
		return 0, schemas.Invalidf("id", "%q is not the id of a delivery", schemas.Quotable(string(r.ID)))
	}
	for e, err := range streams.Deliveries.Of(ctx, b, schemas.WebhookChannel, r.Account, string(r.ID), r.start()) {
		if err != nil {
			return n, err
		}
		if !r.matches(e.Value) {
			continue
		}
		if err := streams.Deliveries.Schedule(ctx, b, e.Value.Again(b.Now()), b.Now()); err != nil {
			return n, err
		}
		n++
	}
	return n, r.found(n)
}

// start is from when on to read: a delivery was stored after it was made, by another clock.
func (r DeliveryReplay) start() time.Time {
	if r.Since.IsZero() {
		return time.Time{}
	}
	return r.Since.Add(-streams.ClocksApart)
}

func (r DeliveryReplay) found(n int) error {
	if n > 0 || r.ID == "" {
		return nil
	}
	return schemas.Errorf(schemas.NotFound, "", "there is no delivery %q to be made again: deliveries are known for seven days",
		schemas.Quotable(string(r.ID)))
}

// Notify puts the deliveries of an event to an account's webhook endpoints on the log, each once. At is where the event stands.
// It may be called again after an error.
func Notify(ctx context.Context, b *streams.Bus, e schemas.Event, at schemas.Cursor, endpoints []schemas.Endpoint) error {
	for _, d := range schemas.WebhookDeliveries(e, at, endpoints, b.Now()) {
		if err := Deliver(ctx, b, d); err != nil {
			return err
		}
	}
	return nil
}

// Deliver puts a delivery on the log, once: one that is there already is no error.
func Deliver(ctx context.Context, b *streams.Bus, d schemas.Delivery) error {
	if err := streams.Deliveries.Publish(ctx, b, d); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("make the delivery %s: %w", d.ID, err)
	}
	return nil
}
