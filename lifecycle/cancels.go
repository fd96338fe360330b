package lifecycle

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// CancelConcerns reports whether a cancellation, stored at taken, is about the call accepted at accepted, and not about an earlier call
// with the same id: an id may be used again after 24 hours, and a call ends within 23. The cancellation contains the call's acceptance
// time, so the log's clock may be set in between. Cancellations of former versions do not contain it; then the times are compared.
func CancelConcerns(request schemas.Cancel, taken, accepted time.Time) bool {
	const clocksApart = 30 * time.Minute // of the log and of who accepted the call
	if !request.Accepted.IsZero() {
		return request.Accepted.Equal(accepted)
	}
	return !taken.Before(accepted.Add(-clocksApart))
}
