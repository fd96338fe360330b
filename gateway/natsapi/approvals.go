package natsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
)

// ApprovalAnswer is the reply to a NATS client with one approval.
type ApprovalAnswer struct {
	Approval json.RawMessage `json:"approval"` // a [schemas.Approval]
}

// ApprovalsAnswer is the reply to a NATS client with a list of approvals, the newest first.
type ApprovalsAnswer struct {
	Approvals []json.RawMessage `json:"approvals"` // each a [schemas.Approval]
	// More reports that there are older ones, beyond the limit or the size of the reply.
	More bool `json:"more"`
}

// approvals executes an operation on approvals of an account, by the same rules as over HTTP. Parts that do not fit into one message are
// left out: the oldest approvals of a list, and the input of a single one.
func (s Service) approvals(ctx context.Context, a schemas.AccountID, body []byte) (any, error) {
	op, err := schemas.DecodeApprovalOp(body)
	if err != nil {
		return nil, err
	}
	approvals, room := admission.Approvals{Bus: s.Bus, Log: s.Log}, s.Bus.MaxAnswer()
	if op.Op == schemas.ApprovalsList {
		list, err := approvals.List(ctx, a, admission.Filter{State: op.State, Conversation: op.Conversation},
			cmp.Or(op.Limit, schemas.DefaultApprovalsPage))
		if err != nil {
			return nil, err
		}
		return fitApprovals(list, room)
	}
	var one schemas.Approval
	if op.Op == schemas.ApprovalShow {
		one, err = approvals.Whole(ctx, a, op.Approval)
	} else {
		one, err = approvals.Decide(ctx, a, op.Approval, admission.DecisionOf(op.Answer(), admission.NATS))
	}
	if err != nil {
		return nil, err
	}
	b, err := fitApproval(one, room)
	return ApprovalAnswer{b}, err
}

// fitApprovals returns as many approvals of a list as fit into room bytes, but at least one.
func fitApprovals(list admission.ApprovalList, room int) (ApprovalsAnswer, error) {
	answer, left := ApprovalsAnswer{Approvals: []json.RawMessage{}, More: list.More}, room
	for _, a := range list.Approvals {
		b, err := fitApproval(a, room)
		if err != nil {
			return answer, err
		}
		if left -= len(b) + len(","); left < 0 && len(answer.Approvals) > 0 {
			answer.More = true
			break
		}
		answer.Approvals = append(answer.Approvals, b)
	}
	return answer, nil
}

// fitApproval returns the approval as JSON, without its input if it would be larger than room bytes; InputSize still has the size of the
// input.
func fitApproval(a schemas.Approval, room int) (json.RawMessage, error) {
	b, err := schemas.EncodeJSON(a)
	if err == nil && len(b) > room {
		a.Call.Input = nil
		b, err = schemas.EncodeJSON(a)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the approval %s: %w", a.ID, err)
	}
	return b, nil
}
