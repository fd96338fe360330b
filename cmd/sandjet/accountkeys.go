package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/schemas"
)

// The values of --account-keys.
const (
	keysOff     = "off"
	keysPrefer  = "prefer"
	keysRequire = "require"
)

// ownInstallation is appended to the operator's installation name for sandboxes that are created with accounts' own keys, so that listings
// with one key never include the sandboxes of the other, even if both keys belong to one team.
const ownInstallation = "-own"

// keyedBackend describes a backend that can be opened with the operator's credential or with an account's own.
type keyedBackend struct {
	name string
	// installation is the operator's name of the installation, which the flag sets. It may have at most longest characters.
	installation, flag string
	longest            int
	// variables are the names of the account's variables that hold its key, as the vendor's own tools name them. The key consists of all
	// of them.
	variables []string
	// open opens the provider with the values of these variables, or with the operator's key if key is nil.
	open func(key []string) (accountkeys.Leaf, error)
}

// check returns an error if the installation's name is too long for ownInstallation to be appended. Otherwise only the first call of an
// account with its own key would fail, as if that key were invalid.
func (b keyedBackend) check() error {
	if most := b.longest - len(ownInstallation); len(b.installation) > most {
		return schemas.Invalidf(b.flag, "%q is too long: with --account-keys it has at most %d characters, for %q is appended for sandboxes "+
			"of accounts' own keys", schemas.Quotable(b.installation), most, ownInstallation)
	}
	return nil
}

// openKeyed opens a backend with the operator's key. If --account-keys is prefer or require, accounts with a key of their own get a
// provider that was opened with that key.
func (n *node) openKeyed(b keyedBackend) (providers.Provider, error) {
	operator, err := b.open(nil)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w (\"sandjet doctor\" explains)", b.name, err)
	}
	n.onClose(func() { _ = operator.Close() })
	if n.accountKeys != keysPrefer && n.accountKeys != keysRequire {
		return operator, nil
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	needs := "the variable " + b.variables[0]
	if len(b.variables) > 1 {
		needs = "the variables " + strings.Join(b.variables, ", ")
	}
	p := accountkeys.New(accountkeys.Options{
		Operator: operator, Require: n.accountKeys == keysRequire, Open: b.open, Needs: needs, Log: n.log.With("part", b.name),
		Accounts: func() []schemas.AccountID { return n.records.Variables.Accounts(b.variables[0]) },
		Key: func(ctx context.Context, account schemas.AccountID) ([]string, bool, error) {
			if !n.records.Variables.Has(account, b.variables[0]) {
				return nil, false, nil
			}
			var key []string
			for _, name := range b.variables {
				value, err := n.records.Value(ctx, account, "env:"+name)
				if err != nil {
					return nil, false, err
				}
				key = append(key, value)
			}
			return key, true, nil
		},
	})
	n.onClose(func() { _ = p.Close() })
	return p, nil
}
