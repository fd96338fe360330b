// Package webhooks serves the webhook endpoints of accounts: their records, their secrets, and deliveries that are made again.
package webhooks

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	defaultOverlap = 24 * time.Hour     // of an endpoint's former secret with the new one
	mostOverlap    = 7 * 24 * time.Hour // likewise
	mostSecrets    = 4                  // of an endpoint: each signs every delivery
	testConv       = schemas.ConversationID("c_webhook_test")
)

// List is the response with an account's endpoints.
type List struct {
	Webhooks []schemas.Endpoint `json:"webhooks"`
}

// request is the body that adds an endpoint.
type request struct {
	URL         string              `json:"url"`
	Events      []schemas.EventType `json:"events,omitzero"`
	Legacy      bool                `json:"legacy,omitzero"`
	ContentType string              `json:"content_type,omitzero"`
	Concurrency int                 `json:"concurrency,omitzero"`
	Description string              `json:"description,omitzero"`
	Secret      string              `json:"secret,omitzero"`
}

// patch is the body that changes an endpoint; absent fields stay as they are.
type patch struct {
	URL         *string              `json:"url,omitzero"`
	Events      *[]schemas.EventType `json:"events,omitzero"`
	Legacy      *bool                `json:"legacy,omitzero"`
	ContentType *string              `json:"content_type,omitzero"`
	Concurrency *int                 `json:"concurrency,omitzero"`
	Description *string              `json:"description,omitzero"`
	Disabled    *bool                `json:"disabled,omitzero"`
}

// rotateRequest is the body of a request for a new secret.
type rotateRequest struct {
	Overlap *schemas.Duration `json:"overlap,omitzero"`
}

// replayRequest selects the deliveries to repeat.
type replayRequest struct {
	Since    string             `json:"since,omitzero"` // a time, or a duration before now
	Endpoint schemas.EndpointID `json:"endpoint,omitzero"`
	ID       schemas.DeliveryID `json:"id,omitzero"`
	After    string             `json:"after,omitzero"` // the next of the answer before
}

// Replayed is the response with the number of deliveries that are repeated. If Next is set there may be more: the same request with it as
// "after" continues.
type Replayed struct {
	Replayed int    `json:"replayed"`
	Next     string `json:"next,omitzero"`
}

// Records stores the webhook endpoints of all accounts. It must be safe for concurrent use. Code not_found: there is no endpoint with that
// id, or it belongs to another account.
type Records interface {
	// List lists those of an account by id. It must answer without a round trip, or nearly so.
	List(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
	Get(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error)
	// Add adds one. Code: exhausted when the account has as many as it may.
	Add(ctx context.Context, e schemas.Endpoint) error
	// Update changes one by change, which may be called several times; its error is returned.
	Update(ctx context.Context, a schemas.AccountID, id schemas.EndpointID,
		change func(*schemas.Endpoint) error) (schemas.Endpoint, error)
	Remove(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) error
}

// Options are the settings of [Webhooks].
type Options struct {
	Bus     *streams.Bus
	Records Records // nil: the routes answer unsupported
	// AllowHTTP lets endpoints be added whose URL begins with http://, for development.
	AllowHTTP bool
}

// Webhooks has the HTTP handlers of webhook endpoints. It is safe for concurrent use.
type Webhooks struct {
	o       Options
	replays *replays
}

// New returns the handlers.
func New(o Options) *Webhooks { return &Webhooks{o, newReplays()} }

// records returns the records of endpoints. Code unsupported: this gateway has none.
func (h *Webhooks) records() (Records, error) {
	if h.o.Records == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway keeps no webhook endpoints")
	}
	return h.o.Records, nil
}

func pathEndpoint(r *http.Request) schemas.EndpointID {
	return schemas.EndpointID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// List lists the account's endpoints.
func (h *Webhooks) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	list, err := records.List(r.Context(), a)
	if err != nil {
		return err
	}
	out := List{Webhooks: make([]schemas.Endpoint, len(list))}
	for i, e := range list {
		out.Webhooks[i] = shown(e, "")
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// Post adds an endpoint. Only this response contains the secret.
func (h *Webhooks) Post(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	records, err := h.records()
	if err != nil {
		return err
	}
	var in request
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := h.o.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	e, err := h.newEndpoint(a, in, h.o.Bus.Now())
	if err != nil {
		return err
	}
	if err := records.Add(r.Context(), e); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/webhooks/"+string(e.ID))
	web.WriteJSON(w, http.StatusCreated, shown(e, e.Secrets[0].Key))
	return nil
}

func (h *Webhooks) newEndpoint(a schemas.AccountID, in request, now time.Time) (schemas.Endpoint, error) {
	secret := in.Secret
	if secret == "" {
		secret = newSecret()
	} else if err := checkSecret(secret); err != nil {
		return schemas.Endpoint{}, err
	}
	e := schemas.Endpoint{
		ID: schemas.EndpointID(schemas.NewID(schemas.EndpointPrefix)), Account: a, URL: in.URL, Secrets: []schemas.EndpointSecret{{Key: secret}},
		Events: slices.Compact(slices.Sorted(slices.Values(in.Events))), Legacy: in.Legacy, ContentType: in.ContentType,
		Concurrency: in.Concurrency, Description: in.Description,
		Created: now.UTC(),
	}
	return e, h.check(e)
}

// check validates an endpoint. Code: invalid.
func (h *Webhooks) check(e schemas.Endpoint) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if !h.o.AllowHTTP && !strings.HasPrefix(strings.ToLower(e.URL), "https://") {
		return schemas.Invalidf("url", "is not https: results of tools would travel in the clear; "+
			"for development, start the gateway with --webhook-allow-http")
	}
	return nil
}

// Get returns an endpoint.
func (h *Webhooks) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	e, err := records.Get(r.Context(), a, pathEndpoint(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(e, ""))
	return nil
}

// Patch changes an endpoint.
func (h *Webhooks) Patch(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in patch
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := h.o.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	return h.change(w, r, a, "", func(e *schemas.Endpoint) error {
		in.apply(e, h.o.Bus.Now())
		return h.check(*e)
	})
}

// apply changes the fields that the patch sets. Enabling an endpoint also clears its failures.
func (p patch) apply(e *schemas.Endpoint, now time.Time) {
	web.Set(&e.URL, p.URL)
	web.Set(&e.Legacy, p.Legacy)
	web.Set(&e.ContentType, p.ContentType)
	web.Set(&e.Concurrency, p.Concurrency)
	web.Set(&e.Description, p.Description)
	if p.Events != nil {
		e.Events = slices.Compact(slices.Sorted(slices.Values(*p.Events)))
	}
	switch {
	case p.Disabled == nil:
	case *p.Disabled && !e.Disabled:
		e.Disabled, e.Reason = true, "its owner disabled it"
	case !*p.Disabled:
		e.Disabled, e.Reason, e.FailingSince = false, "", time.Time{}
	}
	e.Updated = now.UTC()
}

// change changes an endpoint and responds with it.
func (h *Webhooks) change(
	w http.ResponseWriter, r *http.Request, a schemas.AccountID, secret string, change func(*schemas.Endpoint) error,
) error {
	records, err := h.records()
	if err != nil {
		return err
	}
	e, err := records.Update(r.Context(), a, pathEndpoint(r), change)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(e, secret))
	return nil
}

// Delete removes an endpoint.
func (h *Webhooks) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	if err := records.Remove(r.Context(), a, pathEndpoint(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Rotate gives an endpoint a new secret. Only this response contains it.
func (h *Webhooks) Rotate(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in rotateRequest
	if err := web.DecodeBody(w, r, true, &in); err != nil {
		return err
	}
	overlap := defaultOverlap
	if in.Overlap != nil {
		overlap = time.Duration(*in.Overlap)
	}
	if overlap > mostOverlap {
		return schemas.Invalidf("overlap", "%s is out of range: at most %s", overlap, mostOverlap)
	}
	secret := newSecret()
	return h.change(w, r, a, secret, func(e *schemas.Endpoint) error {
		now := h.o.Bus.Now()
		e.Secrets, e.Updated = rotated(e.Secrets, secret, overlap, now), now.UTC()
		return nil
	})
}

// rotated returns the secrets with a new one first. The others stay valid for the overlap at most; if there are too many, the oldest is
// removed at once.
func rotated(secrets []schemas.EndpointSecret, key string, overlap time.Duration, now time.Time) []schemas.EndpointSecret {
	end := now.Add(overlap).UTC()
	out := []schemas.EndpointSecret{{Key: key}}
	for _, s := range secrets {
		if s.Expires.IsZero() || s.Expires.After(end) {
			s.Expires = end
		}
		if s.Expires.After(now) && len(out) < mostSecrets {
			out = append(out, s)
		}
	}
	return out
}

// Test delivers an empty test event to an endpoint.
func (h *Webhooks) Test(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if err := web.DecodeBody(w, r, true, &struct{}{}); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	e, err := records.Get(r.Context(), a, pathEndpoint(r))
	if err != nil {
		return err
	}
	if e.Disabled {
		return schemas.Errorf(schemas.Conflict, "the endpoint is disabled (%s): enable it first", schemas.Quotable(e.Reason))
	}
	e.Events = nil // whatever it wants otherwise
	now := h.o.Bus.Now()
	event := schemas.Event{
		SpecVersion: "1.0", ID: string(a) + "." + schemas.NewID("ev_") + ".test", Type: schemas.Message, Source: schemas.AccountSource(a),
		Time: now.UTC(), Conversation: testConv, Account: a, Data: []byte(`{"test":true}`),
	}
	release, err := h.o.Bus.ReserveFor(r.Context(), a, schemas.WebhookDeliveriesSize(event, []schemas.Endpoint{e}))
	if err != nil {
		return err
	}
	defer release()
	if err := lifecycle.NotifyReserved(r.Context(), h.o.Bus, event, schemas.Cursor{}, []schemas.Endpoint{e}); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, map[string]schemas.DeliveryID{"delivery": schemas.MakeDeliveryID(event.ID, string(e.ID))})
	return nil
}

// Replay repeats deliveries.
func (h *Webhooks) Replay(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in replayRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	since, err := in.since(h.o.Bus.Now())
	if err != nil {
		return err
	}
	if in.Endpoint != "" {
		if _, err := records.Get(r.Context(), a, in.Endpoint); err != nil {
			return err
		}
	}
	leave, err := h.replays.enter(r.Context(), a)
	if err != nil {
		web.Later(w.Header())
		return err
	}
	defer leave()
	n, next, err := lifecycle.ReplayDeliveries(r.Context(), h.o.Bus,
		lifecycle.DeliveryReplay{Account: a, Endpoint: in.Endpoint, ID: in.ID, Since: since, After: in.After})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, Replayed{n, next})
	return nil
}

// since returns the time from which deliveries are repeated: a time, or a duration before now. It is required unless one delivery is
// named. Code: invalid.
func (r replayRequest) since(now time.Time) (time.Time, error) {
	if r.Since == "" {
		if r.ID == "" {
			return time.Time{}, schemas.Invalidf("since", "is missing: give a time, a duration such as 24h, or the id of one delivery")
		}
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, r.Since); err == nil {
		return at, nil
	}
	var d schemas.Duration
	if err := d.UnmarshalText([]byte(r.Since)); err != nil {
		return time.Time{}, schemas.Invalidf("since", "%q is neither a time (2030-01-02T15:04:05Z) nor a duration such as 24h",
			schemas.Quotable(r.Since))
	}
	return now.Add(-time.Duration(d)), nil
}

// shown returns an endpoint for a response: its secrets are masked, except for secret, if that is not empty.
func shown(e schemas.Endpoint, secret string) schemas.Endpoint {
	e.Secrets = slices.Clone(e.Secrets)
	for i := range e.Secrets {
		if secret == "" || e.Secrets[i].Key != secret {
			e.Secrets[i].Key = web.Masked
		}
	}
	return e
}

const secretPrefix = "whsec_" // of signing keys, as Standard Webhooks writes them

func newSecret() string {
	const bytes = 32
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// checkSecret validates a signing key that a client has chosen. Its error does not contain the key. Code: invalid.
func checkSecret(s string) error {
	const shortest, longest = 24, 64
	text, ok := strings.CutPrefix(s, secretPrefix)
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(b) < shortest || len(b) > longest || strings.ContainsAny(text, "\r\n") { // which the decoder skips
		return schemas.Invalidf("secret", "must be %s and base64 of %d to %d bytes: leave it out to have one made",
			secretPrefix, shortest, longest)
	}
	return nil
}
