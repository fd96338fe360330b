package live

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Subprotocol is the WebSocket subprotocol that the gateway selects when a client offers it.
const Subprotocol = "sandjet.v1"

// keyProtocol is the prefix of the subprotocol that contains a browser's key.
const keyProtocol = "sandjet.key."

// Limits of one WebSocket.
const (
	// MaxFrame is the largest message of a client, in bytes.
	MaxFrame = 64 << 10
	// MaxAttached is how many conversations one socket may follow at a time.
	MaxAttached = 256
)

// CloseCode is the code of a WebSocket's close frame. After a code below 4500 the client may reconnect and continue after its cursor;
// after 4500 and above, a reconnect would fail in the same way.
type CloseCode int

// The close codes.
const (
	CloseDrain    CloseCode = 4001 // this gateway stops: reconnect after the time in bye
	CloseAuth     CloseCode = 4002 // the token has expired, or its key was revoked: get another, then reconnect
	CloseBehind   CloseCode = 4008 // a write blocked for too long: reconnect when you can read
	CloseLimit    CloseCode = 4009 // a limit was reached: reconnect with less
	CloseProtocol CloseCode = 4503 // the message is not of this protocol
)

// The operations of a client.
const (
	opAttach  = "attach"
	opDetach  = "detach"
	opSend    = "send"
	opCancel  = "cancel"
	opApprove = "approve"
	opPing    = "ping"
	opAuth    = "auth"
)

// clientOp is one message from a client. ID is the client's number for the message and is returned in the answer.
type clientOp struct {
	Op    string `json:"op"`
	ID    *int64 `json:"id"`
	Conv  string `json:"conv"`  // attach, detach
	After string `json:"after"` // attach: a cursor, -1 or now

	Compact bool `json:"compact"` // attach: finished things whole
	Batch   bool `json:"batch"`   // attach: many replayed events in one message

	Request json.RawMessage `json:"request"` // send
	Call    string          `json:"call"`    // cancel
	Reason  string          `json:"reason"`  // cancel, approve

	Approval string `json:"approval"` // approve
	Approved *bool  `json:"approved"` // approve
	Remember string `json:"remember"` // approve

	Token string `json:"token"` // auth
}

// serverOp is one message to a client.
type serverOp struct {
	Op           string          `json:"op"`
	ID           *int64          `json:"id,omitzero"`
	Conv         string          `json:"conv,omitzero"`
	Cur          string          `json:"cur,omitzero"`
	Prev         string          `json:"prev,omitzero"`
	Head         string          `json:"head,omitzero"`
	Recovered    *bool           `json:"recovered,omitzero"`
	Gap          any             `json:"gap,omitzero"`
	Replay       bool            `json:"replay,omitzero"`
	Skipped      int             `json:"skipped,omitzero"` // events left out before it
	Data         json.RawMessage `json:"data,omitzero"`
	Call         string          `json:"call,omitzero"`
	Conversation string          `json:"conversation,omitzero"`
	Status       string          `json:"status,omitzero"`
	Existing     bool            `json:"existing,omitzero"`
	Approval     string          `json:"approval,omitzero"`
	Code         CloseCode       `json:"code,omitzero"`
	RetryMS      int64           `json:"retry_ms,omitzero"`
	InMS         int64           `json:"in_ms,omitzero"` // until the token ends
	Error        *schemas.Error  `json:"error,omitzero"`
}

// decodeOp decodes a message strictly. If malformed is true, the message is not a JSON object, and the socket must be closed; any other
// error is answered, and the socket stays open. The ID is set whenever it could be read, so that the error can be matched to its message.
func decodeOp(b []byte) (op clientOp, malformed bool, err error) {
	if err := schemas.DecodeStrict(b, MaxFrame, &op); err != nil {
		var fields map[string]json.RawMessage
		if !utf8.Valid(b) || json.Unmarshal(b, &fields) != nil || fields == nil {
			return clientOp{}, true, err
		}
		var id int64
		if json.Unmarshal(fields["id"], &id) == nil {
			return clientOp{ID: &id}, false, err
		}
		return clientOp{}, false, err
	}
	return op, false, op.validate()
}

// answer returns the answer to an approval that the operation approve contains.
func (o clientOp) answer() schemas.ApprovalAnswer {
	return schemas.ApprovalAnswer{Approved: o.Approved, Reason: o.Reason, Remember: schemas.Remember(o.Remember)}
}

// validate checks that the fields that the operation needs are set, and no others. Code: invalid.
func (o clientOp) validate() error {
	given := map[string]bool{
		"conv": o.Conv != "", "after": o.After != "", "compact": o.Compact, "batch": o.Batch, "request": len(o.Request) > 0,
		"call": o.Call != "", "reason": o.Reason != "",
		"approval": o.Approval != "", "approved": o.Approved != nil, "remember": o.Remember != "", "token": o.Token != "",
	}
	const ops = "attach, detach, send, cancel, approve, auth or ping"
	must, may := []string{}, []string{}
	switch o.Op {
	case opAttach:
		must, may = []string{"conv"}, []string{"after", "compact", "batch"}
	case opDetach:
		must = []string{"conv"}
	case opSend:
		must = []string{"request"}
	case opCancel:
		must, may = []string{"call"}, []string{"reason"}
	case opApprove:
		must, may = []string{"approval", "approved"}, []string{"reason", "remember"}
	case opAuth:
		must = []string{"token"}
	case opPing:
	case "":
		return schemas.Invalidf("op", "is missing: use %s", ops)
	default:
		return schemas.Invalidf("op", "%q is unknown: use "+ops, schemas.Quotable(o.Op))
	}
	for _, f := range must {
		if !given[f] {
			return schemas.Invalidf(f, "is missing: %s needs it", o.Op)
		}
		delete(given, f)
	}
	for _, f := range may {
		delete(given, f)
	}
	for _, f := range []string{"conv", "after", "compact", "batch", "request", "call", "reason", "approval", "approved", "remember", "token"} {
		if given[f] {
			return schemas.Invalidf(f, "does not belong to %s", o.Op)
		}
	}
	switch o.Op {
	case opAttach, opDetach:
		if err := schemas.ConversationID(o.Conv).Validate(); err != nil {
			return web.Rename(err, "conv")
		}
		if _, err := schemas.ParseCursor(o.After); err != nil {
			return err
		}
	case opCancel:
		if err := schemas.CallID(o.Call).Validate(); err != nil {
			return web.Rename(err, "call")
		}
		return web.CheckReason(o.Reason)
	case opApprove:
		return o.answer().Validate()
	}
	return nil
}
