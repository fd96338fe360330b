// Package channel defines the interface between Sandjet and the adapters of chat services: what an adapter can do, what it is given, and
// how it reports the outcome.
//
// An adapter only translates. It has no state, never retries a request, and looks nothing up: the caller passes the account's credential,
// the place in the chat and the text. Everything that must survive a crash (which part was sent, under which id, when it is retried) belongs
// to the caller. An adapter is safe for concurrent use.
//
// # Outcomes
//
// An adapter sends one request and reports what is known of the message: not sent, limited, refused or ambiguous. Retrying, waiting and
// searching for a message are up to the caller, which keeps a ledger. All adapters use the HTTP client of delivery/internal/chatapi.
//
//   - Not sent is certain. It means that the transport had not begun to read the request's body, without which no service carries out the
//     request. When the transport fails, the body is closed for good, so that nothing in the background can complete the request. For a
//     request without a body it means that there was no connection (httptrace).
//   - A status is definite, except 5xx, which is ambiguous unless the service's own error codes say otherwise: a proxy may have reported a
//     timeout while the service was still working. 429 is limited; all other 4xx and every redirect are refused.
//   - A successful response that cannot be read (truncated, not JSON, longer than 1 MiB) is ambiguous. A refusal that is truncated is not
//     sent, because its reason is unknown.
//   - The transport never resends a request: bodies cannot be rewound (GetBody is nil), so it retries neither because an idle connection
//     was just closed nor because of an Idempotency-Key. Idle connections are closed after 20 s, sooner than services close them.
//   - An adapter sends a second request only after a definite refusal that names what to change: Telegram cannot parse the markup, or a
//     group has moved.
//   - The secrets of each request are known to the client, which replaces them in all errors: verbatim, escaped for paths, queries, JSON
//     and quotes, in base64 and in hexadecimal. Errors never contain addresses. Their text is truncated after the replacement.
//   - Base addresses are set by the operator, never by a tenant: an account cannot choose the host of a request.
//
// The suite channeltest checks that every adapter follows these rules, against test doubles (chatfake) that store messages, repeat secrets
// in their errors, and carry out requests before they fail.
package channel

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Adapter sends and receives messages of one chat service.
type Adapter interface {
	// Profile returns what the service supports. It always returns the same.
	Profile() Profile
	// Send sends one message. Its error is an [Error], which states whether the message may have arrived. It blocks for one request, or
	// for two if the service has certainly refused the first or a search comes first, and returns soon after ctx is done.
	Send(ctx context.Context, to Destination, m Message) (Receipt, error)
	// Destination returns the name of the entity for which the service counts its rate limits: a chat, a channel, an issue. It has no side
	// effects. Code: invalid, with the name of the field, if the route is not one of this service.
	Destination(route json.RawMessage) (string, error)
}

// Profile describes what a chat service supports.
type Profile struct {
	// Kind is the name of the service, such as telegram.
	Kind string
	// Format is the markup of its messages.
	Format Format
	// Limit is the maximal length of a message's text, in units of Unit.
	Limit int
	Unit  Unit
	// Caption is the maximal length of a text that accompanies a file, in units of Unit. 0: as Limit.
	Caption int
	// Once is how duplicates of a message are avoided. Window is how long the service remembers a key, if Once is [OnceByKey]; 0: forever.
	Once   Once
	Window time.Duration
	// MaxFile is the maximal size of a file, in bytes. 0: files cannot be sent.
	MaxFile int64
	// Buttons is whether a message may have buttons.
	Buttons bool
	// Pace are the service's rate limits, as far as they are documented or known from experience.
	Pace []Pace
	// Secrets are the fields of a channel's credential.
	Secrets []Secret
}

// Format is the markup of a message's text.
type Format string

// The formats.
const (
	PlainText    Format = "plain"
	TelegramHTML Format = "telegram_html"
	SlackMrkdwn  Format = "slack_mrkdwn"
	DiscordText  Format = "discord_markdown"
	GitHubText   Format = "github_markdown"
)

// Unit is the unit in which a service counts the length of a text.
type Unit string

// The units.
const (
	UTF16      Unit = "utf16"      // code units of UTF-16
	CodePoints Unit = "codepoints" // of Unicode
	Bytes      Unit = "bytes"      // of UTF-8
)

// Once is how a service avoids duplicates when it is unknown whether the first try arrived.
type Once string

// The ways to avoid duplicates.
const (
	// OnceByKey: the service creates at most one message per key, within Window.
	OnceByKey Once = "key"
	// OnceByLook: the adapter is a [Finder]. Before a retry, the caller searches the chat for the message.
	OnceByLook Once = "look"
	// OnceNever: the service has neither keys nor a search. A repeated message says that it may be a repeat.
	OnceNever Once = "never"
)

// Pace is a rate limit of a service: at most Events requests in any interval of length Per, counted separately for each Of.
type Pace struct {
	Of     PaceOf
	Events int
	Per    time.Duration
}

// PaceOf is the entity for which a rate limit counts requests.
type PaceOf string

// The entities for which rate limits count.
const (
	PerCredential  PaceOf = "credential"
	PerDestination PaceOf = "destination"
)

// Secret is a field of a credential.
type Secret struct {
	Name     string // such as bot_token
	Required bool
	// Counted is whether the service counts its rate limits per value of this field: channel records with the same value share one pace.
	Counted bool
	About   string // where a person finds it, for help texts
}

// Destination is the credential and the place to which a message is sent.
type Destination struct {
	// Credential is the account's credential, decrypted for this send; its fields are those of [Profile.Secrets]. It must appear in no
	// error and no log.
	Credential map[string]string
	// Route is the place in the chat, as returned by the adapter's [Receiver] or written by a person.
	Route json.RawMessage
	// Settings are the settings of the channel's record that are not secret.
	Settings map[string]string
}

// Message is one message: a part of a delivery.
type Message struct {
	// Key identifies the message: it is the same in every try and unique for the credential, with at most 128 characters of
	// [A-Za-z0-9_.-].
	Key string
	// Text has the profile's format and at most its limit. Plain is the same text without markup, for a service that rejects the markup.
	// Text is empty if only a file is sent.
	Text  string
	Plain string
	// Reply makes the message a reply to the message that the route names, if the service supports replies.
	Reply   bool
	File    *File
	Buttons []Button
}

// File is a file attached to a message.
type File struct {
	Name string
	Type string // MIME type: text/markdown
	Data []byte
}

// Button is a button under a message. Pressing it produces an [Inbound] with its data.
type Button struct {
	Label string
	Data  string // at most 64 bytes
	Style Style
}

// Style is the look of a button, for services that support styles.
type Style string

// The styles.
const (
	Neutral Style = ""
	Approve Style = "approve"
	Deny    Style = "deny"
)

// Receipt is a service's answer to an accepted message.
type Receipt struct {
	// ID is the id of the message in the service, by which it can be edited.
	ID string `json:"id"`
	// URL is the address of the message for people; empty if the service returns none.
	URL string `json:"url,omitzero"`
	// Route replaces the destination's route for later messages, if the chat has moved. Empty: it has not.
	Route json.RawMessage `json:"route,omitzero"`
	// Rest is how long the destination accepts no more messages, if the service has said so. 0: it has not.
	Rest time.Duration `json:"-"`
}

// Optional capabilities of adapters.
type (
	// Finder searches for a message that may have arrived. If found is false, the message certainly did not arrive: the search has covered
	// all messages from since on. If that is not certain, the error is an [Error].
	Finder interface {
		Find(ctx context.Context, to Destination, key string, since time.Time) (r Receipt, found bool, err error)
	}
	// Typist shows in the chat that an answer is being written. Its errors have no consequences.
	Typist interface {
		Typing(ctx context.Context, to Destination) error
	}
	// Editor replaces the content of a message and its buttons by those of m. It is idempotent.
	Editor interface {
		Edit(ctx context.Context, to Destination, id string, m Message) error
	}
	// Reactor marks the message that a route names as seen. Its errors have no consequences.
	Reactor interface {
		React(ctx context.Context, to Destination) error
	}
	// Checker checks a credential without sending a message. It returns whom the credential identifies, for people.
	Checker interface {
		Check(ctx context.Context, to Destination) (about string, err error)
	}
	// Registrar registers an address with the service, as the one to which its webhooks are sent.
	Registrar interface {
		Register(ctx context.Context, to Destination, hook *url.URL) error
	}
	// Fetcher opens a file that was attached to an inbound message, with the credential. It sends requests only to hosts of the service,
	// whatever the file's Ref is. Its error, and any error of reading the content, is an [Error]: [Refused] if the file will never be
	// available, [NotSent] if it may be later. A content that ends early is always an error. Fetch blocks until the service begins its
	// response; a read of the content blocks for at most half a minute.
	Fetcher interface {
		Fetch(ctx context.Context, to Destination, f InboundFile) (Content, error)
	}
	// Simulator returns a request like the ones that the service posts, signed with the channel's own secret, to try out a channel without
	// the service. It has no side effects; each call returns an event with a new id. Code: invalid.
	Simulator interface {
		Simulate(to Destination, said Said, now time.Time) (Request, error)
	}
	// Receiver reads the requests that the service posts to the gateway. Both methods have no side effects.
	Receiver interface {
		// Verify checks that the request is from the service: it compares the signature of the raw body in constant time, and requires a
		// signed time, if the service sends one, to be within five minutes of now. Codes: denied, which is answered with status 401;
		// not_found, if the channel's record lacks the secret that verifies requests.
		Verify(r Request, to Destination, now time.Time) error
		// Read parses a verified request. Events that do not concern Sandjet are of kind [Ignored], not errors. Code: invalid, if the body
		// is not one of the service's.
		Read(r Request, to Destination) (Inbound, error)
	}
)

// Said is a simulated message by a person.
type Said struct {
	Place string `json:"place"` // in the form in which channel records name places
	User  string `json:"user"`
	Text  string `json:"text"`
	// Files are the names of attached files. A test double serves files of these names, see chatfake.
	Files []string `json:"files,omitzero"`
}

// Request is an HTTP request that a service has posted to the gateway.
type Request struct {
	Header http.Header
	Query  url.Values
	Body   []byte
}

// InboundKind is the kind of an Inbound.
type InboundKind string

// The kinds of an Inbound.
const (
	Text      InboundKind = "text"      // a person wrote something
	Pressed   InboundKind = "pressed"   // a person pressed a button
	Handshake InboundKind = "handshake" // the service verifies the address
	Ignored   InboundKind = "ignored"   // an event that does not concern Sandjet
)

// Inbound is an event that a service has posted, such as a message.
type Inbound struct {
	Kind InboundKind
	// Event is the id of the event. It is the same each time the service posts the event.
	Event string
	// Conversation identifies the chat, thread or issue. It is the same for all messages in it.
	Conversation string
	// Place (the chat or repository) and User (who wrote) are checked against the allow-lists of the channel's record.
	Place, User string
	UserName    string // the display name of User
	Text        string
	Data        string // of the pressed button
	Message     string // id of the message, or of the message with the button
	Files       []InboundFile
	Route       json.RawMessage // where an answer is sent
	// Answer is the immediate HTTP response that the service expects. Zero value: 200 without a body.
	Answer Answer
	// Unheard is sent instead of Answer if the channel's record allows neither the place nor the user: Answer may make a service show a
	// pending answer, which never comes. Zero value: Answer is sent.
	Unheard Answer
	// Why is the reason if Kind is [Ignored].
	Why string
}

// InboundFile is a file attached to an inbound message. It is fetched later, with the credential.
type InboundFile struct {
	Name string
	Type string
	Size int64  // bytes; 0: unknown
	Ref  string // reference by which the adapter fetches it
}

// Content is a file that is being fetched. The caller closes it.
type Content struct {
	io.ReadCloser

	Size int64  // bytes; -1: unknown
	Type string // MIME type from the service; may be empty
}

// Answer is the response to a request.
type Answer struct {
	Status int // HTTP status; 0: 200
	Type   string
	Body   []byte
}

// Options are the options of all adapters. The zero value uses the service itself.
type Options struct {
	// Base is the address used instead of the service's own: of a self-hosted server, or of a test double.
	Base string
	// Transport sends the requests. Nil: the adapter creates one.
	Transport http.RoundTripper
	// Timeout limits the duration of a request. 0: 30 s.
	Timeout time.Duration
	// Now is the clock that decides whether tokens of limited lifetime are still valid. Nil: this process's clock.
	Now func() time.Time
}
