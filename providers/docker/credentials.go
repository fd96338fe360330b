package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

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

// bindsSecrets reports whether a container works with secrets that it does not have.
func (r rules) bindsSecrets() bool { return r.Relay != nil && len(r.Relay.Credentials) > 0 }

// newCredentials are those of a container of one call; nil: it has none.
func (p *Provider) newCredentials(r rules) (*egress.Credentials, error) {
	if !r.bindsSecrets() {
		return nil, nil //nolint:nilnil // most have none
	}
	rules, err := egress.Compile(*r.Relay, p.opt.PrivateNetworks)
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

// newKeptCredentials are those of a kept container that is to be made, and its label.
func (p *Provider) newKeptCredentials(r rules) (creds *egress.Credentials, label string, err error) {
	if !r.bindsSecrets() {
		return nil, "", nil
	}
	rules, err := egress.Compile(*r.Relay, p.opt.PrivateNetworks)
	if err != nil {
		return nil, "", err
	}
	k := keptCredentials{Nonce: rand.Text()}
	if creds, err = p.derive(&k, rules); err != nil {
		return nil, "", err
	}
	k.Certificate = creds.Authority()
	text, err := json.Marshal(k)
	return creds, string(text), err
}

// derive makes what stands for secrets of what is known of them.
func (p *Provider) derive(k *keptCredentials, rules *egress.Rules) (*egress.Credentials, error) {
	if p.opt.Keys == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "relay", "this worker has no keys for secrets that are bound to hosts")
	}
	key, seed, err := p.opt.Keys.Derive(k.Key, purpose, []byte(p.opt.Installation+" "+k.Nonce))
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "relay", "the secrets of the container cannot be served: "+schemas.Public(err).Message, err)
	}
	k.Key = key
	creds, err := egress.DeriveCredentials(rules, seed, k.Certificate)
	return creds, noCredentials(err)
}

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

// credentialsOf are those of a kept container, the same at each worker; nil: it has none.
func (p *Provider) credentialsOf(c container.InspectResponse, rules *egress.Rules) (*egress.Credentials, error) {
	label := c.Config.Labels[labelCredentials]
	if label == "" {
		return nil, nil //nolint:nilnil // most have none
	}
	k, err := parseKeptCredentials(label)
	if err != nil {
		return nil, err
	}
	return p.derive(&k, rules)
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
func (p *Provider) follow(creds *egress.Credentials, labels map[string]string) {
	account, sandbox := schemas.AccountID(labels[labelAccount]), schemas.SandboxID(labels[labelSandbox])
	if creds == nil || p.opt.Values == nil || sandbox == "" {
		return
	}
	creds.Follow(func(ctx context.Context) (map[string]string, error) { return p.opt.Values(ctx, account, sandbox) })
}

// lock puts what stands for secrets into the environment of a command, and has it trust the relay.
func (r *running) lock(creds *egress.Credentials) error {
	switch {
	case creds == nil && len(r.cmd.Network.Credentials) > 0: // the command would get the values themselves
		return schemas.Errorf(schemas.NotFound, "run", "the sandbox was made without secrets that are bound to hosts: reserve it again")
	case creds == nil:
		return nil
	}
	env := creds.Hide(r.program.Env)
	if len(r.cmd.Env) > 0 { // else it controls a job, by the variables of the job's start
		var err error
		if env, err = creds.Take(r.program.Env); err != nil {
			return err
		}
	}
	for _, name := range egress.TrustVariables() {
		if _, ok := env[name]; !ok {
			env[name] = trustFile
		}
	}
	r.program.Env = env
	return nil
}

// putTrust makes the file of certificates that programs of a container trust: those of its image, and one. Where the root is read-only the
// file's folder is a volume of the container's own. It belongs to root.
func (p *Provider) putTrust(ctx context.Context, id string, certificate []byte, writable bool) error {
	all, err := p.imageCertificates(ctx, id)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		all = append(bytes.TrimRight(all, "\n"), '\n')
	}
	all = append(all, certificate...)
	to, name := trustDir, path.Base(trustFile)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if writable {
		to, name = path.Dir(trustDir), path.Base(trustDir)+"/"+name
		err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Dir(name) + "/", Mode: 0o755, ModTime: time.Now()})
	}
	err = errors.Join(err,
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(all)), ModTime: time.Now()}))
	if err == nil {
		_, err = w.Write(all)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err = p.engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: to, Content: &archive})
	return err
}

// imageCertificates are those that programs of a container's image trust; empty: the image has none.
func (p *Provider) imageCertificates(ctx context.Context, id string) ([]byte, error) {
	for _, from := range authorities() {
		all, link, err := p.fileOf(ctx, id, from)
		if err == nil && link != "" {
			all, _, err = p.fileOf(ctx, id, link)
		}
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, err
		case len(all) > 0:
			return all, nil
		}
	}
	return nil, nil
}

// fileOf reads a file of a container, mostCertificates at most, or where a link leads.
func (p *Provider) fileOf(ctx context.Context, id, from string) (content []byte, link string, err error) {
	found, err := p.engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: from})
	if err != nil {
		return nil, "", err
	}
	defer found.Content.Close() //nolint:errcheck // read only
	if found.Stat.LinkTarget != "" {
		return nil, found.Stat.LinkTarget, nil
	}
	r := tar.NewReader(found.Content)
	h, err := r.Next()
	if err != nil {
		return nil, "", fmt.Errorf("read %s of the image: %w", from, err)
	}
	if h.Typeflag != tar.TypeReg || h.Size > mostCertificates {
		return nil, "", nil
	}
	content, err = io.ReadAll(io.LimitReader(r, mostCertificates))
	return content, "", err
}
