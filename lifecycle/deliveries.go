package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

const (
	// ReplaySlice is how many deliveries one [ReplayDeliveries] makes again at most.
	ReplaySlice = 1000

	replayLooks  = 20_000 // deliveries that it reads
	replayWithin = 10 * time.Second
)

// DeliveryReplay selects deliveries to webhook endpoints that are repeated. Account is required; another empty field matches all.
type DeliveryReplay struct {
	Account  schemas.AccountID
	Endpoint schemas.EndpointID
	ID       schemas.DeliveryID
	Since    time.Time // deliveries that were made at this time or later
	// After is where an earlier slice of the same replay ended; empty: it begins.
	After string
	// Slice is how many are made again at most. 0: ReplaySlice.
	Slice int
}

func (r DeliveryReplay) matches(d schemas.Delivery) bool {
	return (r.Endpoint == "" || d.Endpoint == r.Endpoint) && (r.ID == "" || d.ID == r.ID) && !d.Created.Before(r.Since)
}

// ReplayDeliveries repeats deliveries of the last seven days, successful ones too, and returns how many: each is due at once, with all its
// tries, under the same id and with the same bytes, so that a receiver can recognise one that it has already. They count against the
// account's quota. Deliveries made after the replay began are left out.
//
// One call repeats a slice of them. Next is what the caller passes as After to continue; it is empty after the last slice. An error after
// the first delivery of a slice ends the slice there, and is returned by the next call. It is harmless to repeat a slice. Codes: not_found
// (there is no delivery with the ID), invalid (After), conflict (the log was recreated), exhausted (the account's quota), and those of the
// log.
func ReplayDeliveries(ctx context.Context, b *streams.Bus, r DeliveryReplay) (n int, next string, err error) {
	if err := r.Account.Validate(); err != nil {
		return 0, "", err
	}
	if r.ID != "" && !subjects.IsToken(string(r.ID)) {
		return 0, "", schemas.Invalidf("id", "%q is not the id of a delivery", schemas.Quotable(string(r.ID)))
	}
	span, err := parseSpan(r.After)
	if err != nil {
		return 0, "", err
	}
	begun, before := time.Now(), span // by this process's clock that cannot be set
	most, looks := cmp.Or(r.Slice, ReplaySlice), 0
	for e, err := range streams.Deliveries.Walk(ctx, b, schemas.WebhookChannel, r.Account, string(r.ID), r.start(), &span) {
		if err == nil && r.matches(e.Value) {
			now := b.Now()
			if err = streams.Deliveries.Requested().Schedule(ctx, b, e.Value.Again(now), now); err == nil {
				n++
			}
		}
		switch {
		case err != nil && n > 0:
			return n, spanText(before), nil
		case err != nil:
			return 0, "", err
		}
		before = span
		if looks++; n >= most || looks >= replayLooks || time.Since(begun) > replayWithin {
			return n, spanText(before), nil
		}
	}
	return n, "", r.found(n)
}

// spanText encodes a span for DeliveryReplay.After.
func spanText(s streams.Span) string { return fmt.Sprintf("%s.%d.%d", s.Epoch, s.After, s.Until) }

func parseSpan(text string) (s streams.Span, err error) {
	if text == "" {
		return s, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) == 3 {
		after, afterErr := strconv.ParseUint(parts[1], 10, 64)
		until, untilErr := strconv.ParseUint(parts[2], 10, 64)
		if afterErr == nil && untilErr == nil && after > 0 && until >= after {
			return streams.Span{Epoch: parts[0], After: after, Until: until}, nil
		}
	}
	return s, schemas.Invalidf("after", "%q is invalid: send the \"next\" of the answer before, or leave it out to begin", schemas.Quotable(text))
}

// start returns the time from which the log is read. It is earlier than Since, as deliveries are stored after they are made, by another
// clock.
func (r DeliveryReplay) start() time.Time {
	if r.Since.IsZero() {
		return time.Time{}
	}
	return r.Since.Add(-streams.ClocksApart)
}

func (r DeliveryReplay) found(n int) error {
	if n > 0 || r.ID == "" || r.After != "" {
		return nil
	}
	return schemas.Errorf(schemas.NotFound, "there is no delivery %q to be made again: deliveries are known for seven days",
		schemas.Quotable(string(r.ID)))
}

// Notify stores the deliveries of an event to an account's webhook endpoints on the log, each once. At is the event's cursor. Room for all
// of them is reserved before the first is written. It may be called again after an error. Code: unavailable (also if the log is full).
func Notify(ctx context.Context, b *streams.Bus, e schemas.Event, at schemas.Cursor, endpoints []schemas.Endpoint) error {
	receivers := schemas.WebhookReceivers(e, endpoints)
	if len(receivers) <= 1 { // one asks for its own
		return notify(ctx, b, streams.Deliveries, e, at, receivers)
	}
	release, err := b.ReserveAccepted(ctx, schemas.WebhookDeliveriesSize(e, receivers))
	if err != nil {
		return fmt.Errorf("make the deliveries of %s: %w", e.ID, err)
	}
	defer release()
	return notify(ctx, b, streams.Deliveries.Reserved(), e, at, receivers)
}

// NotifyReserved is [Notify] under a reservation of [schemas.WebhookDeliveriesSize] bytes.
func NotifyReserved(ctx context.Context, b *streams.Bus, e schemas.Event, at schemas.Cursor, endpoints []schemas.Endpoint) error {
	return notify(ctx, b, streams.Deliveries.Reserved(), e, at, endpoints)
}

func notify(ctx context.Context, b *streams.Bus, to streams.Topic[schemas.Delivery], e schemas.Event, at schemas.Cursor,
	endpoints []schemas.Endpoint) error {
	for d := range schemas.WebhookDeliveries(e, at, endpoints, b.Now()) {
		if err := deliver(ctx, b, to, d); err != nil {
			return err
		}
	}
	return nil
}

// Deliver stores a delivery on the log. It does nothing if it is stored already.
func Deliver(ctx context.Context, b *streams.Bus, d schemas.Delivery) error {
	return deliver(ctx, b, streams.Deliveries, d)
}

func deliver(ctx context.Context, b *streams.Bus, to streams.Topic[schemas.Delivery], d schemas.Delivery) error {
	if err := to.Publish(ctx, b, d); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("make the delivery %s: %w", d.ID, err)
	}
	return nil
}
