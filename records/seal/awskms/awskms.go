// Package awskms is AWS KMS as a key service of a ring: the line of a key in the ring holds it sealed
// under a key of KMS, and KMS opens it once, at the start of a process. It is the only package that
// knows AWS.
//
// What is sealed for one id of a ring does not open for another: the id is in the encryption context,
// which is also what CloudTrail shows of each use.
package awskms

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

// Name is the service in the line of a key.
const Name = "aws-kms"

// Within is how long one question to KMS may take, with all its repetitions.
const Within = 20 * time.Second

// Service asks KMS. It is safe for concurrent use. The zero value takes everything from where AWS's own
// programs do: variables such as AWS_REGION and AWS_PROFILE, shared files, the role of the host.
type Service struct {
	// Endpoint is another address of KMS, such as that of a VPC endpoint. It must be https, but for this
	// host's own: what KMS answers is the key. Empty: that of the region.
	Endpoint string
}

// Wrap has KMS make a new key for the id of a ring, sealed under its key, an ARN, an id or an alias.
// The plain key does not come here. Codes: as of Unwrap.
func (s Service) Wrap(ctx context.Context, id, key string) (seal.Wrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	client, err := s.client(ctx, key)
	if err != nil {
		return seal.Wrapped{}, err
	}
	out, err := client.GenerateDataKeyWithoutPlaintext(ctx, &kms.GenerateDataKeyWithoutPlaintextInput{
		KeyId: aws.String(key), KeySpec: types.DataKeySpecAes256, EncryptionContext: about(id),
	})
	if err != nil {
		return seal.Wrapped{}, explain(ctx, err, "kms:GenerateDataKeyWithoutPlaintext", key)
	}
	// The ARN, not what was asked for: an alias may lead to another key one day.
	return seal.Wrapped{ID: id, Service: Name, Key: aws.ToString(out.KeyId), Blob: out.CiphertextBlob}, nil
}

// Unwrap has KMS open the key of a ring. Codes: invalid (no region, not sealed for this id, or under
// another key), denied (no credentials, or not allowed), not_found (no such key), conflict (the key is
// disabled or being deleted), unavailable, timeout.
func (s Service) Unwrap(ctx context.Context, w seal.Wrapped) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	client, err := s.client(ctx, w.Key)
	if err != nil {
		return nil, err
	}
	out, err := client.Decrypt(ctx, &kms.DecryptInput{KeyId: aws.String(w.Key), CiphertextBlob: w.Blob, EncryptionContext: about(w.ID)})
	if err != nil {
		return nil, explain(ctx, err, "kms:Decrypt", w.Key)
	}
	return out.Plaintext, nil
}

// about is the encryption context of the key with an id.
func about(id string) map[string]string { return map[string]string{"app": "sandjet", "key": id} }

// client makes a client for a key: in the key's own region if its name has one.
func (s Service) client(ctx context.Context, key string) (*kms.Client, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "", "the settings of AWS cannot be read", err)
	}
	if a, err := arn.Parse(key); err == nil && a.Region != "" {
		cfg.Region = a.Region
	}
	if cfg.Region == "" {
		return nil, schemas.Errorf(schemas.Invalid,
			"there is no AWS region for the key %s: set AWS_REGION, or name the key by its ARN", schemas.Quotable(key))
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil { // asked for here, as KMS's own error hides why
		if ctx.Err() != nil {
			return nil, late(ctx, key)
		}
		return nil, schemas.Wrap(schemas.Denied, "",
			"there are no AWS credentials: give the process a role, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", err)
	}
	return kms.NewFromConfig(cfg, func(o *kms.Options) {
		if s.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.Endpoint)
		}
	}), nil
}

// check looks at the endpoint.
func (s Service) check() error {
	if s.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return schemas.Invalidf("", "the endpoint of KMS %q is not a URL such as https://vpce-1.kms.eu-west-1.vpce.amazonaws.com",
			schemas.Quotable(s.Endpoint))
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return schemas.Invalidf("", "the endpoint of KMS %s must be https: it answers with keys", schemas.Quotable(s.Endpoint))
	}
	return nil
}

func late(ctx context.Context, key string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("ask AWS KMS: %w", context.Cause(ctx))
	}
	return schemas.Wrap(schemas.Timeout, "", fmt.Sprintf("AWS KMS has not answered about the key %s within %s",
		schemas.Quotable(key), Within), ctx.Err())
}

// explain gives an error of KMS a code and the remedy.
func explain(ctx context.Context, err error, action, key string) error {
	key = schemas.Quotable(key)
	if ctx.Err() != nil {
		return late(ctx, key)
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return schemas.Wrap(schemas.Unavailable, "", "AWS KMS is not reached for the key "+key, err)
	}
	code := api.ErrorCode()
	is := func(codes ...string) bool {
		for _, c := range codes {
			if strings.TrimSuffix(code, "Exception") == c {
				return true
			}
		}
		return false
	}
	switch {
	case is("AccessDenied", "KMSAccessDenied"):
		return schemas.Wrap(schemas.Denied, "",
			fmt.Sprintf("AWS does not allow %s with the key %s: allow it in the role's policy and in the key's", action, key), err)
	case is("UnrecognizedClient", "InvalidSignature", "SignatureDoesNotMatch", "InvalidClientTokenId", "ExpiredToken",
		"MissingAuthenticationToken", "IncompleteSignature"):
		return schemas.Wrap(schemas.Denied, "", "AWS does not take the credentials of this process: they are wrong or have ended", err)
	case is("NotFound", "InvalidArn"):
		return schemas.Wrap(schemas.NotFound, "", "AWS KMS has no key "+key+" in this account and region", err)
	case is("Disabled", "KMSInvalidState", "InvalidKeyUsage", "KeyUnavailable"):
		return schemas.Wrap(schemas.Conflict, "", "the key "+key+
			" of AWS KMS cannot be used now: it is disabled, being deleted, or for something else", err)
	case is("InvalidCiphertext", "IncorrectKey"):
		return schemas.Wrap(schemas.Invalid, "", "AWS KMS does not open it with the key "+key+
			": the line was changed, or made for another id or under another key", err)
	case is("Validation"):
		return schemas.Wrap(schemas.Invalid, "", "AWS KMS does not understand the name of the key "+key, err)
	}
	return schemas.Wrap(schemas.Unavailable, "", fmt.Sprintf("AWS KMS cannot answer about the key %s now (%s)",
		key, schemas.Quotable(code)), err)
}
