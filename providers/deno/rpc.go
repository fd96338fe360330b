package deno

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// event is a message of a sandbox: an answer to a request, or a part of a stream.
type event struct {
	answers bool
	id      int64 // of the request, or of the stream
	result  json.RawMessage
	refused *rpcError // in place of a result

	part string // of a stream: start, enqueue, end, error, cancel; empty: no part of a stream, or of one that is not for us
	data []byte
}

// rpcError is an error in an answer: of the protocol, or of the operation in the sandbox.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Name    string `json:"-"` // of an error in the sandbox, such as NotFound; empty: it is the protocol's
}

func (e *rpcError) Error() string {
	if e.Name != "" {
		return e.Name + ": " + e.Message
	}
	return fmt.Sprintf("%d: %s", e.Code, e.Message)
}

var errNoRPC = errors.New("what the sandbox said is not JSON-RPC")

// streamPrefix begins the methods of parts of streams.
const streamPrefix = "$sandbox.stream."

// decode parses a message. Valid messages that do not concern us are empty events: requests, answers with a foreign id, and notifications
// other than those of streams.
func decode(text []byte) (e event, err error) {
	var m struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  *string         `json:"method"`
		Params  json.RawMessage `json:"params"`
		Result  json.RawMessage `json:"result"`
		Error   *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Version != "2.0" {
		return e, errNoRPC
	}
	switch {
	case m.Method != nil && m.ID == nil:
		return decodePart(*m.Method, m.Params)
	case m.Method != nil:
		return e, nil
	case m.ID == nil || (m.Result == nil) == (m.Error == nil):
		return e, errNoRPC
	}
	if err := json.Unmarshal(m.ID, &e.id); err != nil {
		return event{}, nil //nolint:nilerr // ours are whole numbers
	}
	e.answers, e.result, e.refused = true, m.Result, m.Error
	return e, nil
}

// decodePart parses a notification.
func decodePart(method string, params json.RawMessage) (e event, err error) {
	part, ok := strings.CutPrefix(method, streamPrefix)
	if !ok {
		return e, nil
	}
	switch part {
	case "start", "enqueue", "end", "error", "cancel":
	default:
		return e, nil
	}
	var p struct {
		Stream *int64 `json:"streamId"`
		Data   []byte `json:"data"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Stream == nil || *p.Stream < 0 {
		return e, errNoRPC
	}
	return event{part: part, id: *p.Stream, data: p.Data}, nil
}

// resultOf parses the result of a request, a value or an error in the sandbox.
func resultOf(text json.RawMessage, into any) error {
	var r struct {
		OK    json.RawMessage `json:"ok"`
		Error *struct {
			Constructor string `json:"constructorName"`
			Message     string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &r); err != nil || r.OK == nil && r.Error == nil {
		return errNoRPC
	}
	if r.Error != nil {
		name := r.Error.Constructor
		if name == "" {
			name = "Error"
		}
		return &rpcError{Message: r.Error.Message, Name: name}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(r.OK, into); err != nil {
		return errNoRPC
	}
	return nil
}

// encode returns the JSON of a request.
func encode(id int64, method string, params any) ([]byte, error) {
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}
