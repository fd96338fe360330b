package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/intake"
)

// RejectedConversation is where call.rejected goes when the request names no conversation that
// could be read.
const RejectedConversation schemas.ConversationID = "c_rejected"

// Publication is a request as it lies on [Intake], with all that names it: none of it changes when it is
// handed out again.
type Publication struct {
	Account   schemas.AccountID
	Subject   string
	Published time.Time // by the server's clock
	Data      []byte
	MsgID     string // what its publisher called it, as one word of its account; empty if it gave it no id
	// Redriven says that the publication failed, and was sent again by a person: Published is of that, First of the publication by its
	// publisher.
	Redriven bool
	First    time.Time
}

// publicationNote notes when a publication was first published, and what its publisher called it.
func publicationNote(first time.Time, msgID string) string {
	return strings.TrimSuffix(first.UTC().Format(time.RFC3339Nano)+" "+msgID, " ")
}

// PublicationOf returns the publication that a message of [Intake] is.
func PublicationOf(d Delivery[Raw]) Publication {
	return publicationOf(d.Account, d.Subject, d.Published, d.Headers, d.Value.Data)
}

func publicationOf(a schemas.AccountID, subject string, published time.Time, h Headers, data []byte) Publication {
	p := Publication{Account: a, Subject: subject, Published: published, First: published, Data: data, MsgID: h.Get(intake.HeaderMsgID)}
	stamp, msgID, _ := strings.Cut(h.Get(intake.HeaderPublication), " ")
	if first, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		p.Redriven, p.First, p.MsgID = true, first, msgID
	}
	return p
}

// CallID names the call of a publication that names none itself: by what the publisher called its message,
// so that publications of one message id are one call as long as the call is kept, or else by its place.
func (p Publication) CallID() schemas.CallID {
	if p.MsgID == "" {
		return schemas.CallID(schemas.CallPrefix + p.place(p.First))
	}
	h := sha256.Sum256([]byte(string(p.Account) + "\x00" + p.MsgID))
	return schemas.CallID(schemas.CallPrefix + hex.EncodeToString(h[:13]))
}

// Conversation is that of a publication that names none itself.
func (p Publication) Conversation() schemas.ConversationID {
	return schemas.ConversationID(schemas.ConversationPrefix + p.place(p.First))
}

// place names the publication by its place on the log at a time.
func (p Publication) place(at time.Time) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%d\x00", p.Subject, at.UnixNano())
	h.Write(p.Data)
	return hex.EncodeToString(h.Sum(nil)[:13])
}

// Rejected is the one event that reports its refusal, by any process: on the conversation that the request names, if one can be read. One
// that is sent again and refused again is reported again.
func (p Publication) Rejected(why *schemas.Error) schemas.Event {
	var seen struct {
		ID           schemas.CallID         `json:"id"`
		Conversation schemas.ConversationID `json:"conversation"`
	}
	if err := json.Unmarshal(p.Data, &seen); err != nil || seen.Conversation.Validate() != nil {
		seen.Conversation = RejectedConversation
	}
	if seen.ID.Validate() != nil {
		seen.ID = ""
	}
	c := schemas.Call{ID: seen.ID, Account: p.Account, Conversation: seen.Conversation}
	return schemas.NewEvent(c, schemas.CallRejected, string(p.Account)+"."+schemas.CallPrefix+p.place(p.Published)+".rejected", p.Published,
		schemas.RejectedData{Call: seen.ID, Error: why})
}

// Reject publishes call.rejected for a failed publication, once. Sure is since when this process has the publication.
func Reject(ctx context.Context, b *Bus, p Publication, why *schemas.Error, sure Certainty) error {
	if err := p.Account.Validate(); err != nil {
		return nil //nolint:nilerr // no publisher can have such a subject: there is no conversation to write to
	}
	_, err := StoreOnce(ctx, b, p.Rejected(why), Absence{at: p.Published, sure: sure})
	return err
}
