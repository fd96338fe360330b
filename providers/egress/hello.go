package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
)

// helloWithin is how long a client may take to say whom it wants.
const helloWithin = 15 * time.Second

// encryptedHello is the TLS extension that hides the name of the server.
const encryptedHello = 0xfe0d

// errHello says that a hello was read whole.
var errHello = errors.New("the hello is read")

// listening is a connection that can be read but not written to. It records what was read.
type listening struct {
	net.Conn
	read bytes.Buffer
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.read.Write(p[:n])
	return n, err
}

func (l *listening) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// hello reads a TLS ClientHello with the parser of crypto/tls, without answering. It returns the server name, whether that is hidden by
// encrypted client hello, and all bytes read.
func hello(c net.Conn) (name string, hidden bool, read []byte, err error) {
	l := &listening{Conn: c}
	if err := c.SetReadDeadline(time.Now().Add(helloWithin)); err != nil {
		return "", false, nil, err
	}
	seen := false
	err = tls.Server(l, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			seen, name, hidden = true, h.ServerName, slices.Contains(h.Extensions, encryptedHello)
			return nil, errHello
		},
	}).HandshakeContext(context.Background())
	if !seen {
		return "", false, nil, err
	}
	return name, hidden, l.read.Bytes(), c.SetReadDeadline(time.Time{})
}

// checkHello reads the first bytes on a connection to a named host. It returns them if they are a TLS ClientHello for that host, and a
// refusal otherwise.
func checkHello(c net.Conn, t target) ([]byte, *Refusal) {
	name, hidden, read, err := hello(c)
	switch {
	case err != nil:
		return nil, t.refusal(RuleTLS, "what was said to "+t.String()+" is not TLS, and nothing else is allowed on this port")
	case hidden:
		return nil, t.refusal(RuleServerName,
			"the connection to "+t.String()+" hides the name of its server (encrypted client hello), which is not allowed")
	case name == "":
		return nil, t.refusal(RuleServerName, "the connection to "+t.String()+" does not say the name of its server, which is not allowed")
	}
	if h, err := netguard.ParseHost(name); err != nil || h != t.host {
		return nil, t.refusal(RuleServerName, "the connection to "+t.String()+" asks for another server than that")
	}
	return read, nil
}
