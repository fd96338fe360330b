package kubernetes

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// longestRecord bounds what is taken for a record: a longer one is none of the runner's.
const longestRecord = 200

// records separates one output stream of a run into the runner's records and the command's output, which it passes on at once. After the
// record of the end it drops everything. It is used by one goroutine.
type records struct {
	mark   []byte // what a record begins with
	out    func(data []byte)
	record func(text string)
	held   []byte // what may be the beginning of a record
	ended  bool
}

func newRecords(token string, out func([]byte), record func(string)) *records {
	return &records{mark: []byte("\x00\x01" + token), out: out, record: record}
}

// Write never fails: errors of the stream are found at its end.
func (r *records) Write(p []byte) (int, error) {
	data := p
	if len(r.held) > 0 {
		data = append(r.held, p...)
		r.held = nil
	}
	for !r.ended && len(data) > 0 {
		at := bytes.Index(data, r.mark)
		if at < 0 {
			keep := beginsAtEnd(data, r.mark)
			r.pass(data[:len(data)-keep])
			r.hold(data[len(data)-keep:])
			break
		}
		r.pass(data[:at])
		text := data[at+len(r.mark):]
		end := bytes.IndexByte(text[:min(len(text), longestRecord)], '\n')
		switch {
		case end >= 0:
			data = text[end+1:]
			r.ended = strings.HasPrefix(string(text), "E ") || strings.HasPrefix(string(text), "N ")
			r.record(string(text[:end]))
		case len(text) < longestRecord:
			r.hold(data[at:])
			data = nil
		default:
			r.pass(data[at : at+len(r.mark)])
			data = text
		}
	}
	return len(p), nil
}

// flush passes on the bytes held back, when the stream has ended.
func (r *records) flush() {
	if !r.ended {
		r.pass(r.held)
		r.held = nil
	}
}

func (r *records) pass(data []byte) {
	if len(data) > 0 {
		r.out(data)
	}
}

func (r *records) hold(data []byte) { r.held = bytes.Clone(data) }

// beginsAtEnd returns how many bytes at the end of data could be the beginning of mark.
func beginsAtEnd(data, mark []byte) int {
	for n := min(len(mark)-1, len(data)); n > 0; n-- {
		if bytes.HasSuffix(data, mark[:n]) {
			return n
		}
	}
	return 0
}

// verdict is what the runner has reported about a run.
type verdict struct {
	started bool
	refused string // why nothing was started
	ended   bool
	code    int
	late    bool
	ooms    int
	took    time.Duration // by the box's clock, which may be set meanwhile
}

// read adds the content of a record. It ignores lines that no runner writes, because user code can print them.
func (v *verdict) read(text string) {
	fields := strings.Fields(text)
	switch {
	case text == "S":
		v.started = true
	case len(fields) >= 2 && fields[0] == "N":
		v.refused = strings.Join(fields[1:], " ")
	case len(fields) == 5 && fields[0] == "E":
		code, err1 := strconv.Atoi(fields[1])
		ooms, err2 := strconv.Atoi(fields[3])
		took, err3 := strconv.ParseInt(fields[4], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil || code < 0 || code > 255 {
			return
		}
		v.ended, v.code, v.late, v.ooms = true, code, fields[2] == "1", ooms
		v.took = time.Duration(took) * time.Microsecond
	}
}
