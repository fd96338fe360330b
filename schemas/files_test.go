package schemas

import (
	"bytes"
	"testing"
)

// FuzzDecodeFileMessage: whatever arrives is read or refused, and what is read is written as it was.
func FuzzDecodeFileMessage(f *testing.F) {
	for _, q := range []FileRequest{
		{Account: "a", Workspace: "w", Op: FileRead, Path: "f", Length: 1},
		{Account: "a", Workspace: "w", Op: FileCommit, Path: "f", To: "g", Was: &FileInfo{Path: "x"}},
	} {
		b, err := EncodeFileMessage(q, []byte("data\n\x00"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("{}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q FileRequest
		data, err := DecodeFileMessage(b, &q)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Errorf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		_ = q.Validate()
		again, err := EncodeFileMessage(q, data)
		if err != nil {
			t.Fatal(err)
		}
		var q2 FileRequest
		data2, err := DecodeFileMessage(again, &q2)
		if err != nil || !bytes.Equal(data, data2) || q2.Path != q.Path || q2.Op != q.Op {
			t.Errorf("%q became %q, %v", b, again, err)
		}
	})
}
