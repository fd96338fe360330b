//go:build linux

package lambdatest

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers/lambda/handler"
)

// Where an environment finds what is between it and the service.
const (
	folder         = "/run/lambdatest"
	socketName     = "runtime.sock"
	syncedName     = "synced"
	folderVariable = "SANDJET_LAMBDATEST"
	abiVariable    = "SANDJET_LAMBDATEST_LANDLOCK"
	aheadVariable  = "SANDJET_LAMBDATEST_AHEAD"
)

// Main runs the program of an execution environment if this process was started as one, and returns otherwise.
func Main() {
	handler.Entry()
	dir := os.Getenv(folderVariable)
	if dir == "" {
		return
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	address, err := relay(filepath.Join(dir, socketName))
	if err == nil {
		err = os.Setenv("AWS_LAMBDA_RUNTIME_API", address)
	}
	if err == nil {
		h := handler.FromEnv(log)
		h.MaxABI, _ = strconv.Atoi(os.Getenv(abiVariable))       // anything else is the kernel's
		ahead, _ := time.ParseDuration(os.Getenv(aheadVariable)) // anything else is none
		h.Now = func() time.Time { return time.Now().Add(ahead) }
		h.Sync = func() { note(filepath.Join(dir, syncedName)) } // that of the kernel would be the whole host's
		err = h.Serve()
	}
	log.Error("environment ended", "error", err)
	os.Exit(1)
}

// relay serves the runtime API, which it reaches by a socket, on an address of this environment, as the service does.
func relay(socket string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the process
	if err != nil {
		return "", err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go join(in, socket)
		}
	}()
	return l.Addr().String(), nil
}

func join(in net.Conn, socket string) {
	defer in.Close()                     //nolint:errcheck // it was only passed on
	out, err := net.Dial("unix", socket) //nolint:noctx,gosec // it answers or is gone, and is the service's own
	if err != nil {
		return
	}
	defer out.Close() //nolint:errcheck // as above
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); closeWrite(out) })
	both.Go(func() { _, _ = io.Copy(in, out); closeWrite(in) })
	both.Wait()
}

// closeWrite closes the sending direction of a connection.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it may be gone
	}
}

// note appends a byte to a file.
func note(path string) {
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil { //nolint:gosec // the service's own
		_, _ = f.WriteString("x")
		_ = f.Close()
	}
}
