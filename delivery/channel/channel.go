// Package channel is what chat channels have in common: what an adapter of one can do, what it is given, and how it reports the outcome.
//
// An adapter is a translation and nothing more. It keeps no state, never tries a request again, and resolves nothing: the account's
// credential, the place in the chat and the words are handed to it. Everything that must survive a crash (which part was sent, under which
// id, when it is tried again) belongs to its caller. An adapter may be called from any number of goroutines.
//
// # Outcomes
//
// An adapter sends one request and says what is known of the message: not sent, limited, refused or ambiguous. Trying again, waiting and
// looking for a message belong to its caller, which keeps a ledger. delivery/internal/chatapi is the one way in which adapters speak
// HTTP.
//
//   - Not sent is certain. No service carries out a request whose body the transport has not begun to read; when the transport fails, the
//     body is closed for good, so that nothing in the background can complete the request. Requests without a body go by whether there was
//     a connection (httptrace).
//   - A status is definite, but for 5xx, which is ambiguous unless the service's own table says otherwise: a proxy in between may have
//     reported a timeout of a service that was still at work. 429 is limited, and all other 4xx and every redirect are refused.
//   - A success that cannot be read (cut, not JSON, longer than a MiB) is ambiguous; a refusal that is cut is not sent, because what
//     the refusal was is not known.
//   - The transport sends nothing again: bodies cannot be rewound (GetBody is nil), so neither an idle connection that has just ended
//     nor an Idempotency-Key has it do so. Idle connections end after 20 s, sooner than those of services.
//   - A second request is sent by an adapter only after a definite refusal that names what to change: Telegram does not understand
//     marks, or a group has moved.
//   - Secrets are named with each request, and replaced in all that is said of it: as they are, escaped for paths, queries, JSON and
//     quotes, in base64 and hexadecimal. Addresses are never repeated. The text is cut after the replacing.
//   - Bases are the operator's, never a tenant's: no address of an account is dialled here.
//
// The suite channeltest holds every adapter to this, against doubles that keep state, repeat secrets in their errors, and do what was
// asked before they fail (chatfake).
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
	// Profile is what the service can do. It does not change.
	Profile() Profile
	// Send sends one message. An error is an [Error], which says whether the message may have arrived. It blocks for one request, or for two
	// if the service has certainly refused the first or a search comes first, and ends soon after ctx.
	Send(ctx context.Context, to Destination, m Message) (Receipt, error)
	// Destination names what the service's limits count: a chat, a channel, an issue. It is pure, and fails where a route is not one
	// of this service: code invalid, with the field.
	Destination(route json.RawMessage) (string, error)
}

// Profile is what a chat service can do.
type Profile struct {
	// Kind is the name of the channel: telegram.
	Kind string
	// Format is how its text is written.
	Format Format
	// Limit is how long the text of a message may be, in units of Unit.
	Limit int
	Unit  Unit
	// Caption is how long text may be that goes with a file. 0: as Limit.
	Caption int
	// Once is what keeps a message from being sent twice, and Window how long the service remembers a key. 0: for good.
	Once   Once
	Window time.Duration
	// MaxFile is how large a file may be, in bytes. 0: it takes none.
	MaxFile int64
	// Buttons is whether a message may have buttons.
	Buttons bool
	// Pace is how often a message may be sent, as far as the service documents a limit, or is known to accept.
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

// The ways.
const (
	// OnceByKey: the service itself sends a message with the same key once, within Window.
	OnceByKey Once = "key"
	// OnceByLook: the adapter is a [Finder].
	OnceByLook Once = "look"
	// OnceNever: nothing does. The second try says that it may be one.
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

// What limits count for.
const (
	PerCredential  PaceOf = "credential"
	PerDestination PaceOf = "destination"
)

// Secret is a field of a credential.
type Secret struct {
	Name     string // bot_token
	Required bool
	// Counted is whether the service's limits count for who has it: records with the same value share one pace.
	Counted bool
	About   string // where a person finds it
}

// Destination is the credential and the place to which a message is sent.
type Destination struct {
	// Credential is the account's, opened for this send: fields as [Profile.Secrets] names them. It must reach no error and no log.
	Credential map[string]string
	// Route is the place in the chat, as the adapter's [Receiver] made it or a person wrote it.
	Route json.RawMessage
	// Settings of the channel's record that are not secret.
	Settings map[string]string
}

// Message is one message: a part of a delivery.
type Message struct {
	// Key names the message. It is the same on every try, unique for the credential, of the characters [A-Za-z0-9_.-], at most 128.
	Key string
	// Text is written in the profile's format and no longer than its limit. Plain is the same without any marks, for a service that
	// refuses the marks. Text is empty where there is a file alone.
	Text  string
	Plain string
	// Reply has the message stand as an answer to the one that its route names, where the service knows answers.
	Reply   bool
	File    *File
	Buttons []Button
}

// File is a file attached to a message.
type File struct {
	Name string
	Type string // of its content: text/markdown
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
	// ID is the message's, by which it is found and edited.
	ID string `json:"id"`
	// URL is where a person sees it, if the service says so.
	URL string `json:"url,omitzero"`
	// Route is where later parts go, where that is not where this one went: a chat that has moved. Empty: where this one went.
	Route json.RawMessage `json:"route,omitzero"`
	// Rest is how long the destination takes nothing more, where the service says so. 0: it does not.
	Rest time.Duration `json:"-"`
}

// Optional abilities of adapters.
type (
	// Finder finds a message that may have arrived. Found false is certain: the service shows all since then, and it is not among
	// them. An [Error] where it cannot say.
	Finder interface {
		Find(ctx context.Context, to Destination, key string, since time.Time) (r Receipt, found bool, err error)
	}
	// Typist shows that an answer is being made. It is of no consequence where it fails.
	Typist interface {
		Typing(ctx context.Context, to Destination) error
	}
	// Editor replaces a message, with the buttons of m and no others. Editing twice is editing once.
	Editor interface {
		Edit(ctx context.Context, to Destination, id string, m Message) error
	}
	// Reactor marks the message that a route names as seen. It is of no consequence where it fails.
	Reactor interface {
		React(ctx context.Context, to Destination) error
	}
	// Checker says whether a credential works, without sending a message.
	Checker interface {
		Check(ctx context.Context, to Destination) (about string, err error)
	}
	// Registrar has the service send its webhooks to an address.
	Registrar interface {
		Register(ctx context.Context, to Destination, hook *url.URL) error
	}
	// Fetcher opens a file that came with a message, with the credential. Only the service's own hosts are asked, whatever the file's
	// Ref says. An [Error] where it cannot: of kind [Refused] where the file will never come, [NotSent] where it may come later. Errors of
	// the content while it is read are such errors too, and what ends early is always one. It blocks for as long as the service takes
	// for the beginning of its answer; a read blocks for half a minute at most.
	Fetcher interface {
		Fetch(ctx context.Context, to Destination, f InboundFile) (Content, error)
	}
	// Simulator makes up a request as the service would post it, signed with the channel's own secret, to try a channel without the
	// service. It is pure but for the event's id, which is another one each time. Code: invalid.
	Simulator interface {
		Simulate(to Destination, said Said, now time.Time) (Request, error)
	}
	// Receiver reads what the service posts to us. Both methods are pure.
	Receiver interface {
		// Verify says whether the request is from the service: the signature over the raw body, in constant time, and where it has a
		// time within five minutes of now. Codes: denied, which is answered with 401; not_found where the record lacks the secret to
		// verify by.
		Verify(r Request, to Destination, now time.Time) error
		// Read understands a request that was verified. What it need not know is of kind [Ignored], not an error. Code: invalid,
		// where the body is not of the service.
		Read(r Request, to Destination) (Inbound, error)
	}
)

// Said is a simulated message by a person.
type Said struct {
	Place string `json:"place"` // as the records of channels name places
	User  string `json:"user"`
	Text  string `json:"text"`
	// Files are the names of files that come with it. A double has them, see chatfake.
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

// The kinds.
const (
	Text      InboundKind = "text"      // a person wrote something
	Pressed   InboundKind = "pressed"   // a person pressed a button
	Handshake InboundKind = "handshake" // the service tries the address
	Ignored   InboundKind = "ignored"   // nothing that concerns us
)

// Inbound is an event that a service has posted, such as a message.
type Inbound struct {
	Kind InboundKind
	// Event names it: the same each time the service posts it.
	Event string
	// Conversation names the chat, thread or issue: the same for all that is written there.
	Conversation string
	// Place and User are held against the allow-lists of the channel's record: the chat or repository, and who wrote.
	Place, User string
	UserName    string // as people see it
	Text        string
	Data        string // of the button
	Message     string // the message's id, or that of the one with the button
	Files       []InboundFile
	Route       json.RawMessage // where an answer goes
	// Answer is the response that the service expects at once; zero: 200 and nothing.
	Answer Answer
	// Unheard is the answer in place of Answer where the channel's record listens to neither the place nor the user: a service that
	// shows that an answer is being made would show it for long. Zero: Answer.
	Unheard Answer
	// Why it is ignored.
	Why string
}

// InboundFile is a file attached to an inbound message. It is fetched later, with the credential.
type InboundFile struct {
	Name string
	Type string
	Size int64  // bytes; 0: not said
	Ref  string // what the adapter fetches it by
}

// Content is a file that is being fetched. The caller closes it.
type Content struct {
	io.ReadCloser

	Size int64  // bytes; -1: not said
	Type string // as the service says; it may be empty
}

// Answer is the response to a request.
type Answer struct {
	Status int // 0: 200
	Type   string
	Body   []byte
}

// Options are the options of all adapters. The zero value uses the service itself.
type Options struct {
	// Base is where the service is, in place of its own address: a server of one's own, or a double of it.
	Base string
	// Transport carries the requests. Nil: one of the adapter's own.
	Transport http.RoundTripper
	// Timeout bounds a request. 0: 30 s.
	Timeout time.Duration
	// Now is the time by which short-lived permissions to answer are judged. Nil: this process's clock.
	Now func() time.Time
}
