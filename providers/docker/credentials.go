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

// Keys derive secrets that all workers of an installation can derive. A ring of package seal is one.
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

// authorities are where images have the certificates that their programs trust.
func authorities() []string {
	return []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}
}

// secrets makes what stands for secrets that are bound to hosts in the containers of an installation.
type secrets struct {
	installation string
	keys         Keys // nil: no container can have such secrets
	private      []netip.Prefix
	values       func(context.Context, schemas.AccountID, schemas.SandboxID) (map[string]string, error) // nil: they are not known
}

// bindsSecrets reports whether a container works with secrets that it does not have.
func (r rules) bindsSecrets() bool { return r.Relay != nil && len(r.Relay.Credentials) > 0 }

// forCall are the credentials of a container of one call; nil: it has none.
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

// keptCredentials is what the label of a kept container says of its secrets. Nothing of it is secret: the workers' key makes of it
// what stands for values and the key of the authority.
type keptCredentials struct {
	Key         string `json:"key"` // its id
	Nonce       string `json:"nonce"`
	Certificate []byte `json:"certificate"` // of the authority, which programs of the container trust
}

// forNew are the credentials of a kept container that is to be made, and its label.
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

// derive makes what stands for secrets of what is known of them.
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

// noCredentials gives an error in making a container's certificates its code.
func noCredentials(err error) error {
	if err == nil {
		return nil
	}
	return schemas.Wrap(schemas.Unavailable, "relay", "the container's own certificates cannot be made", err)
}

// parseKeptCredentials reads a label.
func parseKeptCredentials(label string) (k keptCredentials, err error) {
	if err = json.Unmarshal([]byte(label), &k); err == nil && (k.Key == "" || k.Nonce == "" || len(k.Certificate) == 0) {
		err = errors.New("something is missing")
	}
	if err != nil {
		return k, schemas.Wrap(schemas.Internal, "relay", "what the container says of its secrets cannot be read", err)
	}
	return k, nil
}

// forKept are the credentials of a kept container, the same at each worker; nil: it has none.
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

// trusted is the certificate that programs of a kept container trust; nil: none of ours.
func trusted(c container.InspectResponse) ([]byte, error) {
	label := c.Config.Labels[labelCredentials]
	if label == "" {
		return nil, nil
	}
	k, err := parseKeptCredentials(label)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate}), err
}

// certificateOf is the certificate that a container is to trust; nil: none of ours.
func certificateOf(creds *egress.Credentials) []byte {
	if creds == nil {
		return nil
	}
	return creds.Certificate()
}

// follow has the relay of a kept container know the values that its sandbox's record has now: commands in it are other workers' too.
func (s *secrets) follow(creds *egress.Credentials, labels map[string]string) {
	account, sandbox := schemas.AccountID(labels[labelAccount]), schemas.SandboxID(labels[labelSandbox])
	if creds == nil || s.values == nil || sandbox == "" {
		return
	}
	creds.Follow(func(ctx context.Context) (map[string]string, error) { return s.values(ctx, account, sandbox) })
}

// hide puts what stands for secrets into the environment of a command, and has it trust the relay.
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
