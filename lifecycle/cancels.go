package lifecycle

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// CancelConcerns reports whether a request that the log took at a time is about the call of that id which was
// accepted at another, and not about an earlier one: an id may be used again after 24 hours, and a call
// ends within 23. The request says which it is, so the log's clock may be set in between. One of a former version does not: then the
// times have to do.
func CancelConcerns(request schemas.Cancel, taken, accepted time.Time) bool {
	const clocksApart = 30 * time.Minute // of the log and of who accepted the call
	if !request.Accepted.IsZero() {
		return request.Accepted.Equal(accepted)
	}
	return !taken.Before(accepted.Add(-clocksApart))
}
