package gateway

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

const (
	defaultOverlap = 24 * time.Hour     // of an endpoint's former secret with the new one
	mostOverlap    = 7 * 24 * time.Hour // likewise
	mostSecrets    = 4                  // of an endpoint: each signs every delivery
	masked         = "********"         // shown instead of a secret
	testConv       = schemas.ConversationID("c_webhook_test")
)

// WebhookList is the answer about an account's endpoints.
type WebhookList struct {
	Webhooks []schemas.Endpoint `json:"webhooks"`
}

// webhookRequest is an endpoint as a client asks for it.
type webhookRequest struct {
	URL         string              `json:"url"`
	Events      []schemas.EventType `json:"events,omitzero"`
	Legacy      bool                `json:"legacy,omitzero"`
	ContentType string              `json:"content_type,omitzero"`
	Concurrency int                 `json:"concurrency,omitzero"`
	Description string              `json:"description,omitzero"`
	Secret      string              `json:"secret,omitzero"`
}

// webhookPatch changes an endpoint; what is absent stays.
type webhookPatch struct {
	URL         *string              `json:"url,omitzero"`
	Events      *[]schemas.EventType `json:"events,omitzero"`
	Legacy      *bool                `json:"legacy,omitzero"`
	ContentType *string              `json:"content_type,omitzero"`
	Concurrency *int                 `json:"concurrency,omitzero"`
	Description *string              `json:"description,omitzero"`
	Disabled    *bool                `json:"disabled,omitzero"`
}

// rotateRequest asks for a new secret.
type rotateRequest struct {
	Overlap *schemas.Duration `json:"overlap,omitzero"`
}

// replayRequest says which deliveries are made again.
type replayRequest struct {
	Since    string             `json:"since,omitzero"` // a time, or a duration before now
	Endpoint schemas.EndpointID `json:"endpoint,omitzero"`
	ID       schemas.DeliveryID `json:"id,omitzero"`
	After    string             `json:"after,omitzero"` // the next of the answer before
}

// Replayed says how many deliveries are on their way again. Next is there where more may follow: the same request with it as "after"
// continues.
type Replayed struct {
	Replayed int    `json:"replayed"`
	Next     string `json:"next,omitzero"`
}

// endpoints are the records of endpoints, unless this gateway has none.
func (g *Gateway) endpoints() (Endpoints, error) {
	if g.Endpoints == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "", "this gateway keeps no webhook endpoints")
	}
	return g.Endpoints, nil
}

func pathEndpoint(r *http.Request) schemas.EndpointID {
	return schemas.EndpointID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// getWebhooks lists the account's endpoints.
func (g *Gateway) getWebhooks(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	list, err := endpoints.Endpoints(r.Context(), a)
	if err != nil {
		return err
	}
	out := WebhookList{Webhooks: make([]schemas.Endpoint, len(list))}
	for i, e := range list {
		out.Webhooks[i] = shown(e, "")
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// postWebhook adds an endpoint. Its answer is the only one that shows the secret.
func (g *Gateway) postWebhook(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	var in webhookRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := g.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	e, err := g.newEndpoint(a, in, g.Bus.Now())
	if err != nil {
		return err
	}
	if err := endpoints.PutEndpoint(r.Context(), e); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/webhooks/"+string(e.ID))
	web.WriteJSON(w, http.StatusCreated, shown(e, e.Secrets[0].Key))
	return nil
}

func (g *Gateway) newEndpoint(a schemas.AccountID, in webhookRequest, now time.Time) (schemas.Endpoint, error) {
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
	return e, g.checkEndpoint(e)
}

// checkEndpoint reports what is wrong with an endpoint as a client wants it.
func (g *Gateway) checkEndpoint(e schemas.Endpoint) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if !g.AllowInsecureWebhooks && !strings.HasPrefix(strings.ToLower(e.URL), "https://") {
		return schemas.Invalidf("url", "is not https: results of tools would travel in the clear; "+
			"for development, start the gateway with --webhook-allow-http")
	}
	return nil
}

// getWebhook shows an endpoint.
func (g *Gateway) getWebhook(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	e, err := endpoints.Endpoint(r.Context(), a, pathEndpoint(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(e, ""))
	return nil
}

// patchWebhook changes an endpoint.
func (g *Gateway) patchWebhook(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in webhookPatch
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := g.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	return g.changeWebhook(w, r, a, "", func(e *schemas.Endpoint) error {
		in.apply(e, g.Bus.Now())
		return g.checkEndpoint(*e)
	})
}

// apply changes what the patch names. Who enables an endpoint again begins with a clean slate.
func (p webhookPatch) apply(e *schemas.Endpoint, now time.Time) {
	set(&e.URL, p.URL)
	set(&e.Legacy, p.Legacy)
	set(&e.ContentType, p.ContentType)
	set(&e.Concurrency, p.Concurrency)
	set(&e.Description, p.Description)
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

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// changeWebhook changes an endpoint and answers with it.
func (g *Gateway) changeWebhook(
	w http.ResponseWriter, r *http.Request, a schemas.AccountID, secret string, change func(*schemas.Endpoint) error,
) error {
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	e, err := endpoints.UpdateEndpoint(r.Context(), a, pathEndpoint(r), change)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(e, secret))
	return nil
}

// deleteWebhook removes an endpoint.
func (g *Gateway) deleteWebhook(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	if err := endpoints.DeleteEndpoint(r.Context(), a, pathEndpoint(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postWebhookRotate gives an endpoint a new secret, which only this answer shows.
func (g *Gateway) postWebhookRotate(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
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
	return g.changeWebhook(w, r, a, secret, func(e *schemas.Endpoint) error {
		now := g.Bus.Now()
		e.Secrets, e.Updated = rotated(e.Secrets, secret, overlap, now), now.UTC()
		return nil
	})
}

// rotated puts a new secret first. The others stay valid for the overlap, those that were to end earlier until then; of too many the oldest
// goes at once.
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

// postWebhookTest has an event delivered to an endpoint that says nothing.
func (g *Gateway) postWebhookTest(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if err := web.DecodeBody(w, r, true, &struct{}{}); err != nil {
		return err
	}
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	e, err := endpoints.Endpoint(r.Context(), a, pathEndpoint(r))
	if err != nil {
		return err
	}
	if e.Disabled {
		return schemas.Errorf(schemas.Conflict, "", "the endpoint is disabled (%s): enable it first", schemas.Quotable(e.Reason))
	}
	e.Events = nil // whatever it wants otherwise
	now := g.Bus.Now()
	event := schemas.Event{
		SpecVersion: "1.0", ID: string(a) + "." + schemas.NewID("ev_") + ".test", Type: schemas.Message, Source: schemas.AccountSource(a),
		Time: now.UTC(), Conversation: testConv, Account: a, Data: []byte(`{"test":true}`),
	}
	release, err := g.Bus.ReserveFor(r.Context(), a, schemas.WebhookDeliveriesSize(event, []schemas.Endpoint{e}))
	if err != nil {
		return err
	}
	defer release()
	if err := lifecycle.NotifyReserved(r.Context(), g.Bus, event, schemas.Cursor{}, []schemas.Endpoint{e}); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, map[string]schemas.DeliveryID{"delivery": schemas.MakeDeliveryID(event.ID, string(e.ID))})
	return nil
}

// postWebhookReplay has deliveries made again.
func (g *Gateway) postWebhookReplay(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in replayRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	endpoints, err := g.endpoints()
	if err != nil {
		return err
	}
	since, err := in.since(g.Bus.Now())
	if err != nil {
		return err
	}
	if in.Endpoint != "" {
		if _, err := endpoints.Endpoint(r.Context(), a, in.Endpoint); err != nil {
			return err
		}
	}
	leave, err := g.replays.enter(r.Context(), a)
	if err != nil {
		web.Later(w.Header())
		return err
	}
	defer leave()
	n, next, err := lifecycle.ReplayDeliveries(r.Context(), g.Bus,
		lifecycle.DeliveryReplay{Account: a, Endpoint: in.Endpoint, ID: in.ID, Since: since, After: in.After})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, Replayed{n, next})
	return nil
}

const (
	replaysAtMost = 2 // that read and write the log at the same time
	replayPatient = 10 * time.Second
)

// replays lets one replay of an account be carried out at a time, and few of all: so those that wait have their turns, one of each
// account. It is safe for concurrent use.
type replays struct {
	accounts *quota.Ledger
	places   chan struct{}
}

func newReplays() *replays {
	return &replays{quota.NewLedger(1, 0), make(chan struct{}, replaysAtMost)}
}

// enter waits for a slot, which leave frees. Codes: exhausted (a replay of the account is being made), unavailable.
func (p *replays) enter(ctx context.Context, a schemas.AccountID) (leave func(), err error) {
	own, full := p.accounts.Take(a)
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Exhausted, "", "a replay of the account is in progress at this gateway: wait for its answer")
	}
	t := time.NewTimer(replayPatient)
	defer t.Stop()
	select {
	case p.places <- struct{}{}:
		return func() {
			<-p.places
			own.Release()
		}, nil
	case <-t.C:
	case <-ctx.Done():
	}
	own.Release()
	return nil, schemas.Errorf(schemas.Unavailable, "", "replays of other accounts are in progress at this gateway: try again later")
}

// since reads from when on: a time, or how long ago. It must be there unless one delivery is named.
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

// shown is an endpoint as it leaves the gateway: without its secrets, but for the one that was just made.
func shown(e schemas.Endpoint, secret string) schemas.Endpoint {
	e.Secrets = slices.Clone(e.Secrets)
	for i := range e.Secrets {
		if secret == "" || e.Secrets[i].Key != secret {
			e.Secrets[i].Key = masked
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

// checkSecret looks at a signing key of a client's own. Its error does not show it.
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
