package wsconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// CloseCode is the code of a close frame: below 3000 those of RFC 6455, from 4000 on the application's own.
type CloseCode uint16

// Close codes of RFC 6455 §7.4.1 that this package sends.
const (
	CloseNormal        CloseCode = 1000
	CloseProtocolError CloseCode = 1002
	CloseInvalidText   CloseCode = 1007 // a text message that is not UTF-8, or a compressed one that does not unpack
	CloseTooLarge      CloseCode = 1009
)

// CloseError is why a connection ends with a close frame: what the client did against the protocol, or what the
// application said with [Conn.Close].
type CloseError struct {
	Code   CloseCode
	Reason string
}

func (e *CloseError) Error() string { return e.Reason }

// Why a connection ends that has no client left to write to.
var (
	ErrGone   = errors.New("the client has closed the connection")
	ErrSilent = errors.New("the client is silent")
)

// WriteError is why a connection ends whose client did not take what was written; os.ErrDeadlineExceeded is in it when a write blocked for
// [Options.Stall].
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return fmt.Sprintf("write: %v", e.Err) }
func (e *WriteError) Unwrap() error { return e.Err }

func violation(format string, args ...any) error {
	return &CloseError{CloseProtocolError, fmt.Sprintf(format, args...)}
}

var (
	errTooLarge    = &CloseError{CloseTooLarge, "the message is too large"}
	errInvalidText = &CloseError{CloseInvalidText, "the text message is not valid UTF-8"}
	errNotDeflate  = &CloseError{CloseInvalidText, "the compressed message cannot be unpacked"}
)

const codeSize = 2

// checkCloseBody refuses what a client must not send as the body of a close frame (RFC 6455 §5.5.1 and §7.4).
func checkCloseBody(b []byte) error {
	switch {
	case len(b) == 0:
		return nil
	case len(b) < codeSize:
		return violation("the close frame has half a code")
	case !mayBeSent(binary.BigEndian.Uint16(b)):
		return violation("the close code %d must not be sent", binary.BigEndian.Uint16(b))
	case !utf8.Valid(b[codeSize:]):
		return &CloseError{CloseInvalidText, "the reason of the close frame is not valid UTF-8"}
	}
	return nil
}

// mayBeSent reports whether a close code may stand in a frame: those that are registered for it, and those of libraries
// and applications.
func mayBeSent(code uint16) bool {
	const (
		first, last                   = 1000, 1014
		reserved, none, broken        = 1004, 1005, 1006 // for APIs, or reserved
		libraries, endOfOwn    uint16 = 3000, 5000
	)
	switch code {
	case reserved, none, broken:
		return false
	}
	return first <= code && code <= last || libraries <= code && code < endOfOwn
}

// closeBody is the body of a close frame. A reason that does not fit into a control frame is cut.
func closeBody(code CloseCode, reason string) []byte {
	if most := maxControl - codeSize; len(reason) > most {
		for reason = reason[:most]; !utf8.ValidString(reason); {
			reason = reason[:len(reason)-1]
		}
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}
