package schemas

// The operations on approvals over plain NATS; [ApprovalOp] says which fields go with each.
const (
	ApprovalsList   = "list"    // state, conversation, limit: all optional
	ApprovalShow    = "show"    // approval
	ApprovalApprove = "approve" // approval, approved; optional reason, remember. As on a WebSocket
)

// ApprovalOp is a question about approvals as a NATS client asks it. A field that does not go with the
// operation is an error, so that none is silently skipped.
type ApprovalOp struct {
	Op           string         `json:"op" jsonschema:"enum=list,enum=show,enum=approve"`
	State        ApprovalState  `json:"state,omitzero"`
	Conversation ConversationID `json:"conversation,omitzero"`
	Limit        int            `json:"limit,omitzero"` // 1 to 100; 0: 50
	Approval     ApprovalID     `json:"approval,omitzero"`
	Approved     *bool          `json:"approved,omitzero"`
	Reason       string         `json:"reason,omitzero"`
	Remember     Remember       `json:"remember,omitzero" jsonschema:"enum=conversation"`
}

// How many approvals one answer lists.
const (
	DefaultApprovalsPage = 50
	MaxApprovalsPage     = 100
)

// Answer is what approve says.
func (o ApprovalOp) Answer() ApprovalAnswer {
	return ApprovalAnswer{Approved: o.Approved, Reason: o.Reason, Remember: o.Remember}
}

// DecodeApprovalOp reads an operation strictly. Errors are of code invalid and name the field.
func DecodeApprovalOp(b []byte) (ApprovalOp, error) {
	var o ApprovalOp
	if err := DecodeStrict(b, MaxRequest, &o); err != nil {
		return ApprovalOp{}, err
	}
	return o, o.Validate()
}

// Validate reports the first thing that is wrong with an operation.
func (o ApprovalOp) Validate() error {
	const ops = ApprovalsList + ", " + ApprovalShow + " or " + ApprovalApprove
	list, show, approve := o.Op == ApprovalsList, o.Op == ApprovalShow, o.Op == ApprovalApprove
	switch {
	case o.Op == "":
		return Invalidf("op", "is missing: use %s", ops)
	case !list && !show && !approve:
		return Invalidf("op", "%q is unknown: use %s", Quotable(o.Op), ops)
	}
	for _, f := range []struct {
		name        string
		given, goes bool
	}{
		{"state", o.State != "", list},
		{"conversation", o.Conversation != "", list},
		{"limit", o.Limit != 0, list},
		{"approval", o.Approval != "", show || approve},
		{"approved", o.Approved != nil, approve},
		{"reason", o.Reason != "", approve},
		{"remember", o.Remember != "", approve},
	} {
		if f.given && !f.goes {
			return Invalidf(f.name, "does not belong to %s", o.Op)
		}
	}
	switch {
	case list:
		return o.validateList()
	case o.Approval == "":
		return Invalidf("approval", "is missing: %s needs the id of one, as %s reports it", o.Op, ApprovalsList)
	case approve:
		return o.Answer().Validate()
	}
	return nil
}

func (o ApprovalOp) validateList() error {
	if o.State != "" {
		if _, err := ParseApprovalState(string(o.State)); err != nil {
			return err
		}
	}
	if o.Conversation != "" {
		if err := o.Conversation.Validate(); err != nil {
			return err
		}
	}
	if o.Limit < 0 || o.Limit > MaxApprovalsPage {
		return Invalidf("limit", "%d is out of range: 1 to %d", o.Limit, MaxApprovalsPage)
	}
	return nil
}
