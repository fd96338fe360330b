package supervisor

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// maxAnswer bounds what is read of an answer: a page in base64, its line breaks and its fields.
const maxAnswer = 1 << 20

// answer is the program's output: one field per line, an empty line, and bytes in base64.
type answer struct {
	fields map[string]string
	data   []byte
}

// parse parses an answer. It comes from inside the box and is not trusted.
func parse(b []byte) (answer, error) {
	if len(b) > maxAnswer {
		return answer{}, errAnswer("length")
	}
	head, rest, _ := bytes.Cut(b, []byte("\n\n"))
	a := answer{fields: map[string]string{}}
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		a.fields[key] = value
	}
	data, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(rest)))
	if err != nil {
		return answer{}, errAnswer("data")
	}
	a.data = data
	return a, nil
}

func errAnswer(field string) error {
	return schemas.OpErrorf(schemas.Unavailable, "job", "the sandbox's answer cannot be understood: %s", field)
}

// number returns a required field as a number.
func (a answer) number(field string) (int64, error) {
	n, err := strconv.ParseInt(a.fields[field], 10, 64)
	if err != nil {
		return 0, errAnswer(field)
	}
	return n, nil
}

// numbers returns several required fields, each at least 0.
func (a answer) numbers(fields ...string) ([]int64, error) {
	list := make([]int64, len(fields))
	for i, field := range fields {
		n, err := a.number(field)
		if err != nil {
			return nil, err
		}
		if n < 0 {
			return nil, errAnswer(field)
		}
		list[i] = n
	}
	return list, nil
}

// status converts the answer of the verb status.
func (a answer) status() (providers.JobStatus, error) {
	n, err := a.numbers("first", "total")
	if err != nil {
		return providers.JobStatus{}, err
	}
	st := providers.JobStatus{Running: a.fields["running"] == "1", Instance: a.fields["instance"], LogBytes: n[1]}
	if st.Running {
		return st, nil
	}
	st.End, err = a.end(n[0] > 0, n[1])
	return st, err
}

// end returns how a job ended, as its supervisor recorded it.
func (a answer) end(truncated bool, total int64) (providers.JobEnd, error) {
	n, err := a.numbers("code", "stopped", "timed_out", "lost", "children_left")
	if err != nil {
		return providers.JobEnd{}, err
	}
	finished, err := moment(a.fields["finished"])
	if err != nil {
		return providers.JobEnd{}, err
	}
	if n[0] > 255 || n[4] > 1<<22 || len(a.data) > schemas.MaxJobLogs {
		return providers.JobEnd{}, errAnswer("code, children_left or data")
	}
	return providers.JobEnd{
		ExitCode: int(n[0]), Stopped: n[1] == 1, TimedOut: n[2] == 1, Lost: n[3] == 1, Reason: a.fields["reason"],
		ChildrenLeft: int(n[4]), LogBytes: total, LogTruncated: truncated, Tail: a.data, Finished: finished,
	}, nil
}

// logs converts the answer of the verb logs.
func (a answer) logs(limit int) (providers.JobLogs, error) {
	n, err := a.numbers("offset", "total", "ended")
	if err != nil {
		return providers.JobLogs{}, err
	}
	if len(a.data) > limit || n[0] > n[1] {
		return providers.JobLogs{}, errAnswer("data")
	}
	// The log may have grown between the count and the look.
	size := max(n[1], n[0]+int64(len(a.data)))
	return providers.JobLogs{Data: a.data, Offset: n[0], Size: size, Ended: n[2] == 1}, nil
}

// moment parses Unix seconds, with or without a fraction.
func moment(s string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return time.Time{}, errAnswer("finished")
	}
	micros, err := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
	if err != nil {
		return time.Time{}, errAnswer("finished")
	}
	return time.Unix(seconds, int64(micros)*1000).UTC(), nil
}

// runError maps the error of a failed run of the program to the caller's error.
func runError(op string, started bool, err error) error {
	switch code := schemas.CodeOf(err); {
	case op == "start job" && started:
		return schemas.Wrap(schemas.Interrupted, op, "the start was interrupted: nobody knows whether the job runs", err)
	case op == "start job", code == schemas.NotFound, code == schemas.Timeout, errors.Is(err, context.Canceled):
		return err
	default:
		return schemas.Wrap(schemas.Unavailable, op, "the box cannot be asked now", err)
	}
}

// exitError maps the program's exit code to an error.
func exitError(op string, res providers.Result) error {
	said := schemas.Quotable(strings.TrimSpace(string(res.Stderr)))
	switch {
	case res.TimedOut && op == "start job":
		return schemas.OpErrorf(schemas.Interrupted, op, "the start took too long: it is unknown whether the job runs")
	case res.TimedOut:
		return schemas.OpErrorf(schemas.Unavailable, op, "the sandbox took too long to answer")
	case res.ExitCode == exitAway:
		return schemas.OpErrorf(schemas.NotFound, op, "no such job was started in this sandbox")
	case res.ExitCode == exitOld:
		return schemas.OpErrorf(schemas.Unsupported, op, "the sandbox cannot run background jobs: %s", said)
	case res.ExitCode == exitRefused && op == "start job":
		return schemas.OpErrorf(schemas.Denied, op, "%s", said)
	case res.ExitCode == exitRefused:
		return schemas.OpErrorf(schemas.Conflict, op, "%s", said)
	case res.ExitCode == exitFull:
		return schemas.OpErrorf(schemas.Exhausted, op, "%s", said)
	case op == "start job":
		return schemas.OpErrorf(schemas.Interrupted, op, "it is unknown whether the job runs: %s", said)
	default:
		return schemas.OpErrorf(schemas.Unavailable, op, "the sandbox fails to answer: %s", said)
	}
}
