package main

import (
	"strings"
	"testing"
)

const stream = `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestGood"}
{"Action":"output","Package":"x/a","Test":"TestGood","Output":"    a_test.go:1: quiet word\n"}
{"Action":"pass","Package":"x/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"x/a","Test":"TestLong","Output":"=== RUN   TestLong\n"}
{"Action":"output","Package":"x/a","Test":"TestLong","Output":"    a_test.go:9: only in the long form: it costs a minute\n"}
{"Action":"output","Package":"x/a","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestLong","Elapsed":0}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"pass","Package":"x/a","Elapsed":1.25}
`

const failing = stream + `{"Action":"output","Package":"x/b","Test":"TestBad","Output":"    b_test.go:3: loud word\n"}
{"Action":"fail","Package":"x/b","Test":"TestBad","Elapsed":0}
{"Action":"fail","Package":"x/b","Elapsed":0.5}
`

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		in           string
		ok           bool
		shows, hides []string
	}{
		"fine":   {stream, true, []string{"ok    x/a", "1.2 s", "Skipped:", "  only in the long form: it costs a minute\n      x/a TestLong\n", "1 tests passed, 0 failed, 1 skipped", "make test-long"}, []string{"quiet word", "FAIL"}},
		"failed": {failing, false, []string{"loud word", "FAIL  x/b", "1 skipped"}, []string{"quiet word"}},
		"panicked": {
			stream + `{"Action":"output","Package":"x/c","Test":"TestDies","Output":"panic: no\n"}` + "\n" + `{"Action":"fail","Package":"x/c","Elapsed":0.5}` + "\n", false,
			[]string{"panic: no", "FAIL  x/c"}, nil,
		},
		"not built": {
			stream + `{"ImportPath":"x/d","Action":"build-output","Output":"d.go:1:1: no\n"}` + "\n" + `{"ImportPath":"x/d","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"x/d","Elapsed":0}` + "\n", false,
			[]string{"d.go:1:1: no", "FAIL  x/d"}, nil,
		},
		"other words": {"go: no such tool\n" + stream, true, []string{"go: no such tool\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			ok, err := report(strings.NewReader(c.in), &out)
			if err != nil || ok != c.ok {
				t.Errorf("%v, %v", ok, err)
			}
			for _, want := range c.shows {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not show %q:\n%s", want, out.String())
				}
			}
			for _, never := range c.hides {
				if strings.Contains(out.String(), never) {
					t.Errorf("it shows %q:\n%s", never, out.String())
				}
			}
		})
	}
}

func TestNoTestsAreNoSuccess(t *testing.T) {
	if ok, err := report(strings.NewReader(""), &strings.Builder{}); ok || err == nil {
		t.Errorf("%v, %v", ok, err)
	}
}
