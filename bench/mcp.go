package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

// MCP measures the duration of a call that does nothing by the Model Context Protocol over HTTP, and of the same call by POST /v1/calls
// that waits for its result, in turns. Log, gateway, worker and client are one process.
func MCP(ctx context.Context, calls int) (Report, error) {
	r := Report{Title: "A call by the Model Context Protocol, beside the same by POST /v1/calls", Machine: machine()}
	o, err := openOurs(ctx)
	if err != nil {
		return r, err
	}
	defer o.close(ctx)
	serving, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	url, err := callPlane(serving, o, &parts)
	if err != nil {
		return r, err
	}
	o.work(ctx, 1, func() {})
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ways := []wayToCall{
		{"POST /v1/calls?wait", url + "/v1/calls?wait=25s", func(int) string { return `{"tool":"bash","input":{"command":"true"}}` }, nil},
		{"MCP tools/call", url + "/mcp", mcpCall, http.Header{
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"bash"}, "Accept": {"application/json, text/event-stream"},
		}},
	}
	took := make([][]float64, len(ways))
	const warm = 20
	for i := range warm + calls {
		for w, way := range ways {
			began := time.Now()
			if err := way.call(ctx, &client, i); err != nil {
				return r, fmt.Errorf("%s: %w", way.name, err)
			}
			if i >= warm {
				took[w] = append(took[w], float64(time.Since(began))/float64(time.Microsecond))
			}
		}
	}
	r.Ratios = []Ratio{ratio("MCP to POST /v1/calls", "2 at most", took[1], took[0])}
	for w, way := range ways {
		r.Rows = append(r.Rows, row(way.name, "µs", took[w]))
	}
	return r, nil
}

// wayToCall is a request that makes a call and waits for its result.
type wayToCall struct {
	name, url string
	body      func(n int) string
	header    http.Header
}

func mcpCall(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":{"command":"true"},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, n+1)
}

func (w wayToCall) call(ctx context.Context, client *http.Client, n int) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(w.body(n)))
	if err != nil {
		return err
	}
	maps.Copy(q.Header, w.header)
	q.Header.Set("Authorization", "Bearer "+benchKey)
	q.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read to its end
	body, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "completed")) {
		err = fmt.Errorf("%d %.500s: %w", answer.StatusCode, body, schemas.ErrInternal)
	}
	return err
}

// callPlane starts a gateway that accepts calls, and returns its URL.
func callPlane(ctx context.Context, o *ours, parts *sync.WaitGroup) (string, error) {
	store, err := records.Open(ctx, o.bus, nil, benchProviders())
	if err != nil {
		return "", fmt.Errorf("records: %w", err)
	}
	if _, err := store.Accounts.Ensure(ctx, records.Bootstrap{Account: benchAccount, Key: benchKey, Provider: benchProvider}); err != nil {
		return "", fmt.Errorf("account: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	g := gateway.New(gateway.Options{Bus: o.bus, Records: store, Grace: time.Second,
		AgentTools: func(schemas.ToolVisibility, string, schemas.Dialect) (any, error) {
			return []any{map[string]any{"name": "bash", "description": "runs", "inputSchema": json.RawMessage(`{"type":"object"}`)}}, nil
		}})
	parts.Go(func() { _ = g.Run(ctx, l) })
	return "http://" + l.Addr().String(), nil
}
