package mcp

import (
	"context"
	"errors"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// RunStdio serves one client on a pair of streams, one JSON message per line, until in ends or ctx is done. Calls that run then continue.
// Nothing but the protocol is written to out. It closes neither stream.
func (s *Server) RunStdio(ctx context.Context, scope Scope, in io.Reader, out io.Writer) error {
	defer s.Close()
	defer context.AfterFunc(ctx, s.Drain)()
	c := &session{Server: s, scope: scope, stdio: true}
	err := c.protocol().Run(ctx, &sdk.IOTransport{
		Reader: io.NopCloser(in), Writer: unclosed{out}, MaxLineLength: schemas.MaxRequest,
	})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// unclosed is a writer whose Close does nothing.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
