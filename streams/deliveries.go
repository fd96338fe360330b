package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
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
func ReplayDeliveries(ctx context.Context, b *Bus, r DeliveryReplay) (n int, err error) {
	subject, err := r.subject()
	if err != nil {
		return 0, err
	}
	info, err := b.streamInfo(ctx, streamDeliver)
	if err != nil {
		return 0, err
	}
	end := info.State.LastSeq // what is made again is stored behind it: without an end the walk would meet it
	for from, at := uint64(1), r.start(); ; {
		page, more, err := b.getPage(ctx, streamDeliver, subject, from, at, 0)
		if err != nil {
			return n, err
		}
		for _, m := range page {
			if m.seq > end {
				return n, r.found(n)
			}
			from, at = m.seq+1, nil
			e, err := Deliveries.entry(ctx, b, "", m)
			if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
				return n, err
			}
			if err != nil {
				b.log.Error("a stored message is no delivery and is passed over", "seq", m.seq, "error", err)
				continue
			}
			if !r.matches(e.Value) {
				continue
			}
			if err := Deliveries.Schedule(ctx, b, Again(e.Value, b.Now()), b.Now()); err != nil {
				return n, err
			}
			n++
		}
		if !more || len(page) == 0 {
			return n, r.found(n)
		}
	}
}

// Again is a delivery whose tries begin anew. Its id and its bytes stay.
func Again(d schemas.Delivery, now time.Time) schemas.Delivery {
	d.Attempt, d.Last, d.Begun = 0, nil, now.UTC()
	d.Replay++
	return d
}

func (r DeliveryReplay) subject() (string, error) {
	if err := r.Account.Validate(); err != nil {
		return "", err
	}
	if r.ID == "" {
		return prefixDeliveries + schemas.WebhookChannel + "." + string(r.Account) + ".*", nil
	}
	if !plain(string(r.ID)) {
		return "", schemas.Invalidf("id", "%q is not the id of a delivery", schemas.Quotable(string(r.ID)))
	}
	return deliverySubject(schemas.Delivery{ID: r.ID, Account: r.Account, Channel: schemas.WebhookChannel}), nil
}

// start is from when on to read: a delivery was stored after it was made, by another clock.
func (r DeliveryReplay) start() *time.Time {
	if r.Since.IsZero() {
		return nil
	}
	at := r.Since.Add(-clocksApart)
	return &at
}

func (r DeliveryReplay) found(n int) error {
	if n > 0 || r.ID == "" {
		return nil
	}
	return schemas.Errorf(schemas.NotFound, "", "there is no delivery %q to be made again: deliveries are known for seven days", schemas.Quotable(string(r.ID)))
}
