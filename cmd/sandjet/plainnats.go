package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// publishPlain publishes one message by the text protocol of NATS alone, to show that a call needs no library. It returns when the server
// has received the message.
func publishPlain(ctx context.Context, address, subject string, body []byte) error {
	const patience = 5 * time.Second
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("NATS address: %w", err)
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer c.Close() //nolint:errcheck // everything was answered
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	password, _ := u.User.Password()
	hello, err := json.Marshal(map[string]any{"user": u.User.Username(), "pass": password, "verbose": false, "pedantic": false})
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s\r\nPUB %s %d\r\n%s\r\nPING\r\n", hello, subject, len(body), body); err != nil {
		return fmt.Errorf("publish by plain NATS: %w", err)
	}
	lines := bufio.NewReader(c)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case err != nil:
			return fmt.Errorf("publish by plain NATS: %w", err)
		case strings.HasPrefix(line, "PONG"):
			return nil
		case strings.HasPrefix(line, "-ERR"):
			return fmt.Errorf("publish by plain NATS: the server says %s", strings.TrimSpace(line))
		}
	}
}
