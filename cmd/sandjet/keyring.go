package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/records/seal/awskms"
	"github.com/sandjet/sandjet/schemas"
)

// ring returns the keys for secrets: those that the flags name, else those of the data folder, where the first key is created if there is
// none.
func (f secretsFlags) ring(ctx context.Context, dir dataDir) (*seal.Ring, error) {
	if !f.named() {
		first := seal.Generate().Line() + "\n"
		if err := makeOnce(dir.secretsFile(), []byte(first)); err != nil {
			return nil, err
		}
	}
	return f.known(ctx, dir)
}

// named reports whether the flags name any keys.
func (f secretsFlags) named() bool { return f.SecretsKeyFile != "" || f.SecretsKeys != "" }

// known returns the keys as ring does, but never creates a first one, which would be a surprise on a host that only reads.
func (f secretsFlags) known(ctx context.Context, dir dataDir) (*seal.Ring, error) {
	switch {
	case f.SecretsKeyFile != "" && f.SecretsKeys != "":
		return nil, schemas.Invalidf("", "--secrets-key-file and --secrets-keys both give keys: use one of them")
	case f.SecretsKeys != "":
		r, err := f.load(ctx, []byte(f.SecretsKeys))
		if err != nil {
			return nil, fmt.Errorf("--secrets-keys: %w", err)
		}
		return r, nil
	case f.SecretsKeyFile != "":
		return f.readRing(ctx, f.SecretsKeyFile)
	}
	r, err := f.readRing(ctx, dir.secretsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, schemas.Errorf(schemas.NotFound,
			"there are no keys for secrets in %s: name those of the processes on this log with --secrets-key-file or SANDJET_SECRETS_KEYS", dir)
	}
	return r, err
}

// load parses a key ring. Wrapped keys are unwrapped here, once, by their key services.
func (f secretsFlags) load(ctx context.Context, text []byte) (*seal.Ring, error) {
	r, err := seal.Load(ctx, text, map[string]seal.Unwrapper{awskms.Name: awskms.Service{Endpoint: f.KMSEndpoint}})
	return r, err
}

// readRing reads a key ring from a file. Codes: invalid, denied, and those of a key service.
func (f secretsFlags) readRing(ctx context.Context, path string) (*seal.Ring, error) {
	b, err := readKeys(path, seal.MaxRingText+1)
	if err != nil {
		return nil, fmt.Errorf("keys for secrets: %w", err)
	}
	r, err := f.load(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("keys for secrets: %s: %w", path, err)
	}
	return r, nil
}

// readKeys reads a file of keys, up to most bytes. Other users must have no access to it; its group may read it, because some
// orchestrators mount secrets like that. Code: denied.
func readKeys(path string, most int64) ([]byte, error) {
	const othersOrGroupWrite = 0o027
	file, err := os.Open(path) // the operator's own file
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if m := info.Mode(); !m.IsRegular() || m.Perm()&othersOrGroupWrite != 0 {
		return nil, schemas.Errorf(schemas.Denied,
			"%s has the mode %s, so that other users reach it: chmod 600 it, and change the keys if others may have read them", path, m)
	}
	return io.ReadAll(io.LimitReader(file, most))
}
