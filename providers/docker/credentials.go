package docker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/netip"

	"github.com/moby/moby/api/types/container"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// Keys derives secrets that all workers of an installation can derive. A ring of package seal implements it.
type Keys interface {
	// Derive returns 32 secret bytes for a purpose and a text, by the key with an id, which is returned; empty: the current one.
	Derive(id, purpose string, text []byte) (key string, secret []byte, err error)
}

const (
	trustDir  = "/etc/sandjet"
	trustFile = trustDir + "/certificates.pem"
	// mostCertificates is how many bytes of the image's own certificates are read.
	mostCertificates = 4 << 20
	purpose          = "docker relay"
)

// authorities returns the paths at which images store the certificates that their programs trust.
func authorities() []string {
	return []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}
}

// secrets makes the placeholders for secrets that are bound to hosts in an installation's containers.
type secrets struct {
	installation string
	keys         Keys // nil: no container can have such secrets
	private      []netip.Prefix
	values       func(context.Context, schemas.AccountID, schemas.SandboxID) (map[string]string, error) // nil: they are not known
}

// bindsSecrets reports whether the container uses secrets of which it only sees placeholders.
func (r rules) bindsSecrets() bool { return r.Relay != nil && len(r.Relay.Credentials) > 0 }

// forCall returns the credentials of a container of one call; nil if it has none.
func (s *secrets) forCall(r rules) (*egress.Credentials, error) {
	if !r.bindsSecrets() {
		return nil, nil //nolint:nilnil // most have none
	}
	rules, err := egress.Compile(*r.Relay, s.private)
	if err != nil {
		return nil, err
	}
	creds, err := egress.NewCredentials(rules)
	return creds, noCredentials(err)
}

// keptCredentials is the content of a kept container's label about its secrets. Nothing in it is secret: the placeholders and the
// authority's key are derived from it with the workers' key.
type keptCredentials struct {
	Key         string `json:"key"` // its id
	Nonce       string `json:"nonce"`
	Certificate []byte `json:"certificate"` // of the authority, which programs of the container trust
}

// forNew returns the credentials of a kept container that is to be made, and its label.
func (s *secrets) forNew(r rules) (creds *egress.Credentials, label string, err error) {
	if !r.bindsSecrets() {
		return nil, "", nil
	}
	rules, err := egress.Compile(*r.Relay, s.private)
	if err != nil {
		return nil, "", err
	}
	k := keptCredentials{Nonce: rand.Text()}
	if creds, err = s.derive(&k, rules); err != nil {
		return nil, "", err
	}
	k.Certificate = creds.Authority()
	text, err := json.Marshal(k)
	return creds, string(text), err
}

// derive derives the credentials from a label and the workers' keys, and sets k.Key to the id of the key used.
func (s *secrets) derive(k *keptCredentials, rules *egress.Rules) (*egress.Credentials, error) {
	if s.keys == nil {
		return nil, schemas.OpErrorf(schemas.Unsupported, "relay", "this worker has no keys for secrets that are bound to hosts")
	}
	key, seed, err := s.keys.Derive(k.Key, purpose, []byte(s.installation+" "+k.Nonce))
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "relay", "the secrets of the container cannot be served: "+schemas.Public(err).Message, err)
	}
	k.Key = key
	creds, err := egress.DeriveCredentials(rules, seed, k.Certificate)
	return creds, noCredentials(err)
}

// noCredentials wraps an error of making a container's certificates; nil stays nil. Code: unavailable.
func noCredentials(err error) error {
	if err == nil {
		return nil
	}
	return schemas.Wrap(schemas.Unavailable, "relay", "the container's own certificates cannot be made", err)
}

// parseKeptCredentials parses a label. Code: internal, it is invalid.
func parseKeptCredentials(label string) (k keptCredentials, err error) {
	if err = json.Unmarshal([]byte(label), &k); err == nil && (k.Key == "" || k.Nonce == "" || len(k.Certificate) == 0) {
		err = errors.New("something is missing")
	}
	if err != nil {
		return k, schemas.Wrap(schemas.Internal, "relay", "what the container says of its secrets cannot be read", err)
	}
	return k, nil
}

// forKept returns the credentials of a kept container, the same in each worker; nil if it has none.
func (s *secrets) forKept(c container.InspectResponse, rules *egress.Rules) (*egress.Credentials, error) {
	label := c.Config.Labels[labelCredentials]
	if label == "" {
		return nil, nil //nolint:nilnil // most have none
	}
	k, err := parseKeptCredentials(label)
	if err != nil {
		return nil, err
	}
	return s.derive(&k, rules)
}

// trusted returns the certificate that programs of a kept container were set up to trust; nil if there is none.
func trusted(c container.InspectResponse) ([]byte, error) {
	label := c.Config.Labels[labelCredentials]
	if label == "" {
		return nil, nil
	}
	k, err := parseKeptCredentials(label)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate}), err
}

// certificateOf returns the certificate that a container is to trust; nil if it has no credentials.
func certificateOf(creds *egress.Credentials) []byte {
	if creds == nil {
		return nil
	}
	return creds.Certificate()
}

// follow makes the relay of a kept container read the current values from the sandbox's record, because commands in it may come from other
// workers.
func (s *secrets) follow(creds *egress.Credentials, labels map[string]string) {
	account, sandbox := schemas.AccountID(labels[labelAccount]), schemas.SandboxID(labels[labelSandbox])
	if creds == nil || s.values == nil || sandbox == "" {
		return
	}
	creds.Follow(func(ctx context.Context) (map[string]string, error) { return s.values(ctx, account, sandbox) })
}

// hide replaces secrets in a command's environment by placeholders, and makes the command trust the relay's certificate. Code: not_found,
// the container was made without such secrets.
func (e *execution) hide(creds *egress.Credentials) error {
	switch {
	case creds == nil && len(e.cmd.Network.Credentials) > 0: // the command would get the values themselves
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made without secrets that are bound to hosts: reserve it again")
	case creds == nil:
		return nil
	}
	env := creds.Hide(e.program.Env)
	if len(e.cmd.Env) > 0 { // else it controls a job, by the variables of the job's start
		var err error
		if env, err = creds.Take(e.program.Env); err != nil {
			return err
		}
	}
	for _, name := range egress.TrustVariables() {
		if _, ok := env[name]; !ok {
			env[name] = trustFile
		}
	}
	e.program.Env = env
	return nil
}
