package chatfake

import (
	"encoding/json"
	"net/http"
)

// Double is a double of a chat service for manual use, with the values for a channel's record.
type Double struct {
	// Kind is the kind of the channel, such as telegram.
	Kind   string
	Server *Server
	// Secrets are a credential that the double accepts. Place and User are a chat and a person in it. Route is the route of messages to
	// that chat.
	Secrets     map[string]string
	Place, User string
	Route       json.RawMessage
	// Says returns the request that the service posts when a person writes a text, signed with a channel's credential. Each call returns a
	// new message. It does not use the double's Server, and returns an error if only the real service can sign for that channel.
	Says func(secrets map[string]string, place, user, text string) (http.Header, []byte, error)
}
