package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"

	"github.com/sandjet/sandjet/gateway/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// SubjectRPC is where the front door listens: with ".<account>" for each account, and bare for the
// default one.
const SubjectRPC = "sandjet.rpc.call"

// FrontDoor answers requests of NATS clients at once: {id, conversation} once the call is safe on
// the log, or {error}. It is a NATS micro service, so `nats micro info sandjet` finds it.
//
// Who may ask for an account is decided by the server's permissions on the subject.
type FrontDoor struct {
	Bus     *streams.Bus
	Records Records
	Log     *slog.Logger // nil: silent
	Version string       // of the service's description; what is no semantic version becomes 0.0.0
	// DefaultAccount is meant by requests on the bare subject. Empty: those are refused.
	DefaultAccount schemas.AccountID
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
		Name: "sandjet", Version: f.Version, Description: "Admits tool calls: answers {id, conversation} or {error}.",
		Subjects: []string{SubjectRPC, SubjectRPC + ".*"},
	}
	return f.Bus.Serve(ctx, o, f.serve) //nolint:wrapcheck // it is coded already
}

// serve answers one request. Failures are answers too: the service itself does not fail by them.
func (f FrontDoor) serve(ctx context.Context, r streams.Request) ([]byte, error) {
	got, err := f.admit(ctx, r)
	a := answerOf(got)
	if err != nil {
		a = Answer{Error: schemas.Public(err)}
		if a.Error.Code == schemas.Internal {
			f.Log.Warn("a request failed", "subject", r.Subject, "error", err)
		}
	}
	return json.Marshal(a) //nolint:wrapcheck // a type of ours that always encodes
}

func (f FrontDoor) admit(ctx context.Context, r streams.Request) (admission.Accepted, error) {
	account := f.DefaultAccount
	if rest, ok := strings.CutPrefix(r.Subject, SubjectRPC+"."); ok {
		account = schemas.AccountID(rest)
	}
	if account == "" {
		return admission.Accepted{}, schemas.Errorf(schemas.Denied, "", "no account: ask on %s.<account>", SubjectRPC)
	}
	if err := account.Validate(); err != nil {
		return admission.Accepted{}, err //nolint:wrapcheck // it is coded already
	}
	req, err := schemas.DecodeRequest(r.Data)
	if err != nil {
		return admission.Accepted{}, err //nolint:wrapcheck // it is coded already
	}
	door := admission.Door{Bus: f.Bus, Records: f.Records, Kind: admission.NATS, Log: f.Log}
	return door.Admit(ctx, account, req) //nolint:wrapcheck // it is coded already
}
