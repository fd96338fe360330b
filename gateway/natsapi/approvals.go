package natsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
)

// ApprovalAnswer is what a NATS client gets about one approval.
type ApprovalAnswer struct {
	Approval json.RawMessage `json:"approval"` // a [schemas.Approval]
}

// ApprovalsAnswer is what a NATS client gets about many, the newest first.
type ApprovalsAnswer struct {
	Approvals []json.RawMessage `json:"approvals"` // each a [schemas.Approval]
	// More says that there are older ones: beyond the limit, or that did not fit into the answer.
	More bool `json:"more"`
}

// approvals does what is asked about approvals of an account, by the same rules as over HTTP. What does not
// fit into one message is left out: the oldest of a list, and the input of a single one.
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

// fitApprovals ends a list where its answer would be larger than room bytes. The first is always in it.
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

// fitApproval is the approval as JSON, without its input where it would be larger than room bytes; its InputSize still says how large it
// is.
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
