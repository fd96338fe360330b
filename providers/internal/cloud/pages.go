package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// How long a list may be, with all its pages. One that is longer is an [*Error] whose Kind is [KindTooLong], never a part of it: of a sandbox
// that no list shows it would be believed that it has ended.
const (
	MaxList      int64 = 64 << 20 // bytes
	MaxListPages       = 1000
)

// KindTooLong is the kind of the error of a list that is too long.
const KindTooLong = "too_long"

// tooLong is a list that is too long. It has an answer's status, so no row of a table has it tried again.
func tooLong(route, what string) error {
	return &Error{Route: route, Status: 200, Kind: KindTooLong, Sent: true, Message: "the list of sandboxes " + what +
		": remove those that are not needed at the service, or give this worker's installation another name"}
}

// Pages counts the pages of one list, which are read one after the other. The zero value but for Route is before the first.
type Pages struct {
	Route string // for errors

	read int
	size int64
}

// Read notes a page that has come, and of how many bytes. The error is that of a list that is too long, as one whose last page names another
// one for ever.
func (p *Pages) Read(size int64) error {
	p.read, p.size = p.read+1, p.size+size
	switch {
	case p.size > MaxList:
		return tooLong(p.Route, fmt.Sprintf("has more than %d MiB", MaxList>>20))
	case p.read > MaxListPages:
		return tooLong(p.Route, fmt.Sprintf("has more than %d pages", MaxListPages))
	}
	return nil
}

// Items reads an array from an answer item by item, for [Call.Stream]: the list of a service that knows no pages. Where the answer breaks
// off, it comes a second time from its beginning: begin is called at the start of each.
func Items[T any](begin func(), each func(T)) func(io.Reader) error {
	return func(r io.Reader) error {
		begin()
		d := json.NewDecoder(r)
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return errors.Join(errors.New("the answer is not an array"), err)
		}
		for d.More() {
			var item T
			if err := d.Decode(&item); err != nil {
				return fmt.Errorf("the answer is not understood: %w", err)
			}
			each(item)
		}
		if _, err := d.Token(); err != nil {
			return fmt.Errorf("the answer breaks off: %w", err)
		}
		return nil
	}
}

// bounded is an answer of at most MaxList bytes.
type bounded struct {
	from io.Reader
	read int64
}

var errTooLong = errors.New("the answer is too long")

func (b *bounded) Read(into []byte) (int, error) {
	if b.read > MaxList {
		return 0, errTooLong
	}
	n, err := b.from.Read(into)
	b.read += int64(n)
	return n, err
}

// stream has a call's own function read an answer.
func (c *Client) stream(call Call, body io.Reader) error {
	b := &bounded{from: body}
	err := call.Stream(b)
	switch {
	case b.read > MaxList:
		return tooLong(call.route(), fmt.Sprintf("has more than %d MiB", MaxList>>20))
	case err != nil:
		return c.broken(call, true, err)
	}
	return nil
}
