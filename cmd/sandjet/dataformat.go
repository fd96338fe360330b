package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/sandjet/sandjet/schemas"
)

// dataFormat is the number of the layout of a data folder that this version writes. It grows when an older version could not
// use a folder any more; a folder without a number is of format 1, from before there was one.
const dataFormat = 1

// folderFormat is what format.json says.
type folderFormat struct {
	Format  int               `json:"format"`
	Account schemas.AccountID `json:"account,omitzero"` // whose key identity.json has; empty until one was made here
}

// checkFormat sees that this version can use the folder, and writes the format into one that has none. Code unsupported: a newer
// version has written it; nothing was changed. Code invalid: its format cannot be read.
func (d dataDir) checkFormat() error {
	got, err := once(d.formatFile(), folderFormat{Format: dataFormat})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		_, err = d.account() // a folder that is only read: what writes to it says more
		return err
	}
	return d.judgeFormat(got, err)
}

func (d dataDir) judgeFormat(got folderFormat, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: it says which version can use the folder; restore it from a backup", err)
	case got.Format < 1:
		return schemas.Errorf(schemas.Invalid, "%s has no format: restore it from a backup", d.formatFile())
	case got.Format > dataFormat:
		return schemas.Errorf(schemas.Unsupported, "the data folder %s has the format %d, and this version knows formats up to %d: "+
			"use a newer sandjet, or choose another folder with --data-dir", d, got.Format, dataFormat)
	}
	return nil
}

// account is the account whose identity was made in the folder; empty when there was none.
func (d dataDir) account() (schemas.AccountID, error) {
	got, err := readJSON[folderFormat](d.formatFile())
	return got.Account, d.judgeFormat(got, err)
}

// remember notes whose identity the folder has. Of two processes that do so at once both note the same.
func (d dataDir) remember(a schemas.AccountID) error {
	return writeJSON(d.formatFile(), folderFormat{Format: dataFormat, Account: a})
}
