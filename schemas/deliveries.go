package schemas

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"
)

// EndpointID names a webhook endpoint.
type EndpointID string

// EndpointPrefix begins the id of every endpoint.
const EndpointPrefix = "wh_"

// Validate reports whether id is a well-formed endpoint id.
func (id EndpointID) Validate() error {
	return validatePrefixed("endpoint", EndpointPrefix, string(id))
}

// Endpoint is the record of a webhook endpoint of an account.
type Endpoint struct {
	ID      EndpointID `json:"id"`
	Account AccountID  `json:"account"`
	URL     string     `json:"url"`
	// Secrets are signing keys as Standard Webhooks writes them, "whsec_" and base64 of 24 to 64 bytes;
	// the newest first. Each signs, so that a receiver may know any of them.
	Secrets []EndpointSecret `json:"secrets"`
	// Events are the types that are delivered. Empty: all.
	Events []EventType `json:"events,omitzero"`
	// Legacy adds X-Webhook-Signature: sha256=<hex HMAC of the body>.
	Legacy      bool   `json:"legacy,omitzero"`
	ContentType string `json:"content_type,omitzero"` // of the requests: [WebhookJSON], which is the default, or [WebhookCloudEvents]
	Concurrency int    `json:"concurrency,omitzero"`  // requests at the same time; 0: 4
	Disabled    bool   `json:"disabled,omitzero"`
	Reason      string `json:"reason,omitzero"` // why it is disabled
	Description string `json:"description,omitzero"`
	// FailingSince is when deliveries began to fail without a success since; zero: they do not.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Created      time.Time `json:"created"`
	Updated      time.Time `json:"updated,omitzero"`
}

// Content types of the requests to an endpoint. The body is the same: a CloudEvents 1.0 event in its structured mode.
const (
	WebhookJSON        = "application/json"
	WebhookCloudEvents = "application/cloudevents+json"
)

// EndpointSecret is a signing key with its expiry; the zero time means none.
type EndpointSecret struct {
	Key     string    `json:"key"`
	Expires time.Time `json:"expires,omitzero"`
}

// Wants reports whether events of type t are delivered to e.
func (e Endpoint) Wants(t EventType) bool {
	return !e.Disabled && (len(e.Events) == 0 || slices.Contains(e.Events, t))
}

// DeliveryID names a delivery and is its webhook-id: made from the event and the endpoint, so that
// making it again gives the same. It holds no dot.
type DeliveryID string

// Delivery is one event on its way to one receiver. It is kept whole in each message of its way.
type Delivery struct {
	ID           DeliveryID      `json:"id"`
	Account      AccountID       `json:"account"`
	Channel      string          `json:"channel"`             // webhook, or a chat channel
	Endpoint     EndpointID      `json:"endpoint,omitzero"`   // of a webhook
	ChannelID    ChannelID       `json:"channel_id,omitzero"` // of a chat channel; empty: the account's only one of its kind
	Route        json.RawMessage `json:"route,omitzero"`      // of a chat channel: opaque to all but it
	Event        string          `json:"event"`               // id of the event
	Type         EventType       `json:"type"`
	Conversation ConversationID  `json:"conversation"`
	// Body is what is sent, the same bytes on every try.
	Body    string    `json:"body"`
	Created time.Time `json:"created"`
	Attempt int       `json:"attempt"` // tries so far
	// Last is what the last try met.
	Last *DeliveryTry `json:"last,omitzero"`
	// Replay counts how often a person had it delivered again. The attempts begin again with it.
	Replay int `json:"replay,omitzero"`
	// FallbackOf is the delivery in whose place this one goes by another channel.
	FallbackOf DeliveryID `json:"fallback_of,omitzero"`
	// Tries is how many there are at most. 0: as many as the schedule has.
	Tries int `json:"tries,omitzero"`
	// Begun is when the tries began again; zero: when it was created.
	Begun time.Time `json:"begun,omitzero"`
}

// Again returns the delivery with all its tries available again, from a time on. Id and bytes stay the same, so that a receiver can
// recognise a repeat.
func (d Delivery) Again(now time.Time) Delivery {
	d.Attempt, d.Last, d.Begun = 0, nil, now.UTC()
	d.Replay++
	return d
}

// DeliveryTry is the outcome of one try of a delivery.
type DeliveryTry struct {
	Time     time.Time `json:"time"`
	Status   int       `json:"status,omitzero"`   // of the HTTP response; 0: there was none
	Error    string    `json:"error,omitzero"`    // where there was none
	Response string    `json:"response,omitzero"` // the beginning of its body, at most 4 KiB
	Duration Duration  `json:"duration,omitzero"`
}

// EventID is stable over all tries.
func (d Delivery) EventID() string { return string(d.Account) + "." + string(d.ID) }

// WebhookChannel is the channel of deliveries to webhook endpoints.
const WebhookChannel = "webhook"

// WebhookReceivers returns the endpoints that an event is delivered to.
func WebhookReceivers(e Event, endpoints []Endpoint) []Endpoint {
	var list []Endpoint
	for _, p := range endpoints {
		if p.Wants(e.Type) && p.Account == e.Account {
			list = append(list, p)
		}
	}
	return list
}

// WebhookDeliveries makes the deliveries of an event to those endpoints that want it, one after the other. At is where the
// event stands on its conversation. Making them again gives the same ids. All have one body, which is encoded once.
func WebhookDeliveries(e Event, at Cursor, endpoints []Endpoint, now time.Time) iter.Seq[Delivery] {
	return func(yield func(Delivery) bool) {
		receivers := WebhookReceivers(e, endpoints)
		if len(receivers) == 0 {
			return
		}
		body := WebhookBody(e, at)
		for _, p := range receivers {
			d := Delivery{
				ID: MakeDeliveryID(e.ID, string(p.ID)), Account: e.Account, Channel: WebhookChannel, Endpoint: p.ID, Event: e.ID, Type: e.Type,
				Conversation: e.Conversation, Body: body, Created: now.UTC(),
			}
			if !yield(d) {
				return
			}
		}
	}
}

// WebhookDeliveriesSize is about how many bytes the deliveries of an event take on the log, before it is known where the event stands.
func WebhookDeliveriesSize(e Event, endpoints []Endpoint) int64 {
	const around = 512 // the other members of a delivery, and a cursor twice
	receivers := len(WebhookReceivers(e, endpoints))
	if receivers == 0 {
		return 0
	}
	body := WebhookBody(e, Cursor{})
	escaped := strings.Count(body, `"`) + strings.Count(body, `\`) // it is a string in the JSON of the delivery
	return int64(receivers) * int64(len(body)+escaped+len(e.ID)+around)
}

// webhookBody is a CloudEvents 1.0 event and a body by Standard Webhooks in one.
type webhookBody struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`
	Type        EventType `json:"type"`
	Source      string    `json:"source"`
	Subject     string    `json:"subject,omitzero"`
	Time        time.Time `json:"time"`
	Timestamp   time.Time `json:"timestamp"` // as Standard Webhooks recommends
	ContentType string    `json:"datacontenttype"`
	// Extension attributes of CloudEvents: where the event stands, whatever its data says of itself.
	Conversation ConversationID  `json:"conversation"`
	Cursor       string          `json:"cursor"`
	Data         json.RawMessage `json:"data"`
}

// WebhookBody is what receivers of an event get: its data with conversation and cursor added, unless it has members
// of these names itself. Data that would make it longer than MaxWebhookBody is left out; "omitted" says so.
func WebhookBody(e Event, at Cursor) string {
	data := map[string]json.RawMessage{}
	_ = json.Unmarshal(e.Data, &data) // what is no object has no members to show
	add := func(into map[string]json.RawMessage) json.RawMessage {
		for name, value := range map[string]json.RawMessage{"conversation": mustJSON(e.Conversation), "cursor": mustJSON(at.String())} {
			if _, own := into[name]; !own {
				into[name] = value
			}
		}
		return mustJSON(into)
	}
	b := webhookBody{
		SpecVersion: "1.0", ID: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Time: e.Time, Timestamp: e.Time,
		ContentType: "application/json", Conversation: e.Conversation, Cursor: at.String(), Data: add(data),
	}
	if text := mustJSON(b); len(text) <= MaxWebhookBody {
		return string(text)
	}
	b.Data = add(map[string]json.RawMessage{"omitted": mustJSON(true)})
	return string(mustJSON(b))
}

// MakeDeliveryID is the id of the delivery of an event to a receiver.
func MakeDeliveryID(event, receiver string) DeliveryID {
	return DeliveryID("msg_" + shortHash(event+"\x00"+receiver))
}

// MakeFollowUpID is the id of the follow-up of a job, or of a group when it has a name.
func MakeFollowUpID(a AccountID, group string, j JobID) FollowUpID {
	if group != "" {
		return FollowUpID("fu_" + shortHash("group\x00"+string(a)+"\x00"+group))
	}
	return FollowUpID("fu_" + shortHash("job\x00"+string(a)+"\x00"+string(j)))
}

func shortHash(s string) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	sum := sha256.Sum256([]byte(s))
	var b strings.Builder
	for _, c := range sum[:26] {
		b.WriteByte(alphabet[c&31])
	}
	return b.String()
}

// Validate reports what is wrong with an endpoint as a client requests it. Its address is checked when it is dialled.
func (e Endpoint) Validate() error {
	u, err := url.Parse(e.URL)
	switch {
	case e.URL == "":
		return Invalidf("url", "is missing")
	case len(e.URL) > MaxEndpointURL:
		return Invalidf("url", "is %d bytes long: the limit is %d", len(e.URL), MaxEndpointURL)
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return Invalidf("url", "%q is not an http or https URL", Quotable(e.URL))
	case u.User != nil:
		return Invalidf("url", "holds a user or password: receivers prove deliveries by their signature")
	case u.Fragment != "":
		return Invalidf("url", "holds a fragment, which is never sent: leave out what follows #")
	case e.Concurrency < 0 || e.Concurrency > MaxEndpointConcurrency:
		return Invalidf("concurrency", "%d is out of range: 0 (default 4) to %d", e.Concurrency, MaxEndpointConcurrency)
	case e.ContentType != "" && e.ContentType != WebhookJSON && e.ContentType != WebhookCloudEvents:
		return Invalidf("content_type", "%q is not one that a webhook is sent with: use %s or %s", Quotable(e.ContentType),
			WebhookJSON, WebhookCloudEvents)
	case len(e.Description) > MaxName:
		return Invalidf("description", "is %d bytes long: the limit is %d", len(e.Description), MaxName)
	}
	for _, t := range e.Events {
		if !slices.Contains(DeliverableTypes(), t) {
			return Invalidf("events", "%q is not delivered: use some of %s, or none for all", Quotable(string(t)), typeNames(DeliverableTypes()))
		}
	}
	return nil
}

func typeNames(types []EventType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// AppendedEvent is an event that a client adds to a conversation: POST
// /v1/conversations/{id}/events.
type AppendedEvent struct {
	// ID makes it idempotent: the same id is added once, within ten minutes for certain.
	ID   string    `json:"id,omitzero" jsonschema:"maxLength=128,pattern=^[A-Za-z0-9_.:-]+$"`
	Type EventType `json:"type" jsonschema:"enum=agent.started,enum=agent.finished,enum=agent.failed,enum=agent.step.finished,enum=message"`
	// Agent and Turn say whose event it is.
	Agent AgentID         `json:"agent,omitzero"`
	Turn  TurnID          `json:"turn,omitzero"`
	Data  json.RawMessage `json:"data" jsonschema:"type=object"`
}

// DecodeAppendedEvent reads an event of a client strictly.
func DecodeAppendedEvent(b []byte) (AppendedEvent, error) {
	var e AppendedEvent
	if err := DecodeStrict(b, MaxEvent, &e); err != nil {
		return AppendedEvent{}, err
	}
	if e.ID != "" {
		if err := validateToken("id", e.ID, MaxCallID, "_.:-"); err != nil {
			return AppendedEvent{}, err
		}
	}
	if !slices.Contains(AppendableTypes(), e.Type) {
		return AppendedEvent{}, Invalidf("type", "%q cannot be added: use %s", Quotable(string(e.Type)), typeNames(AppendableTypes()))
	}
	if err := first(optional[AgentID](e.Agent).Validate(), optional[TurnID](e.Turn).Validate()); err != nil {
		return AppendedEvent{}, err
	}
	if len(e.Data) == 0 || e.Data[0] != '{' {
		return AppendedEvent{}, Invalidf("data", "is missing: give an object")
	}
	return e, nil
}
