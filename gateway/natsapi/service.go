package natsapi

import (
	"context"
	"log/slog"
	"regexp"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/subjects"
)

// The subjects of the service: with ".<account>" for each account, and without for the default account.
const (
	SubjectRPC       = subjects.RPCCall      // for calls
	SubjectApprovals = subjects.RPCApprovals // for approvals
)

// Service answers requests of NATS clients: with {id, conversation} once the call is stored on the log, with {approvals, more} or
// {approval} to a [schemas.ApprovalOp], or with {error}. It is a NATS micro service, so `nats micro info sandjet` shows it.
//
// The NATS server's permissions on the subject decide which clients may use an account.
type Service struct {
	Bus     *streams.Bus
	Records admission.Records
	Log     *slog.Logger // nil: silent
	Version string       // of the service; "0.0.0" if it is not a semantic version
	// DefaultAccount is the account of requests on the subjects without one. Empty: those are refused.
	DefaultAccount schemas.AccountID
	// Shares limits the requests of one account.
	Shares fair.Shares
	// Serving reports which providers are served; calls for others are refused. Nil: all are accepted.
	Serving admission.Serving
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// Run serves requests until ctx is done, then returns nil. Several services share the work.
func (s Service) Run(ctx context.Context) error {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if !semantic.MatchString(s.Version) {
		s.Version = "0.0.0"
	}
	o := streams.ServiceOptions{
		Name: "sandjet", Version: s.Version,
		Description: "Admits tool calls, lists and decides approvals: answers {id, conversation}, {approvals}, {approval} or {error}.",
		Shares:      s.Shares, Refused: refused,
		Subjects: []string{SubjectRPC, SubjectRPC + ".*", SubjectApprovals, SubjectApprovals + ".*"},
	}
	return s.Bus.Serve(ctx, o, s.serve)
}

// refused returns the reply to a request that was not accepted.
func refused(err error) []byte {
	body, _ := schemas.EncodeJSON(Answer{Error: schemas.Public(err)}) // a type of ours that always encodes
	return body
}

// serve answers one request. Failures are replies too; an error is returned only if the reply cannot be encoded.
func (s Service) serve(ctx context.Context, r streams.Request) ([]byte, error) {
	account, subject := r.Account, SubjectRPC
	if strings.HasPrefix(r.Subject, SubjectApprovals) {
		subject = SubjectApprovals
	}
	if r.Subject == subject {
		account = s.DefaultAccount
	}
	var answer any
	err := checkAccount(account, subject)
	switch {
	case err != nil:
	case subject == SubjectApprovals:
		answer, err = s.approvals(ctx, account, r.Data)
	default:
		var got admission.Accepted
		got, err = s.admit(ctx, account, r.Data)
		answer = answerOf(got)
	}
	if err != nil {
		public := schemas.Public(err)
		if answer = (Answer{Error: public}); public.Code == schemas.Internal {
			s.Log.Warn("request failed", "subject", r.Subject, "error", err)
		}
	}
	return schemas.EncodeJSON(answer)
}

func checkAccount(a schemas.AccountID, subject string) error {
	if a == "" {
		return schemas.Errorf(schemas.Denied, "no account: ask on %s.<account>", subject)
	}
	return a.Validate()
}

func (s Service) admit(ctx context.Context, a schemas.AccountID, body []byte) (admission.Accepted, error) {
	req, err := schemas.DecodeRequest(body)
	if err != nil {
		return admission.Accepted{}, err
	}
	admitter := admission.Admitter{Bus: s.Bus, Records: s.Records, Kind: admission.NATS, Log: s.Log, Serving: s.Serving}
	return admitter.Admit(ctx, a, req)
}
