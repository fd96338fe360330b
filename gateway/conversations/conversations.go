// Package conversations serves conversations over HTTP: their events, events that clients append, and messages to agents.
package conversations

import (
	"context"
	"reflect"

	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Agents reads agents.
type Agents interface {
	// ToolVisibility returns which tools a model may see for an agent. Code: not_found.
	ToolVisibility(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.ToolVisibility, error)
}

// Options are the settings of [Conversations].
type Options struct {
	Bus  *streams.Bus
	Live *live.Server
	// Agents may be nil: turns are answered unsupported.
	Agents Agents
	// Turns reports whether turns of an agent are carried out. Nil: none are. Codes: not_found, unsupported (its turns are a harness's).
	Turns func(ctx context.Context, a schemas.AccountID, id schemas.AgentID) error
	// Endpoints lists the webhook endpoints of an account. Nil: it has none.
	Endpoints func(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
	// Waits lets requests wait for what they ask for.
	Waits web.Waits
}

// Conversations has the HTTP handlers of conversations. It is safe for concurrent use.
type Conversations struct{ o Options }

// New returns the handlers.
func New(o Options) *Conversations { return &Conversations{o} }

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"Page": reflect.TypeFor[Page](), "PageEvent": reflect.TypeFor[PageEvent](),
		"TurnRequest": reflect.TypeFor[turnRequest](), "TurnAnswer": reflect.TypeFor[TurnAnswer](),
		"TurnStopRequest": reflect.TypeFor[turnStopRequest](), "Appended": reflect.TypeFor[Appended](),
	}
}
