package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Where the front door listens: with ".<account>" for each account, and bare for the default one.
const (
	SubjectRPC       = streams.RPCSubject   // for calls
	SubjectApprovals = streams.RPCApprovals // for questions to people, and their answers
)

// FrontDoor answers requests of NATS clients at once: {id, conversation} once the call is safe on
// the log, {approvals, more} or {approval} to a [schemas.ApprovalOp], or {error}. It is a NATS micro
// service, so `nats micro info sandjet` finds it.
//
// Who may ask for an account is decided by the server's permissions on the subject.
type FrontDoor struct {
	Bus     *streams.Bus
	Records Records
	Log     *slog.Logger // nil: silent
	Version string       // of the service's description; what is no semantic version becomes 0.0.0
	// DefaultAccount is meant by requests on the bare subject. Empty: those are refused.
	DefaultAccount schemas.AccountID
	// Shares bound what one account may ask.
	Shares streams.Shares
	// Serving knows which providers are served: calls of others are refused. Nil: all are taken.
	Serving admission.Serving
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// Run answers until ctx ends, then returns nil. Several front doors share the work.
func (f FrontDoor) Run(ctx context.Context) error {
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	if !semantic.MatchString(f.Version) {
		f.Version = "0.0.0"
	}
	o := streams.ServiceOptions{
		Name: "sandjet", Version: f.Version, Description: "Admits tool calls, lists and decides approvals: answers {id, conversation}, {approvals}, {approval} or {error}.",
		Shares: f.Shares, Refused: refused,
		Subjects: []string{SubjectRPC, SubjectRPC + ".*", SubjectApprovals, SubjectApprovals + ".*"},
	}
	return f.Bus.Serve(ctx, o, f.serve)
}

// refused words the answer to a request that the service did not take.
func refused(err error) []byte {
	body, _ := json.Marshal(Answer{Error: schemas.Public(err)}) //nolint:errchkjson // a type of ours that always encodes
	return body
}

// serve answers one request. Failures are answers too: the service itself does not fail by them.
func (f FrontDoor) serve(ctx context.Context, r streams.Request) ([]byte, error) {
	account, subject := r.Account, SubjectRPC
	if strings.HasPrefix(r.Subject, SubjectApprovals) {
		subject = SubjectApprovals
	}
	if r.Subject == subject {
		account = f.DefaultAccount
	}
	var answer any
	err := checkAccount(account, subject)
	switch {
	case err != nil:
	case subject == SubjectApprovals:
		answer, err = f.approvals(ctx, account, r.Data)
	default:
		var got admission.Accepted
		got, err = f.admit(ctx, account, r.Data)
		answer = answerOf(got)
	}
	if err != nil {
		public := schemas.Public(err)
		if answer = (Answer{Error: public}); public.Code == schemas.Internal {
			f.Log.Warn("a request failed", "subject", r.Subject, "error", err)
		}
	}
	return json.Marshal(answer)
}

func checkAccount(a schemas.AccountID, subject string) error {
	if a == "" {
		return schemas.Errorf(schemas.Denied, "", "no account: ask on %s.<account>", subject)
	}
	return a.Validate()
}

func (f FrontDoor) admit(ctx context.Context, a schemas.AccountID, body []byte) (admission.Accepted, error) {
	req, err := schemas.DecodeRequest(body)
	if err != nil {
		return admission.Accepted{}, err
	}
	admitter := admission.Admitter{Bus: f.Bus, Records: f.Records, Kind: admission.NATS, Log: f.Log, Serving: f.Serving}
	return admitter.Admit(ctx, a, req)
}
