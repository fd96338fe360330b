package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of a list, with all its pages. A list that exceeds them returns an [*Error] whose Kind is [KindTooLong], never a part of the
// list: a sandbox missing from a list would be taken for ended.
const (
	MaxList      int64 = 64 << 20 // bytes
	MaxListPages       = 1000
)

// KindTooLong is the kind of the error of a list that is too long.
const KindTooLong = "too_long"

// tooLong returns the error for a list that is too long. Its status is that of a success, so that no row of the table retries it.
func tooLong(route, what string) error {
	return &Error{Route: route, Status: 200, Kind: KindTooLong, Sent: true, Message: "the list of sandboxes " + what +
		": remove those that are not needed at the service, or give this worker's installation another name"}
}

// Pages counts the pages of one list, which are read one after the other. A value with only Route set is ready.
type Pages struct {
	Route string // for errors

	read int
	size int64
}

// Read counts a page of that many bytes. It returns an error if the list is too long, for example because its last page refers to another
// one forever.
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

// Items returns a function for [Call.Stream] that reads a JSON array item by item, for a service whose lists have no pages. If the answer
// breaks off the call is repeated from the beginning: begin is called at each start.
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

// bounded reads at most MaxList bytes of an answer.
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

// stream reads an answer with the call's Stream function.
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
