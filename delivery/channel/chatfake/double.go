package chatfake

import (
	"encoding/json"
	"net/http"
)

// Double is a double of a chat service for manual use, with the values for a channel's record.
type Double struct {
	// Kind is the channel's: telegram.
	Kind   string
	Server *Server
	// Secrets are a credential that it takes, Place and User a chat and a person in it, and Route is where a message to it goes.
	Secrets     map[string]string
	Place, User string
	Route       json.RawMessage
	// Says is the request of the service when a person has written a text, signed by the credential of a channel. Each one is of another
	// message. It may be used where the double itself is not, and fails where only the service can sign.
	Says func(secrets map[string]string, place, user, text string) (http.Header, []byte, error)
}
