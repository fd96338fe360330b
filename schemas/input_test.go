package schemas

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestAnInputIsReadOnce shows that what derives from a parsed request reads nothing again, and that a request that was given another
// input since is read again.
func TestAnInputIsReadOnce(t *testing.T) { // not beside others: allocations are counted
	r, err := DecodeRequest([]byte(`{"tool":"bash","input":{"workspace":"docs","command":"ls","background":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	placed, err := r.Placed()
	if err != nil || placed.Workspace != "docs" || string(placed.Input) != `{"command":"ls","background":true}` {
		t.Fatalf("placed: %+v, %v", placed, err)
	}
	again, err := placed.Placed()
	if err != nil || again.Workspace != "docs" || !same(again.Input, placed.Input) {
		t.Errorf("placed twice: %+v, %v", again, err)
	}
	call := Call{Tool: placed.Tool, Input: placed.Input}.WithInputOf(placed)
	if none := testing.AllocsPerRun(100, func() {
		if !r.Background() || !placed.Background() || !call.Background() {
			t.Error("it is no background call any more")
		}
		if p, err := r.Placed(); err != nil || p.Workspace != "docs" {
			t.Errorf("placed: %+v, %v", p, err)
		}
	}); none != 0 {
		t.Errorf("what was read is read again: %v allocations", none)
	}
	call.Input = json.RawMessage(`{"command":"true"}`)
	if in, err := call.TypedInput(); err != nil || in != (BashInput{Command: "true"}) {
		t.Errorf("another input reads as %+v, %v", in, err)
	}
	placed.Tool = ToolRead
	if in, err := placed.TypedInput(); err == nil {
		t.Errorf("the input of another tool reads as %+v", in)
	}
	placed = r
	placed.Workspace = "other"
	if _, err := placed.Placed(); CodeOf(err) != Invalid {
		t.Errorf("another workspace than the one that the input names: %v", err)
	}
}

// FuzzParsed holds the two ways to what a request asks for to one another: what was read once, and reading each time. What was
// read, written and read again is the same.
func FuzzParsed(f *testing.F) {
	for _, s := range []string{
		`{"tool":"bash","input":{"command":"true","timeout":5}}`, `{"tool":"bash","input":{"workspace":"a","command":"x","background":true},"group":{"id":"g","size":1}}`,
		`{"tool":"read","input":{"file_path":"a","workspace":null}}`, `{"tool":"bash","input":{"command":"x","\u0077orkspace":"a"}}`,
		`{"tool":"write","workspace":"w","input":{"file_path":"a","content":"\ud83d\ude00","workspace":"w"}}`, `{"tool":"bash","input":{"command":"x","command":"y"}}`,
		`{"tool":"async_status","input":{"statusId":"job_1","action":"stop"}}`, `{"tool":"bash","input":[]}`, `{"tool":"bash","input":{"comand":"x"}}`, `{"tool":"grep","input":{"pattern":3}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRequest(b)
		var plain Request
		strictly := DecodeStrict(b, MaxRequest, &plain)
		if strictly == nil {
			strictly = plain.Validate()
		}
		whole := err
		if whole == nil {
			whole = r.Validate()
		}
		if (whole == nil) != (strictly == nil) || CodeOf(whole) != CodeOf(strictly) {
			t.Fatalf("%s: %v, and read without leaving anything for later %v", b, whole, strictly)
		}
		if err == nil && whole != nil {
			if in, bad := r.TypedInput(); in != nil || bad == nil || r.Background() || r.Digest() == "" || r.InputWorkspace() != "" {
				t.Fatalf("%s: the input does not fit, and reads as %v", b, in)
			}
		}
		if whole != nil {
			return
		}
		in, err := r.TypedInput()
		fresh, e := plain.TypedInput()
		if err != nil || e != nil || !reflect.DeepEqual(in, fresh) {
			t.Fatalf("%s: %+v, %v; read anew %+v, %v", b, in, err, fresh, e)
		}
		placed, err := r.Placed()
		other, e := plain.Placed()
		if err != nil || e != nil || string(placed.Input) != string(other.Input) || placed.Workspace != other.Workspace {
			t.Fatalf("%s: placed %s in %q, %v; anew %s in %q, %v", b, placed.Input, placed.Workspace, err, other.Input, other.Workspace, e)
		}
		if r.Digest() != plain.Digest() || r.Background() != plain.Background() || r.InputTimeout() != plain.InputTimeout() {
			t.Fatalf("%s: what derives from it differs", b)
		}
		call, err := Call{Tool: placed.Tool, Input: placed.Input}.Parsed()
		carried := call.WithInputOf(r)
		if err != nil || carried.Background() != call.Background() || carried.SideEffects() != call.SideEffects() {
			t.Fatalf("%s: the call differs, %v", b, err)
		}
		out, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeInput(r.Tool, out); err != nil || !reflect.DeepEqual(back, in) {
			t.Fatalf("%s was read, written as %s and read as %+v, %v", b, out, back, err)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	body := []byte(`{"id":"call_1","conversation":"c_1","tool":"bash","dialect":"claude","input":{"command":"go test ./... 2>&1 | tail -5","description":"Run the tests","timeout":120000}}`)
	b.ReportAllocs()
	for b.Loop() {
		r, err := DecodeRequest(body)
		if err != nil {
			b.Fatal(err)
		}
		if r.Digest() == "" {
			b.Fatal("no digest")
		}
	}
}

// TestACallThatIsReadHoldsItsInputOnce: what is large is dropped, and its reading stays.
//
//guarantee:bounds
func TestACallThatIsReadHoldsItsInputOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, MaxApprovalInput + 1} {
		input := mustJSON(map[string]any{"command": strings.Repeat("x", size), "background": true})
		c, err := Call{Tool: ToolBash, Input: input}.Read()
		if err != nil {
			t.Fatal(err)
		}
		if large := size > MaxApprovalInput; (c.Input == nil) != large || c.InputLeftOut() != large || c.InputBytes() != len(input) {
			t.Errorf("of %d bytes %d are held", len(input), len(c.Input))
		}
		for range 2 {
			in, err := c.TypedInput()
			if b, ok := in.(BashInput); err != nil || !ok || len(b.Command) != size || !c.Background() {
				t.Errorf("%T of %d bytes, %v", in, size, err)
			}
			if c, err = c.Read(); err != nil { // again is no harm
				t.Error(err)
			}
			c = c.WithoutInput()
			if size <= MaxApprovalInput {
				break
			}
		}
		other := c
		if other.Tool = ToolWrite; other.InputLeftOut() {
			if _, err := other.TypedInput(); err == nil {
				t.Error("another tool's input was taken for it")
			}
		}
	}
	if c, err := (Call{Tool: ToolBash, Input: json.RawMessage(`{"command":` + strings.Repeat(" ", MaxApprovalInput) + `7}`)}).Read(); err == nil || c.Input == nil {
		t.Errorf("an input that cannot be read: %v", err)
	}
}
