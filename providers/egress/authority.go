package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// authority signs the certificates with which the relay acts as the hosts that secrets of one sandbox are bound to. Its key never leaves
// this process, and its own certificate is limited to these hosts.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by host: at most as many as there are bound hosts
}

// A sandbox lives at most 30 days and those after which it is removed.
const (
	authorityBefore = 24 * time.Hour // for clocks that differ
	authorityFor    = 90 * 24 * time.Hour
)

func newAuthority(hosts []string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return newAuthorityOf(key, hosts)
}

// newAuthorityOf makes an authority with an existing key.
func newAuthorityOf(key *ecdsa.PrivateKey, hosts []string) (*authority, error) {
	template, err := certificate("sandjet relay of this sandbox")
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.PermittedDNSDomainsCritical, template.PermittedDNSDomains = true, hosts
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return authorityOf(key, der)
}

// authorityOf returns the authority with that key and certificate.
func authorityOf(key *ecdsa.PrivateKey, der []byte) (*authority, error) {
	a := &authority{key: key, leaves: map[string]*tls.Certificate{}, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	if !a.cert.IsCA || !key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("the certificate is not that of the authority")
	}
	return a, nil
}

// deriveKey derives the key of an authority, the same for the same seed.
func deriveKey(seed []byte) (*ecdsa.PrivateKey, error) {
	const bytes, tries = 32, 16 // one in four thousand million is no key of the curve
	for i := range tries {
		raw, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("sandjet relay authority 1 %d", i), bytes)
		if err != nil {
			return nil, fmt.Errorf("derive a key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("no key can be derived")
}

// certificate returns a template with the fields that all certificates of an authority share.
func certificate(name string) (*x509.Certificate, error) {
	const bits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-authorityBefore), NotAfter: time.Now().Add(authorityFor),
	}, nil
}

// leaf returns the certificate for a host.
func (a *authority) leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if leaf := a.leaves[host]; leaf != nil {
		return leaf, nil
	}
	template, err := certificate("")
	if err != nil {
		return nil, err
	}
	template.DNSNames, template.NotAfter = []string{host}, a.cert.NotAfter
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.key}
	a.leaves[host] = leaf
	return leaf, nil
}
