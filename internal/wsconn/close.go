package wsconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// CloseCode is the code of a close frame: below 3000 one of RFC 6455, from 4000 on one of the application.
type CloseCode uint16

// Close codes of RFC 6455 §7.4.1 that this package sends.
const (
	CloseNormal        CloseCode = 1000
	CloseProtocolError CloseCode = 1002
	CloseInvalidText   CloseCode = 1007 // a text message that is not UTF-8, or a compressed one that cannot be decompressed
	CloseTooLarge      CloseCode = 1009
)

// CloseError is the reason for ending a connection with a close frame: a protocol violation of the client, or the argument of
// [Conn.Close].
type CloseError struct {
	Code   CloseCode
	Reason string
}

func (e *CloseError) Error() string { return e.Reason }

// The reasons for ending a connection without a close frame.
var (
	ErrGone   = errors.New("the client has closed the connection")
	ErrSilent = errors.New("the client is silent")
)

// WriteError is the reason for ending a connection to which a write failed. It wraps os.ErrDeadlineExceeded if the write blocked for
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

// checkCloseBody returns an error for a body of a close frame that clients must not send (RFC 6455 §5.5.1 and §7.4).
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

// mayBeSent reports whether a close code is allowed in a frame: registered ones, and those of libraries and applications.
func mayBeSent(code uint16) bool {
	const (
		first, last                   = 1000, 1014
		reserved, none, broken        = 1004, 1005, 1006 // for APIs only, or reserved
		libraries, endOfOwn    uint16 = 3000, 5000
	)
	switch code {
	case reserved, none, broken:
		return false
	}
	return first <= code && code <= last || libraries <= code && code < endOfOwn
}

// closeBody returns the body of a close frame. A reason that is too long for a control frame is cut.
func closeBody(code CloseCode, reason string) []byte {
	if most := maxControl - codeSize; len(reason) > most {
		for reason = reason[:most]; !utf8.ValidString(reason); {
			reason = reason[:len(reason)-1]
		}
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}
