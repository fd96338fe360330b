package web

import (
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/schemas"
)

// Waits lets requests with ?wait= wait. It is safe for concurrent use.
type Waits struct {
	// Max cuts ?wait=.
	Max time.Duration
	// Slot takes a slot for a request that waits. Codes: exhausted, unavailable.
	Slot func(w http.ResponseWriter, a schemas.AccountID) (*quota.Place, error)
}

// Begin parses ?wait= and takes a slot if the request must wait. The caller must call release, which is never nil, after the response.
// Codes: invalid, exhausted, unavailable.
func (o Waits) Begin(w http.ResponseWriter, q Query, a schemas.AccountID) (wait time.Duration, release func(), err error) {
	wait, err = q.Wait(o.Max)
	if err != nil || wait <= 0 {
		return 0, func() {}, err
	}
	place, err := o.Slot(w, a)
	if err != nil {
		return 0, func() {}, err
	}
	return wait, place.Release, nil
}
