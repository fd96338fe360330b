package cloud

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Random is a text that is never made twice: 32 hexadecimal digits.
func Random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Digest stands for a text where a service takes 32 hexadecimal digits and not every text. Of nothing it is empty.
func Digest(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// BoxDigest stands for the sandbox that an account keeps under a key.
func BoxDigest(account schemas.AccountID, key string) string {
	return Digest(string(account) + "\x00" + key)
}

// mostImage is how many characters the name of an image has at most. The pattern does not count them: it would take a millisecond at the
// start of each process.
const mostImage = 255

var image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// IsImage reports whether name may be the name of a container image. Whether there is such an image the service says.
func IsImage(name string) bool { return len(name) <= mostImage && image.MatchString(name) }

// mostKnown is how many names [Known] has at a time.
const mostKnown = 10_000

// Known is a set of names that a worker remembers, so that it need not ask for them again. It forgets all of them when they are too
// many. The zero value is empty; it may be used from many goroutines.
type Known struct {
	mu  sync.Mutex
	all map[string]bool
}

// Has reports whether name is remembered.
func (k *Known) Has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[name]
}

// Add remembers name.
func (k *Known) Add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= mostKnown {
		k.all = map[string]bool{}
	}
	k.all[name] = true
}
