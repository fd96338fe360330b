package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// The answers that the form of an approval offers.
const (
	allowOnce         = "Allow once"
	allowConversation = "Allow for this conversation"
	deny              = "Deny"
)

const (
	questionField = "decision"
	questionFor   = 10 * time.Minute // that an answer counts
	shownInput    = 2 << 10          // bytes of an input that a form shows
	purpose       = "MCP question"
	maxState      = 4 << 10 // bytes of the state that a client sends back
)

// carried is the state that a client returns with the answer to a question.
type carried struct {
	Account  schemas.AccountID  `json:"a"`
	Call     schemas.CallID     `json:"c"`
	Approval schemas.ApprovalID `json:"q"`
	Digest   string             `json:"d"` // of the call's content
	Expires  int64              `json:"e"` // seconds since 1970
}

// ask returns the answer to a call that waits for an approval: a form for the client's user, if the client supports forms, or a text that
// says how to approve.
func (c *session) ask(ctx context.Context, req *sdk.CallToolRequest, st State, r schemas.Request) (*sdk.CallToolResult, error) {
	if !canAsk(req) {
		return waiting(st), nil
	}
	sealed, err := c.seal(carried{c.scope.Account, st.ID, st.Approval, digestOf(r), c.Now().Add(questionFor).Unix()})
	if err != nil {
		return nil, protocolError(err)
	}
	useOf(ctx).call = st.ID
	return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{string(st.Approval): c.question(r.Tool, r.Input)}, RequestState: sealed}, nil
}

// question returns the form of an approval. It offers to remember the answer for the conversation only if the client named one, since
// otherwise the conversation has only this call.
func (c *session) question(tool schemas.Tool, input json.RawMessage) *sdk.ElicitParams {
	choices := []any{allowOnce, deny}
	if c.scope.Conversation != "" {
		choices = []any{allowOnce, allowConversation, deny}
	}
	shown := string(input)
	if len(shown) > shownInput {
		shown = strings.ToValidUTF8(shown[:shownInput], "") + "…"
	}
	return &sdk.ElicitParams{
		Mode: "form", Message: fmt.Sprintf("Sandjet: may the agent run %s in its sandbox?\n%s", tool, shown),
		RequestedSchema: map[string]any{
			"type": "object", "required": []any{questionField},
			"properties": map[string]any{questionField: map[string]any{"type": "string", "title": "Your decision", "enum": choices}},
		},
	}
}

// resume continues a call after the client has asked its user.
func (c *session) resume(ctx context.Context, req *sdk.CallToolRequest, r schemas.Request) (*sdk.CallToolResult, error) {
	was, err := c.open(req.Params.RequestState)
	if err == nil && (was.Account != c.scope.Account || was.Digest != digestOf(r)) {
		err = schemas.Invalidf("requestState", "belongs to another request")
	}
	if err != nil {
		return nil, protocolError(err)
	}
	useOf(ctx).call = was.Call
	if err := c.decide(ctx, was.Approval, req.Params.InputResponses); err != nil {
		return answerOfError(err)
	}
	st, err := c.scope.Caller.Wait(ctx, was.Call, 0)
	if err != nil {
		return answerOfError(err)
	}
	if st.Status == StatusAwaiting { // dismissed without an answer
		return waiting(st), nil
	}
	return c.await(ctx, req, st, r)
}

// decide decides an approval by the user's answer. Without an answer it stays open. If it was decided already, it stays so, and the call's
// state shows how.
func (c *session) decide(ctx context.Context, id schemas.ApprovalID, said sdk.InputResponseMap) error {
	answer, ok := answerTo(said[string(id)])
	if !ok {
		return nil
	}
	if err := c.scope.Caller.Decide(ctx, id, answer); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	return nil
}

// answerTo interprets the user's answer; ok is false if there is none. Only an explicit yes is a yes.
func answerTo(said sdk.InputResponse) (a schemas.ApprovalAnswer, ok bool) {
	e, is := said.(*sdk.ElicitResult)
	if !is || e == nil {
		return a, false
	}
	switch e.Action {
	case "accept":
		word, _ := e.Content[questionField].(string)
		switch word {
		case allowOnce:
			return schemas.ApprovalAnswer{Approved: new(true)}, true
		case allowConversation:
			return schemas.ApprovalAnswer{Approved: new(true), Remember: schemas.RememberConversation}, true
		case deny:
			return schemas.ApprovalAnswer{Approved: new(false)}, true
		}
	case "decline":
		return schemas.ApprovalAnswer{Approved: new(false), Reason: "declined"}, true
	}
	return a, false
}

// canAsk reports whether the client can show forms to its user.
func canAsk(req interface {
	ClientCapabilities() *sdk.ClientCapabilities
}) bool {
	has := req.ClientCapabilities()
	return has != nil && has.Elicitation != nil && (has.Elicitation.Form != nil || has.Elicitation.URL == nil)
}

// digestOf returns a digest of a call's content, without its id.
func digestOf(r schemas.Request) string {
	r.Conversation = "" // one without a name has that of its id
	return r.Digest()
}

// seal encodes and signs the state for a client.
func (c *session) seal(was carried) (string, error) {
	body, err := json.Marshal(was)
	if err != nil {
		return "", fmt.Errorf("encode a question: %w", err)
	}
	key, mac, err := c.Keys.Sign(purpose, body)
	if err != nil {
		return "", err
	}
	text := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	return text(body) + "." + text([]byte(key)) + "." + text(mac), nil
}

// open verifies and decodes the state that a client has returned. Code: invalid.
func (c *session) open(sealed string) (was carried, err error) {
	bad := schemas.Invalidf("requestState", "is not one that this server gave: send the call again without it")
	parts := strings.Split(sealed, ".")
	if len(sealed) > maxState || len(parts) != 3 {
		return was, bad
	}
	var raw [3][]byte
	for i, p := range parts {
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(p); err != nil {
			return was, bad
		}
	}
	if !c.Keys.Verify(string(raw[1]), purpose, raw[0], raw[2]) {
		return was, bad
	}
	if err := json.Unmarshal(raw[0], &was); err != nil {
		return was, bad
	}
	if c.Now().Unix() >= was.Expires {
		return was, schemas.Invalidf("requestState", "is too old: send the call again without it")
	}
	return was, nil
}

// ownKeys implements [Keys] with a secret of this process.
type ownKeys struct{ secret []byte }

func newOwnKeys(secret string) ownKeys { return ownKeys{[]byte(secret)} }

// Sign implements [Keys].
func (k ownKeys) Sign(purpose string, message []byte) (string, []byte, error) {
	return "own", k.mac(purpose, message), nil
}

// Verify implements [Keys].
func (k ownKeys) Verify(key, purpose string, message, signature []byte) bool {
	return key == "own" && hmac.Equal(signature, k.mac(purpose, message))
}

func (k ownKeys) mac(purpose string, message []byte) []byte {
	h := hmac.New(sha256.New, k.secret)
	_, _ = fmt.Fprintf(h, "%d:%s", len(purpose), purpose) // a hash never fails
	_, _ = h.Write(message)
	return h.Sum(nil)
}
