package cloud

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Random returns a unique random text of 32 hexadecimal digits.
func Random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Digest returns a hash of a text as 32 hexadecimal digits, for services that do not accept every text. It is empty for an empty text.
func Digest(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// BoxDigest returns the digest that identifies the sandbox kept for an account under a key.
func BoxDigest(account schemas.AccountID, key string) string {
	return Digest(string(account) + "\x00" + key)
}

// mostImage is the maximal length of an image's name, in characters. It is not part of the pattern, whose compilation would take a
// millisecond at the start of each process.
const mostImage = 255

var image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// IsImage reports whether name has the form of a container image's name. Only the service knows whether the image exists.
func IsImage(name string) bool { return len(name) <= mostImage && image.MatchString(name) }

// mostKnown is the maximal number of names in a [Known].
const mostKnown = 10_000

// Known is a set of names that saves a worker requests to the service. It is emptied when it grows too large. The zero value is empty; it
// is safe for concurrent use.
type Known struct {
	mu  sync.Mutex
	all map[string]bool
}

// Has reports whether name is in the set.
func (k *Known) Has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[name]
}

// Add adds name to the set.
func (k *Known) Add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= mostKnown {
		k.all = map[string]bool{}
	}
	k.all[name] = true
}
