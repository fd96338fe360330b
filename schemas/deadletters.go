package schemas

import "time"

// DeadLetter is a message that failed for good, with the reason and everything needed to send it
// again. Payload is the message as it was.
type DeadLetter struct {
	ID         string              `json:"id"` // "<stream>.<sequence>": where it was
	Stream     string              `json:"stream"`
	Subject    string              `json:"subject"`
	Consumer   string              `json:"consumer,omitzero"`
	Account    AccountID           `json:"account,omitzero"`
	Reason     string              `json:"reason"`
	Code       Code                `json:"code"`
	Deliveries uint64              `json:"deliveries"`
	First      time.Time           `json:"first"` // when it was published
	Time       time.Time           `json:"time"`  // when it failed for good
	Headers    map[string][]string `json:"headers,omitzero"`
	Payload    []byte              `json:"payload"` // base64 in JSON
	// Size is how many bytes the payload has, where it is left out: in lists.
	Size int `json:"size,omitzero"`
}

// WithoutPayload leaves out the payload, and says how large it is.
func (d DeadLetter) WithoutPayload() DeadLetter {
	if d.Payload != nil {
		d.Size, d.Payload = len(d.Payload), nil
	}
	return d
}

// EventID is the place on the log where the message was.
func (d DeadLetter) EventID() string { return d.ID }
