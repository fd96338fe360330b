package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// CallPrefix begins the ids of calls that came in by the protocol, so that async_status can distinguish them from jobs.
const CallPrefix = "mcp_"

// The marks of a tool use in a request's _meta. The second is sent by one client without a standard for it, which may end with any release
// of that client: it is taken as a mark and never needed.
const (
	MetaIdempotencyKey = "sandjet/idempotencyKey"
	metaToolUse        = "claudecode/toolUseId"
)

// MaxKey is the most bytes of a mark.
const MaxKey = 256

// keyOf returns the mark of a tool use, prefixed with the mark's name; empty if there is none. Code: invalid.
func keyOf(meta map[string]any) (string, error) {
	for _, name := range []string{MetaIdempotencyKey, metaToolUse} {
		v, there := meta[name]
		if !there {
			continue
		}
		s, ok := v.(string)
		switch {
		case ok && s != "" && len(s) <= MaxKey:
			return name + "=" + s, nil
		case name == MetaIdempotencyKey:
			return "", schemas.Invalidf("_meta."+name, "must be a text of 1 to %d bytes", MaxKey)
		}
	}
	return "", nil
}

// CallIDOf returns the id of the call for a marked tool use: it is the same for the same account, agent, workspace, conversation and mark.
func CallIDOf(s Scope, key string) schemas.CallID {
	h := sha256.New()
	for _, part := range []string{string(s.Account), string(s.Agent), s.Workspace, string(s.Conversation), key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails
	}
	const bytes = 16
	return schemas.CallID(CallPrefix + hex.EncodeToString(h.Sum(nil)[:bytes]))
}

// newCallID returns a random id, for a call that cannot be requested again.
func newCallID() schemas.CallID { return schemas.CallID(schemas.NewID(CallPrefix)) }

// isCall reports whether a status id names a call rather than a job.
func isCall(id string) bool { return strings.HasPrefix(id, CallPrefix) }
