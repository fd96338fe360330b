package lifecycle

import "time"

// CancelConcerns reports whether a request that the log took at a time is about the call of that id which was
// accepted at another, and not about an earlier one: an id may be used again after 24 hours, and a call
// ends within 23.
func CancelConcerns(request, accepted time.Time) bool {
	const clocksApart = 30 * time.Minute // of the log and of who accepted the call
	return !request.Before(accepted.Add(-clocksApart))
}
