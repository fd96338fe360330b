//go:build linux

package egresstest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProbeVariable is set for a test's own program in a sandbox, where it has to call [BeProbe] with its arguments and end.
const ProbeVariable = "SANDJET_TEST_NETPROBE"

// BeProbe does what its arguments say and prints the answer, or "no:" and the error.
func BeProbe(args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	said, err := probeNet(ctx, args)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "no:", err)
		return
	}
	_, _ = fmt.Fprintln(os.Stdout, strings.TrimSpace(said))
}

func probeNet(ctx context.Context, args []string) (string, error) {
	switch args[0] {
	case "get": // a URL, and the Host or the server's name to claim instead
		return probeGet(ctx, args[1:])
	case "tunnel": // by the proxy of the variables, to a host and port, a text
		return probeTunnel(ctx, args[1], args[2])
	case "bare": // get without a proxy
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
			_ = os.Unsetenv(name)
		}
		return probeGet(ctx, args[1:])
	case "say": // over a network, to an address, a text
		c, err := (&net.Dialer{}).DialContext(ctx, args[1], args[2])
		if err != nil {
			return "", err
		}
		defer c.Close() //nolint:errcheck // it was read
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, strings.ReplaceAll(args[3], `\n`, "\r\n")); err != nil {
			return "", err
		}
		buf := make([]byte, 1<<10)
		n, err := c.Read(buf)
		return string(buf[:n]), err
	case "ask": // a name, at a server
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, args[2])
		}}
		a, err := r.LookupHost(ctx, args[1])
		return fmt.Sprint(a), err
	case "text": // records of a name that could carry something
		a, err := net.DefaultResolver.LookupTXT(ctx, args[1])
		return fmt.Sprint(a), err
	case "raw":
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		return "a raw socket", err
	case "packet":
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		return "a packet socket", err
	case "flood": // so many connections to an address, all at once and kept
		return probeFlood(ctx, args[1])
	default:
		return "", fmt.Errorf("unknown: %q", args)
	}
}

func probeGet(ctx context.Context, args []string) (string, error) {
	blind := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it wants to get out, not to know to whom
	transport := &http.Transport{TLSClientConfig: blind, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
	if err != nil {
		return "", err
	}
	if len(args) > 1 {
		req.Host, transport.TLSClientConfig.ServerName = args[1], args[1]
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%s %d %s", resp.Proto, resp.StatusCode, body), err
}

// probeTunnel opens a tunnel to a host by the proxy and sends a text there.
func probeTunnel(ctx context.Context, to, text string) (string, error) {
	at, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil {
		return "", err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // it was read
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	pass, _ := at.User.Password()
	auth := base64.StdEncoding.EncodeToString([]byte(at.User.Username() + ":" + pass))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", to, auth); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusOK {
		return resp.Status, nil
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return "", err
	}
	buf := make([]byte, 1<<10)
	n, err := r.Read(buf)
	return string(buf[:n]), err
}

// probeFlood opens 10,000 connections and counts those accepted.
func probeFlood(ctx context.Context, to string) (string, error) {
	const most = 10_000
	answered, failed := 0, 0
	for n := 0; n < most && ctx.Err() == nil; n++ {
		if connects(ctx, to) {
			answered++
		} else {
			failed++
		}
	}
	return fmt.Sprintf("flooded %d", answered+failed), nil
}

// connects opens a connection that stays open until this process ends.
func connects(ctx context.Context, to string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", to)
	if err == nil {
		_, _ = io.WriteString(c, "x")
	}
	return err == nil
}
