package egress

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// markPrefix begins what stands for a secret in a sandbox.
const markPrefix = "sjsec_"

// Credentials stores the secrets of one sandbox that are bound to hosts. The sandbox has a random placeholder for each. The relay replaces
// placeholders by secrets in the headers of requests to the hosts that they are bound to, and nowhere else: see [Options]. Its methods are
// safe for concurrent use.
type Credentials struct {
	hosts     map[string][]string // by variable
	marks     map[string]string   // by variable: what stands for its value
	authority *authority

	// look finds the values when a request needs them. Nil: they are what was taken last.
	look    func(context.Context) (map[string]string, error)
	looking chan struct{} // has room for the one that looks
	looked  time.Time     // of the last read

	mu     sync.Mutex
	values map[string]string // by variable
}

const (
	valuesFor  = time.Second     // that values which were looked up are used
	lookWithin = 5 * time.Second // values are looked up
)

// NewCredentials returns the credentials of a sandbox with these rules; nil if they bind no secrets. It has no values before
// [Credentials.Take].
func NewCredentials(r *Rules) (*Credentials, error) {
	if len(r.credentials) == 0 {
		return nil, nil //nolint:nilnil // most sandboxes have none
	}
	c := &Credentials{hosts: r.credentials, marks: map[string]string{}, values: map[string]string{}}
	for name := range c.hosts {
		c.marks[name] = markPrefix + strings.ToLower(rand.Text())
	}
	var err error
	c.authority, err = newAuthority(c.bound())
	return c, err
}

// DeriveCredentials is [NewCredentials] for a sandbox that outlives this process: the placeholders and the authority's key are derived
// from a seed of 32 secret bytes, and are the same in each process with the seed. Certificate is what [Credentials.Authority] returned
// when the sandbox was made; nil makes a new one.
func DeriveCredentials(r *Rules, seed, certificate []byte) (*Credentials, error) {
	if len(r.credentials) == 0 {
		return nil, nil //nolint:nilnil // most sandboxes have none
	}
	const markBytes = 16
	c := &Credentials{hosts: r.credentials, marks: map[string]string{}, values: map[string]string{}}
	for name := range c.hosts {
		mark, err := hkdf.Key(sha256.New, seed, nil, "sandjet relay mark 1 "+name, markBytes)
		if err != nil {
			return nil, fmt.Errorf("derive what stands for a secret: %w", err)
		}
		c.marks[name] = markPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mark))
	}
	key, err := deriveKey(seed)
	if err != nil {
		return nil, err
	}
	if certificate == nil {
		c.authority, err = newAuthorityOf(key, c.bound())
	} else {
		c.authority, err = authorityOf(key, certificate)
	}
	return c, err
}

// bound returns all hosts that secrets are bound to.
func (c *Credentials) bound() []string {
	var hosts []string
	for _, bound := range c.hosts {
		hosts = append(hosts, bound...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Authority returns the certificate of the sandbox's own authority in DER, for [DeriveCredentials].
func (c *Credentials) Authority() []byte { return c.authority.cert.Raw }

// Follow makes the relay read the values of variables with look, at most once a second, when requests need them: other workers run
// commands in the sandbox too. It must be called before the relay is started. If look fails with unavailable the relay uses the last
// values; after another error it uses none.
func (c *Credentials) Follow(look func(context.Context) (map[string]string, error)) {
	c.look, c.looking = look, make(chan struct{}, 1)
}

// refresh reads the values, if that is due.
func (c *Credentials) refresh(ctx context.Context) {
	if c.look == nil {
		return
	}
	select {
	case c.looking <- struct{}{}:
		defer func() { <-c.looking }()
	case <-ctx.Done():
		return
	}
	if !c.looked.IsZero() && time.Since(c.looked) < valuesFor {
		return
	}
	within, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	env, err := c.look(within)
	if ctx.Err() != nil {
		return // the caller is gone: the next one reads
	}
	c.looked = time.Now()
	if err == nil {
		_, err = c.Take(env)
	}
	if code := schemas.CodeOf(err); err == nil || code == schemas.Unavailable || within.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = map[string]string{}
}

// TrustVariables returns the environment variables that name the file of trusted certificates.
func TrustVariables() []string {
	return []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
		"DENO_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO"}
}

// Certificate returns the certificate of the sandbox's own authority, as PEM. Programs in the sandbox must trust it in addition to their
// usual ones.
func (c *Credentials) Certificate() []byte { return c.authority.pem }

// Take stores the values of bound variables from an environment; the relay uses them from now on. It returns a copy of env with their
// placeholders. Code: invalid (a variable is missing, or its value cannot be sent in a header).
func (c *Credentials) Take(env map[string]string) (map[string]string, error) {
	taken := map[string]string{}
	for name := range c.marks {
		value, ok := env[name]
		if !ok {
			return nil, schemas.Invalidf("network.credentials", "%s is bound to hosts, and there is no such variable", name)
		}
		if err := schemas.CheckCredential(value); err != nil {
			return nil, schemas.Invalidf("network.credentials", "the value of %s %v", name, err)
		}
		taken[name] = value
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = taken
	return c.Hide(env), nil
}

// Hide returns a copy of an environment with placeholders for bound variables, without storing their values.
func (c *Credentials) Hide(env map[string]string) map[string]string {
	shown := maps.Clone(env)
	for name, mark := range c.marks {
		if _, ok := env[name]; ok {
			shown[name] = mark
		}
	}
	return shown
}

// binds reports whether secrets are bound to a host.
func (c *Credentials) binds(host string) bool {
	if c == nil {
		return false
	}
	for _, hosts := range c.hosts {
		if slices.Contains(hosts, host) {
			return true
		}
	}
	return false
}

// keys returns the secrets for a host. Missing is a variable whose value is unknown; empty if all are known.
func (c *Credentials) keys(ctx context.Context, host string) (k keys, missing string) {
	c.refresh(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	var pairs []string
	for name, hosts := range c.hosts {
		switch value := c.values[name]; {
		case !slices.Contains(hosts, host):
		case value == "":
			missing = name
		default:
			pairs = append(pairs, c.marks[name], value)
			k.secrets = append(k.secrets, value)
		}
	}
	k.put = strings.NewReplacer(pairs...)
	return k, missing
}

// keys are the secrets that one request may use.
type keys struct {
	put     *strings.Replacer // them in place of what stands for them
	secrets []string          // what must not come back
}

// unlock replaces placeholders by secrets in headers, anywhere in a value and within Basic authentication.
func (k *keys) unlock(h http.Header) {
	for name, values := range h {
		for i, value := range values {
			values[i] = k.put.Replace(value)
			if name == "Authorization" {
				values[i] = k.unlockBasic(values[i])
			}
		}
	}
}

// unlockBasic replaces placeholders in the user and password of Basic authentication. It adds the resulting value to the secrets.
func (k *keys) unlockBasic(value string) string {
	scheme, encoded, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return value
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return value
	}
	with := k.put.Replace(string(plain))
	if with == string(plain) {
		return value
	}
	secret := base64.StdEncoding.EncodeToString([]byte(with))
	k.secrets = append(k.secrets, secret)
	return scheme + " " + secret
}
