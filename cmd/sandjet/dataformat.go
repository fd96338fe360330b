package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/sandjet/sandjet/schemas"
)

// dataFormat is the number of the layout of a data folder that this version writes. It increases when older versions cannot use the folder
// any more. A folder without a number has format 1, which is older than the numbers.
const dataFormat = 1

// folderFormat is the content of format.json.
type folderFormat struct {
	Format  int               `json:"format"`
	Account schemas.AccountID `json:"account,omitzero"` // account of the key in identity.json; empty until one was created here
}

// checkFormat checks that this version can use the folder, and writes the format into a folder that has none. Code unsupported: a newer
// version has written it, and nothing was changed. Code invalid: its format cannot be read.
func (d dataDir) checkFormat() error {
	got, err := once(d.formatFile(), folderFormat{Format: dataFormat})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		_, err = d.account() // a read-only folder: the first write reports a better error
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

// account returns the account whose identity was created in the folder; empty if there was none.
func (d dataDir) account() (schemas.AccountID, error) {
	got, err := readJSON[folderFormat](d.formatFile())
	return got.Account, d.judgeFormat(got, err)
}

// remember records the account whose identity the folder has. Two processes that do so at once write the same.
func (d dataDir) remember(a schemas.AccountID) error {
	return writeJSON(d.formatFile(), folderFormat{Format: dataFormat, Account: a})
}
