package schemas

import "time"

// Limits of a credential for NATS.
const (
	DefaultNATSTTL = time.Hour
	MinNATSTTL     = time.Minute
	MaxNATSTTL     = 24 * time.Hour
)

// NATSCredential is what an account's NATS clients need to connect until it expires, and what they may do
// then. It ends earlier with the account's key that was in use when it was issued.
type NATSCredential struct {
	User     string    `json:"user"`
	Password string    `json:"password"`
	URL      string    `json:"url,omitzero"` // of the server, where that is known
	Expires  time.Time `json:"expires"`
	// Publish and Subscribe are the subjects that it allows.
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
	// InboxPrefix is the prefix that the client's inboxes must have, unless the server is embedded.
	InboxPrefix string `json:"inboxPrefix"`
}
