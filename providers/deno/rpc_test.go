package deno

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":3,"result":{"ok":null}}`:                                              `answer 3 {"ok":null} <nil>`,
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no"}}`:                            `answer 0  -32603: no`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.start","params":{"streamId":7}}`:                 `start 7 ""`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.enqueue","params":{"streamId":7,"data":"aGk="}}`: `enqueue 7 "hi"`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.error","params":{"streamId":1,"error":null}}`:    `error 1 ""`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.other","params":{}}`:                             `nothing`,
		`{"jsonrpc":"2.0","method":"$deno.watcher.restart","params":{}}`:                             `nothing`,
		`{"jsonrpc":"2.0","id":"a","result":1}`:                                                      `nothing`,
		`{"jsonrpc":"2.0","id":1,"method":"ask"}`:                                                    `nothing`,
		`{"jsonrpc":"2.0","id":1}`:                                                                   `not JSON-RPC`,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}`:                        `not JSON-RPC`,
		`{"jsonrpc":"1.0","id":1,"result":1}`:                                                        `not JSON-RPC`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.enqueue","params":{"streamId":7,"data":"!"}}`:    `not JSON-RPC`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.end","params":{"streamId":-1}}`:                  `not JSON-RPC`,
		`{"jsonrpc":"2.0","method":"$sandbox.stream.end"}`:                                           `not JSON-RPC`,
		`ping`: `not JSON-RPC`,
		``:     `not JSON-RPC`,
		`[]`:   `not JSON-RPC`,
	} {
		e, err := decode([]byte(text))
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case e.answers && e.refused != nil:
			got = fmt.Sprintf("answer %d %s %v", e.id, e.result, e.refused)
		case e.answers:
			got = fmt.Sprintf("answer %d %s <nil>", e.id, e.result)
		case e.part != "":
			got = fmt.Sprintf("%s %d %q", e.part, e.id, e.data)
		}
		if !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	var into struct {
		Pid int `json:"pid"`
	}
	for text, want := range map[string]string{
		`{"ok":{"pid":7}}`: "<nil>",
		`{"ok":null}`:      "<nil>",
		`{"error":{"constructorName":"NotFound","message":"no such file","code":"ENOENT"}}`: "NotFound: no such file",
		`{"error":{}}`:        "Error: ",
		`{}`:                  "not JSON-RPC",
		`null`:                "not JSON-RPC",
		`{"ok":{"pid":"x"}}`:  "not JSON-RPC",
		`{"ok":[],"error":3}`: "not JSON-RPC",
	} {
		if got := fmt.Sprint(resultOf(json.RawMessage(text), &into)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if into.Pid != 7 {
		t.Errorf("the pid is %d", into.Pid)
	}
}

// FuzzDecode: whatever a sandbox says, an event is one that can be, and data arrives as it is.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":3,"result":{"ok":null}}`), int64(1), []byte("data"))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"$sandbox.stream.enqueue","params":{"streamId":7,"data":"aGk="}}`), int64(0), []byte{0, 255})
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`), int64(-5), []byte{})
	f.Fuzz(func(t *testing.T, text []byte, id int64, data []byte) {
		if e, err := decode(text); err == nil {
			switch {
			case e.answers && ((e.result == nil) == (e.refused == nil) || e.part != ""):
				t.Errorf("an answer that is none: %+v", e)
			case e.part != "" && e.id < 0:
				t.Errorf("a stream that is none: %+v", e)
			}
			if e.result != nil {
				_ = resultOf(e.result, &map[string]any{}) // it does not panic
			}
		} else if !errors.Is(err, errNoRPC) {
			t.Errorf("an error of another kind: %v", err)
		}
		part := fmt.Sprintf(`{"jsonrpc":"2.0","method":"$sandbox.stream.enqueue","params":{"streamId":%d,"data":%q}}`, id,
			base64.StdEncoding.EncodeToString(data))
		e, err := decode([]byte(part))
		if id < 0 {
			if err == nil {
				t.Errorf("the stream %d was taken", id)
			}
			return
		}
		if err != nil || e.id != id || string(e.data) != string(data) {
			t.Errorf("%q came as %+v, %v", data, e, err)
		}
	})
}

// TestASCII: what goes into a header is ASCII and means the same.
func TestASCII(t *testing.T) {
	t.Parallel()
	const text = "a\"ä🚀\u2028"
	plain, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	out := ascii(plain)
	beyond := strings.ContainsFunc(string(out), func(r rune) bool { return r > 0x7f })
	if err := json.Unmarshal(out, &back); err != nil || back != text || beyond {
		t.Errorf("%q became %q, %v", text, out, err)
	}
}

// TestPlace: what a sandbox says of itself is taken whole or not at all.
func TestPlace(t *testing.T) {
	t.Parallel()
	bound := map[string][]string{"KEY": nil}
	for text, good := range map[string]bool{
		"app\n/home/app\nKEY=placeholder\n": true, "app\n/home/app\n": false, "app\n/home/app\nKEY=\n": false, "app\nhome\nKEY=x\n": false,
		"\n/home\nKEY=x\n": false, "app\n/home/app\nKEY=x\nOTHER=y\n": false, "app\n/home/app\nOTHER=y\n": false, "": false,
	} {
		at, err := readPlace(text, bound)
		if (err == nil) != good || good && (at.User != "app" || at.Home != "/home/app" || at.Puts["KEY"] != "placeholder") {
			t.Errorf("%q: %+v, %v", text, at, err)
		}
	}
}
