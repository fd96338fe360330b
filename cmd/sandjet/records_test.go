package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestFlagsBecomeARecord parses command lines and wants what is sent.
func TestFlagsBecomeARecord(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"x": `{}`,
		"x --network allow-all --timeout 2m --persistent":     `{"config":{"network":{"mode":"allow-all"},"persistent":true,"timeout":120}}`,
		"x --no-persistent --mode edit --memory 512":          `{"config":{"memoryLimit":512,"permissionMode":"edit","persistent":false}}`,
		"x --env A=b,c=d --env E= --description=":             `{"config":{"envVars":{"A":"b,c=d","E":""}},"description":""}`,
		"x --allow-cidr 10.0.0.0/8 --allow-cidr ::/0":         `{"config":{"network":{"allowCidrs":["10.0.0.0/8","::/0"]}}}`,
		"x --allow-domain= --runtimes bash,node":              `{"config":{"network":{"allowDomains":[]},"runtimes":["bash","node"]}}`,
		"x --persistent --idle-timeout 90s --max-lifetime 2h": `{"config":{"lifecycle":{"idleTimeoutSeconds":90,"maxLifetimeSeconds":7200},"persistent":true}}`,
		"x --job-limit 3 --job-lifetime 1h --guard off":       `{"config":{"guard":"off","jobLifetimeSeconds":3600,"jobLimit":3}}`,
		"x --file - --env A=2":                                `{"config":{"envVars":{"A":"2","B":null},"timeout":5},"description":"of the file"}`,
	} {
		p, err := parse(append([]string{"sandboxes", "set"}, strings.Fields(line)...), noEnv)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		b, err := p.command.(*sandboxesSetCommand).body(t.Context(), nil,
			strings.NewReader("description: of the file\nconfig:\n  timeout: 5\n  envVars: {A: '1', B: null}\n"))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got, err := json.Marshal(b); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", line, got, err, want)
		}
	}
	for line, field := range map[string]string{"x --timeout 1500ms": "timeout", "x --env NO_SUCH_VARIABLE_HERE": "env",
		"x --file /nonexistent": "file"} {
		p, err := parse(append([]string{"sandboxes", "set"}, strings.Fields(line)...), noEnv)
		if err == nil {
			_, err = p.command.(*sandboxesSetCommand).body(t.Context(), nil, strings.NewReader(""))
		}
		if e, ok := errors.AsType[*schemas.Error](err); !ok || e.Field != field {
			t.Errorf("%s: %v, want the field %s", line, err, field)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte("name: a\nconfig: {envVars: {A: null}}"))
	f.Add([]byte(`{"name":"a","config":{"timeout":5}}`))
	f.Add([]byte("a: &x [1]\nb: *x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := decodeRecord(text)
		if err != nil && schemas.CodeOf(err) != schemas.Invalid || err == nil && b == nil {
			t.Errorf("%v, %v", b, err)
		}
	})
}
