// Package models asks language models. Each package below it speaks the protocol of one kind of server; what they share is here.
//
// A [Client] sends one request and does not repeat it: when to try again, and for how long, is decided by its caller, who can wait in a way
// that outlives the process. No protocol documents a key that makes a request idempotent, so a request that is repeated may be paid twice.
package models

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Client sends requests to the models of one server. It is safe for concurrent use.
type Client interface {
	// Stream sends the request and yields deltas: any number with text, and finally one with the Answer. After an error, which is an
	// [*Error] or ctx's, nothing follows. It blocks until the answer is complete, ctx is done, or the loop is left, which closes the
	// connection.
	Stream(ctx context.Context, r Request) iter.Seq2[Delta, error]
}

// Options are the settings for the server of a model.
type Options struct {
	// URL is the address below which the wire's paths are; "": that of the service whose wire it is. It has no user and no query.
	URL string
	// Key is the API key; "": the server requires none. It never appears in an error.
	Key string
	// Transport sends the requests; nil: a transport with Timeouts.Connect. Redirects are never followed, since the key would be sent with
	// them.
	Transport http.RoundTripper
	Timeouts  Timeouts
	// Extra are additional fields of each request, such as temperature, in the wire's names. The fields of Request take precedence.
	Extra map[string]json.RawMessage
	// LegacyMaxTokens is for servers of the OpenAI wire that know only max_tokens, not max_completion_tokens.
	LegacyMaxTokens bool
}

// Timeouts are the time limits of a request. Zero means the default of each; if one is exceeded, the error is of the class Disconnected.
type Timeouts struct {
	Connect   time.Duration // for the connection, and again for TLS
	FirstByte time.Duration // from the request to the first byte of an answer
	Chunk     time.Duration // from one piece of the answer to the next
	Total     time.Duration // for all of it
}

// The defaults of Timeouts.
const (
	DefaultConnect   = 10 * time.Second
	DefaultFirstByte = time.Minute
	DefaultChunk     = time.Minute
	DefaultTotal     = 15 * time.Minute
)

// Request is a request to a model. Equal requests are encoded to equal bytes, so that a server's prompt cache finds their common
// beginnings.
type Request struct {
	// Model is the name that the server has for it.
	Model  string
	System string
	// Tools are offered in this order.
	Tools []Tool
	// Messages alternate between user and assistant and end with one of the user, or after StopPause with the answer that paused. Each
	// use of a tool has its result in the next message.
	Messages []schemas.ModelMessage
	// MaxTokens limits the answer; at least 1.
	MaxTokens int64
	// Cache marks the end of system and tools, and of the last message, for servers that cache only what is marked.
	Cache bool
}

// Tool is the definition of a tool for a model.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // a JSON Schema of type object
}

// Delta is a piece of an answer that is being received. One of its fields is set.
type Delta struct {
	Text     string
	Thinking string
	Answer   *Answer
}

// Answer is the complete answer of a model.
type Answer struct {
	// Blocks are in the order of the server, each with Raw, Wire and Model, which is the name in the request.
	Blocks []schemas.Block
	Stop   Stop
	Usage  schemas.TokenUsage
	// Model is the name that the server answers with.
	Model string
}

// Stop is the reason why an answer ends.
type Stop string

// The reasons.
const (
	StopEnd       Stop = "end"        // the model has finished
	StopToolUse   Stop = "tool_use"   // it waits for results
	StopMaxTokens Stop = "max_tokens" // the limit of the request
	StopPause     Stop = "pause"      // the server wants the answer to be continued by another request
	StopRefusal   Stop = "refusal"    // the model, or a filter, refuses
	StopContext   Stop = "context"    // the model's context is full
)

// Class says how the caller should react to an error.
type Class string

// The classes.
const (
	Overloaded   Class = "overloaded"   // 408, 409, 5xx, 529: try again
	RateLimited  Class = "rate_limited" // 429: try again after Error.After
	SpendLimit   Class = "spend_limit"  // a limit of money: a person must act
	TooLong      Class = "too_long"     // more than the model's context: compact, then ask again
	BadRequest   Class = "bad_request"  // the request is wrong: asking it again does not help
	BadKey       Class = "bad_key"      // the key is wrong or may not do this
	Disconnected Class = "disconnected" // the connection or the stream broke: try again
)

// Error is the error of a request that has no complete answer.
type Error struct {
	Class Class
	// After is how long the server wants to be left alone; 0: it does not say.
	After time.Duration
	// Begun reports that something of an answer had come: it was paid for.
	Begun bool
	// Usage is what the server had counted until the error.
	Usage schemas.TokenUsage
	// Status is that of the HTTP response; 0: there was none.
	Status int
	// Message is the server's message, without the content of the request.
	Message string
}

// Error implements [error].
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("model: %s: %s", e.Class, e.Message)
	}
	return fmt.Sprintf("model: %s: %s (HTTP %d)", e.Class, e.Message, e.Status)
}
