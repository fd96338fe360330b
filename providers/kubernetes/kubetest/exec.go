package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The channels of the WebSocket protocol, and its name.
const (
	channelIn, channelOut, channelErr, channelStatus, channelClose = 0, 1, 2, 3, 255

	protocolWS   = "v5.channel.k8s.io"
	protocolSPDY = "v4.channel.k8s.io"
)

// stream is the connection of one exec.
type stream struct {
	pod   *pod
	stdin io.Reader
	out   func(channel byte, data []byte) error
	cut   func() // breaks the connection
	end   func() // closes it in order
}

// exec runs a program in a pod for a client.
func (c *Cluster) exec(w http.ResponseWriter, r *http.Request, name string) {
	c.mu.Lock()
	p := c.pods[name]
	ready := p != nil && !p.gone && text(c.objects[p.key], "status", "phase") == "Running"
	c.mu.Unlock()
	q := r.URL.Query()
	switch {
	case !ready:
		fail(w, apierrors.NewNotFound(key{"", "pods", name}.of(), name))
		return
	case q.Get("container") != "main" || len(q["command"]) == 0:
		fail(w, apierrors.NewBadRequest("no such container, or no command"))
		return
	case websocket.IsWebSocketUpgrade(r) && c.opt.NoWebSockets:
		fail(w, apierrors.NewBadRequest("Upgrade request required"))
		return
	}
	var s *stream
	var err error
	if websocket.IsWebSocketUpgrade(r) {
		s, err = c.overWebSocket(w, r)
	} else {
		s, err = overSPDY(w, r)
	}
	if err != nil {
		return // the answer is written
	}
	s.pod = p
	c.mu.Lock()
	c.execs[s] = true
	c.mu.Unlock()
	status := c.runExec(s, q["command"])
	c.mu.Lock()
	delete(c.execs, s)
	c.mu.Unlock()
	if b, err := json.Marshal(status); err == nil && s.out(channelStatus, b) == nil {
		s.end()
	}
	s.cut()
}

// runExec runs a program beside a pod's first process. If the connection breaks the program continues: its output is dropped and its
// standard input ends.
func (c *Cluster) runExec(s *stream, command []string) metav1.Status {
	p := s.pod
	args := []string{"-t", strconv.Itoa(p.pid), "-m", "-p", "-n", "-i", "-u", "-r", "-w", "--",
		"setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs",
		"--bounding-set=-all", "--inh-caps=-all", "env", "-i"}
	args = append(append(args, p.env...), command...)
	cmd := exec.Command("nsenter", args...) //nolint:noctx // only its pod's end ends it
	in, err := cmd.StdinPipe()
	if err != nil {
		return failure(err)
	}
	var outputs [2]*os.File
	var theirs []*os.File
	for i := range outputs {
		r, w, err := os.Pipe()
		if err != nil {
			return failure(err)
		}
		defer r.Close() //nolint:errcheck // it was only read
		outputs[i], theirs = r, append(theirs, w)
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	err = cmd.Start()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return failure(err)
	}
	c.work.Go(func() {
		_, _ = io.Copy(in, s.stdin) // the program need not read it
		_ = in.Close()
	})
	var readers sync.WaitGroup
	for i, r := range outputs {
		readers.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := r.Read(buf)
				if n > 0 && s.out(byte(channelOut+i), buf[:n]) != nil {
					return // what comes now stays in the pipe, and the program waits
				}
				if err != nil {
					return
				}
			}
		})
	}
	err = cmd.Wait()
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(2 * time.Second): // another process holds the pipe
		for _, r := range outputs {
			_ = r.SetReadDeadline(time.Now())
		}
		<-drained
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		code := exit.ExitCode() // below 0: by a signal, with its pod
		if code < 0 {
			code = 137
		}
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: fmt.Sprintf("command terminated with non-zero exit code: %d", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}},
		}
	}
	return failure(err)
}

func failure(err error) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}

// overWebSocket accepts an exec by the protocol v5.channel.k8s.io.
func (c *Cluster) overWebSocket(w http.ResponseWriter, r *http.Request) (*stream, error) {
	upgrader := websocket.Upgrader{Subprotocols: []string{protocolWS}, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	in, feed := io.Pipe()
	closed := make(chan struct{})
	c.work.Go(func() {
		defer close(closed)
		for {
			_, m, err := conn.ReadMessage()
			switch {
			case err != nil:
				_ = feed.Close()
				return
			case len(m) > 1 && m[0] == channelIn:
				_, _ = feed.Write(m[1:]) // it is not read any more: continue until the other end closes
			case len(m) == 2 && m[0] == channelClose && m[1] == channelIn:
				_ = feed.Close()
			}
		}
	})
	var mu sync.Mutex
	return &stream{
		stdin: in,
		out: func(channel byte, data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			return conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...))
		},
		cut: func() { _ = in.Close(); _ = conn.Close() },
		end: func() {
			closeFrame := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
			_ = conn.WriteControl(websocket.CloseMessage, closeFrame, time.Now().Add(time.Second))
			_ = in.Close()
			select {
			case <-closed:
			case <-time.After(time.Second):
			}
		},
	}, nil
}

// overSPDY accepts an exec by the protocol v4.channel.k8s.io, with the library that API servers use.
func overSPDY(w http.ResponseWriter, r *http.Request) (*stream, error) {
	if _, err := httpstream.Handshake(r, w, []string{protocolSPDY}); err != nil {
		return nil, err
	}
	arrived := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		arrived <- s
		return nil
	})
	if conn == nil {
		return nil, errors.New("no SPDY")
	}
	streams := map[string]httpstream.Stream{}
	for len(streams) < 4 {
		select {
		case s := <-arrived:
			streams[s.Headers().Get("streamType")] = s
		case <-time.After(10 * time.Second):
			_ = conn.Close()
			return nil, errors.New("streams are missing")
		}
	}
	channels := map[byte]httpstream.Stream{channelOut: streams["stdout"], channelErr: streams["stderr"], channelStatus: streams["error"]}
	return &stream{
		stdin: streams["stdin"],
		out: func(channel byte, data []byte) error {
			_, err := channels[channel].Write(data)
			return err
		},
		cut: func() { _ = conn.Close() },
		end: func() {
			for _, s := range channels {
				_ = s.Close()
			}
			select {
			case <-conn.CloseChan():
			case <-time.After(time.Second):
			}
		},
	}, nil
}
