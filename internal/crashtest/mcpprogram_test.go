package crashtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// mcpProgram is "sandjet mcp" as a client program starts it, which speaks revision 2025-11-25 on the program's streams.
type mcpProgram struct {
	in   io.WriteCloser
	says chan mcpLine // closed when it has ended
}

// mcpLine is one message of the protocol.
type mcpLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"` // empty: an answer
	Result *mcpResult      `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// program starts it with its calls on a conversation.
func (m *mcpKills) program(ctx context.Context, t *testing.T, conversation string, flags ...string) *mcpProgram {
	t.Helper()
	cmd := exec.CommandContext(ctx, m.c.program, append([]string{"mcp", "--conversation", conversation}, flags...)...)
	cmd.Env = append(settings(os.Environ()), "SANDJET_URL=http://"+m.c.gateway, "SANDJET_KEY="+m.c.key)
	cmd.Stderr = m.c.log.of("mcp " + conversation)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &mcpProgram{in: in, says: make(chan mcpLine, 16)}
	go func() {
		defer close(p.says)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, schemas.MaxRequest)
		for lines.Scan() {
			var l mcpLine
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				l.Error = json.RawMessage(lines.Text())
			}
			p.says <- l
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		for range p.says { // until it has ended
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("sandjet mcp ended with %v", err)
		}
	})
	p.say(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},`+
		`"clientInfo":{"name":"crashtest","version":"1"}}}`)
	p.hear(ctx, t)
	p.say(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *mcpProgram) say(t *testing.T, message string) {
	t.Helper()
	if _, err := io.WriteString(p.in, message+"\n"); err != nil {
		t.Fatal(err)
	}
}

// The result is the next message.
func (p *mcpProgram) hear(ctx context.Context, t *testing.T) mcpLine {
	t.Helper()
	select {
	case l, ok := <-p.says:
		if !ok || l.Error != nil {
			t.Fatalf("sandjet mcp says %s (ended: %v)", l.Error, !ok)
		}
		return l
	case <-ctx.Done():
		t.Fatal("sandjet mcp says nothing")
	}
	return mcpLine{}
}

// call sends a tools/call of a held command.
func (p *mcpProgram) call(t *testing.T, name string) {
	t.Helper()
	p.say(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":%q}}}`, held(name)))
}

// programAndGateway: the gateway behind "sandjet mcp" is killed while a call runs, and while the user is asked. The client program notices
// nothing of it, and needs no mark.
func (m *mcpKills) programAndGateway(ctx context.Context, t *testing.T) {
	const plain, question = "program", "program-question"
	p := m.program(ctx, t, plain)
	p.call(t, plain)
	m.begun(ctx, t, plain, unanswered())
	m.killed(t, m.gateways)
	m.free(t, plain)
	m.once(ctx, t, plain, p.answer(ctx, t), schemas.StatusCompleted)

	p = m.program(ctx, t, question, "--agent", "asker")
	p.call(t, question)
	asked := p.hear(ctx, t)
	if asked.Method != "elicitation/create" {
		t.Fatalf("it says %+v and should ask", asked)
	}
	m.killed(t, m.gateways)
	p.say(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"decision":"Allow once"}}}`, asked.ID))
	m.begun(ctx, t, question, unanswered())
	m.killed(t, m.gateways)
	m.free(t, question)
	m.once(ctx, t, question, p.answer(ctx, t), schemas.StatusCompleted)
	m.answeredOnce(ctx, t, question)
}

// answer waits for the answer to the call.
func (p *mcpProgram) answer(ctx context.Context, t *testing.T) mcpResult {
	t.Helper()
	l := p.hear(ctx, t)
	if l.Result == nil {
		t.Fatalf("it says %+v and should answer", l)
	}
	return *l.Result
}
