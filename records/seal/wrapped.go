package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of a wrapped key.
const (
	MaxWrapped    = 8 << 10 // bytes of the blob
	MaxServiceKey = 2 << 10 // bytes of the name of the service's own key
)

// Wrapped is a key that a key service has sealed under a key of its own: who has the line cannot open
// anything without that service.
type Wrapped struct {
	ID      string // of the key in the ring
	Service string // such as aws-kms
	Key     string // the service's name for its own key
	Blob    []byte // the sealed key
}

// Line is the key as [Load] reads it, without the end of the line. It is no secret by itself.
func (w Wrapped) Line() string {
	return w.ID + " " + w.Service + ":" + w.Key + ":" + base64.StdEncoding.EncodeToString(w.Blob)
}

// Unwrapper is a key service.
type Unwrapper interface {
	// Unwrap returns the 32 bytes of the key. It blocks for at most some seconds, and ends with ctx.
	// Its errors name the service's key and show nothing of the secret.
	Unwrap(ctx context.Context, w Wrapped) ([]byte, error)
}

// Load reads a ring as [Parse] does, where a line may also be "ID SERVICE:KEY:BASE64". Such keys are
// opened by the service of that name, once, here. Codes: invalid, and those of the service.
func Load(ctx context.Context, text []byte, services map[string]Unwrapper) (*Ring, error) {
	entries, err := parse(text)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, len(entries))
	for i, e := range entries {
		if e.wrapped == nil {
			keys[i] = e.key
			continue
		}
		service := services[e.wrapped.Service]
		if service == nil {
			return nil, schemas.Invalidf("keys", "%s is a key of the service %q, which is not known here", e.wrapped.ID,
				schemas.Quotable(e.wrapped.Service))
		}
		secret, err := service.Unwrap(ctx, *e.wrapped)
		if err != nil {
			return nil, fmt.Errorf("open the key %s: %w", e.wrapped.ID, err)
		}
		if keys[i], err = NewKey(e.wrapped.ID, secret); err != nil {
			return nil, err
		}
	}
	return NewRing(keys...)
}

// entry is one line of a ring: a key, or one that is wrapped.
type entry struct {
	key     Key
	wrapped *Wrapped
}

func parse(text []byte) ([]entry, error) {
	if len(text) > MaxRingText {
		return nil, schemas.Invalidf("keys", "are longer than %d bytes", MaxRingText)
	}
	var entries []entry
	n := 0
	for line := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ',' }) {
		n++
		e, err := parseLine(line)
		if err != nil {
			return nil, schemas.Invalidf("keys", "entry %d %v", n, err)
		}
		if e != nil {
			entries = append(entries, *e)
		}
	}
	if len(entries) > MaxKeys { // before any service is asked
		return nil, schemas.Invalidf("keys", "there are %d: 1 to %d are needed", len(entries), MaxKeys)
	}
	return entries, nil
}

// lineError says what is wrong without repeating what may be a secret.
type lineError string

func (e lineError) Error() string { return string(e) }

func parseLine(line []byte) (*entry, error) {
	words := strings.Fields(string(line))
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil, nil //nolint:nilnil // no key is no error
	}
	if len(words) != 2 || !validID(words[0]) { // the id and the key
		return nil, lineError("is not \"ID BASE64\": make one with \"sandjet secrets generate\"")
	}
	if service, rest, ok := strings.Cut(words[1], ":"); ok {
		return parseWrapped(words[0], service, rest)
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(words[1])
	if err != nil || len(secret) != KeyBytes {
		return nil, lineError(fmt.Sprintf("has no %d bytes in base64 after its id: make one with \"sandjet secrets generate\"", KeyBytes))
	}
	return &entry{key: Key{words[0], secret}}, nil
}

// parseWrapped reads what follows the id of a wrapped key. The name of the service's key may have colons.
func parseWrapped(id, service, rest string) (*entry, error) {
	const wrong = lineError("is not \"ID SERVICE:KEY:BASE64\": make one with \"sandjet secrets generate --kms-key KEY\"")
	at := strings.LastIndexByte(rest, ':')
	if !validID(service) || at < 1 || at > MaxServiceKey {
		return nil, wrong
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(rest[at+1:])
	if err != nil || len(blob) == 0 || len(blob) > MaxWrapped {
		return nil, wrong
	}
	return &entry{wrapped: &Wrapped{ID: id, Service: service, Key: rest[:at], Blob: blob}}, nil
}
