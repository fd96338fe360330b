// Package kmstest is an AWS KMS for tests: an HTTP server that speaks KMS's protocol and does what it says. Keys and data keys are real
// AES-256-GCM; the encryption context is bound; each request's signature is computed and compared.
package kmstest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// What a client needs to be let in.
const (
	Region    = "eu-west-1"
	AccessKey = "AKIDEXAMPLE"
	SecretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" //nolint:gosec // the example of AWS's own documentation
	arnPrefix = "arn:aws:kms:" + Region + ":111122223333:key/"
)

// ARN is the name of the server's key with an id, such as "one".
func ARN(id string) string { return arnPrefix + id }

// Server is the fake. Its methods may be called while it serves.
type Server struct {
	URL string

	mu      sync.Mutex
	keys    map[string]cipher.AEAD // by ARN
	aliases map[string]string      // to ARNs
	refuse  map[string]string      // action to the error that it gets
	calls   []string
	block   chan struct{} // not nil: requests wait for it
}

// Start serves as [New] does, until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, stop, err := New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return s
}

// New serves the keys "one" and "two", and the alias alias/sandjet for the first, until stop is called.
func New() (s *Server, stop func(), err error) {
	s = &Server{keys: map[string]cipher.AEAD{}, aliases: map[string]string{"alias/sandjet": ARN("one")}, refuse: map[string]string{}}
	for _, id := range []string{"one", "two"} {
		if s.keys[ARN(id)], err = newAEAD(); err != nil {
			return nil, nil, err
		}
	}
	srv := httptest.NewServer(s)
	s.URL = srv.URL
	return s, srv.Close, nil
}

// Env is what lets AWS's library into a server, and keeps it from all else that it could find.
func Env() map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": Region, "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_KMS": "", "AWS_MAX_ATTEMPTS": "1",
	}
}

// Refuse answers an action, such as Decrypt, with an error of that type; empty: not any more.
func (s *Server) Refuse(action, errorType string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[action] = errorType
}

// Hang lets requests wait until the returned function is called.
func (s *Server) Hang() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block := make(chan struct{})
	s.block = block
	return sync.OnceFunc(func() { close(block) })
}

// Calls lists the actions that were asked for.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// request is what all actions take together, under KMS's own names.
//
//nolint:tagliatelle // KMS's names
type request struct {
	KeyID             string            `json:"KeyId"`
	KeySpec           string            `json:"KeySpec"`
	Plaintext         []byte            `json:"Plaintext"`
	CiphertextBlob    []byte            `json:"CiphertextBlob"`
	EncryptionContext map[string]string `json:"EncryptionContext"`
}

// answer is what all actions give together.
//
//nolint:tagliatelle // KMS's names
type answer struct {
	KeyID               string `json:"KeyId"`
	Plaintext           []byte `json:"Plaintext,omitempty"`
	CiphertextBlob      []byte `json:"CiphertextBlob,omitempty"`
	EncryptionAlgorithm string `json:"EncryptionAlgorithm,omitempty"`
}

// ServeHTTP answers one request of the JSON 1.1 protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	action, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
	s.mu.Lock()
	s.calls = append(s.calls, action)
	refusal, block := s.refuse[action], s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case r.Method != http.MethodPost || !ok || r.Header.Get("Content-Type") != "application/x-amz-json-1.1":
		fail(w, "UnknownOperationException")
		return
	case r.Header.Get("Authorization") == "":
		fail(w, "MissingAuthenticationToken")
		return
	case !signed(r, body):
		fail(w, "InvalidSignatureException")
		return
	case refusal != "":
		fail(w, refusal)
		return
	}
	var in request
	if err := json.Unmarshal(body, &in); err != nil {
		fail(w, "SerializationException")
		return
	}
	out, problem := s.answer(action, in)
	if problem != "" {
		fail(w, problem)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client may have gone
}

func (s *Server) answer(action string, in request) (out answer, problem string) {
	arn := in.KeyID
	if to, ok := s.aliases[arn]; ok {
		arn = to
	}
	key := s.keys[arn]
	if key == nil {
		return out, "NotFoundException"
	}
	switch action {
	case "GenerateDataKey", "GenerateDataKeyWithoutPlaintext":
		if in.KeySpec != "AES_256" {
			return out, "ValidationException"
		}
		plain := random(32) // AES-256
		out = answer{KeyID: arn, CiphertextBlob: sealBlob(key, arn, plain, in.EncryptionContext)}
		if action == "GenerateDataKey" {
			out.Plaintext = plain
		}
		return out, ""
	case "Encrypt":
		return answer{KeyID: arn, CiphertextBlob: sealBlob(key, arn, in.Plaintext, in.EncryptionContext),
			EncryptionAlgorithm: "SYMMETRIC_DEFAULT"}, ""
	case "Decrypt":
		under, sealed, ok := bytes.Cut(in.CiphertextBlob, []byte{0})
		switch {
		case !ok || s.keys[string(under)] == nil || len(sealed) < key.NonceSize():
			return out, "InvalidCiphertextException"
		case string(under) != arn:
			return out, "IncorrectKeyException"
		}
		plain, err := key.Open(nil, sealed[:key.NonceSize()], sealed[key.NonceSize():], bound(arn, in.EncryptionContext))
		if err != nil {
			return out, "InvalidCiphertextException"
		}
		return answer{KeyID: arn, Plaintext: plain, EncryptionAlgorithm: "SYMMETRIC_DEFAULT"}, ""
	}
	return out, "UnknownOperationException"
}

// sealBlob is the ARN, a zero byte, the vector and what is sealed.
func sealBlob(key cipher.AEAD, arn string, plain []byte, context map[string]string) []byte {
	iv := random(key.NonceSize())
	blob := append(append([]byte(arn), 0), iv...)
	return key.Seal(blob, iv, plain, bound(arn, context))
}

// bound is the additional data: the key and the context, sorted by name.
func bound(arn string, context map[string]string) []byte {
	b, _ := json.Marshal([]any{arn, context}) //nolint:errchkjson // it sorts the names; strings always marshal
	return b
}

// signed computes the request's signature over the parts that its client says it has signed, and compares it.
func signed(r *http.Request, body []byte) bool {
	auth := r.Header.Get("Authorization")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	_, names, ok := strings.Cut(auth, "SignedHeaders=")
	if err != nil || !ok || !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential="+AccessKey+"/") {
		return false
	}
	names, _, _ = strings.Cut(names, ",")
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body)) //nolint:gosec // it is never sent
	if err != nil {
		return false
	}
	list := strings.Split(names, ";")
	sort.Strings(list)
	for _, name := range list {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	creds := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}
	if err := v4.NewSigner().SignHTTP(r.Context(), creds, again, hex.EncodeToString(sum[:]), "kms", Region, at); err != nil {
		return false
	}
	return again.Header.Get("Authorization") == auth
}

func fail(w http.ResponseWriter, errorType string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": errorType, "message": "refused by the test"}) //nolint:errchkjson // as above
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func newAEAD() (cipher.AEAD, error) {
	block, err := aes.NewCipher(random(32)) // AES-256
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
