package docker

import (
	"io"
	"sync"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// stream is a connection to a process in a container.
type stream struct {
	client.HijackedResponse

	once sync.Once
}

// Write writes to the standard input of the process.
func (s *stream) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// Copy separates the two outputs of the stream and copies them.
func (s *stream) Copy(stdout, stderr io.Writer) error {
	_, err := stdcopy.StdCopy(stdout, stderr, s.Reader)
	return err
}

// Close closes the connection, which also ends the standard input of the program in the container.
func (s *stream) Close() error {
	s.once.Do(s.HijackedResponse.Close)
	return nil
}
