package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// byTheLogsClock are the packages whose stamps other processes read and whose decisions end, expire or delete.
var byTheLogsClock = []string{"streams", "records", "workers", "workers/leases", "workers/maintenance", "workers/sandboxes", "gateway",
	"gateway/accounts", "gateway/live", "gateway/credentials", "admission", "gateway/durable", "gateway/natsapi", "lifecycle", "delivery"}

// TestStampsComeFromTheLogsClock finds stamps and times until something that are taken from the clock of the host,
// which may be wrong: Bus.Now is the log's. A clock that only measures how long something took stays local.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestStampsComeFromTheLogsClock(t *testing.T) {
	excused := map[string]string{
		"gateway/live/eventconn.go": "the Date header is the host's word",
		"workers/settle.go":         "it waits a moment",
		"streams/ask.go":            "what is left until a context's deadline, which is by the same clock",
		"streams/inprocess.go":      "a write's deadline, which the client library sets by the same clock",
	}
	for _, p := range packages(t) {
		ours := false
		for _, path := range byTheLogsClock {
			ours = ours || p.Path == path
		}
		if !ours {
			continue
		}
		for file, f := range parse(t, p.files(p.GoFiles)) {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				what := ""
				switch sel, _ := call.Fun.(*ast.SelectorExpr); {
				case isTimeFunc(call, "Until"):
					what = "time.Until"
				case sel != nil && sel.Sel.Name == "UTC":
					if inner, ok := sel.X.(*ast.CallExpr); ok && isTimeFunc(inner, "Now") {
						what = "time.Now().UTC()"
					}
				}
				if what == "" {
					return true
				}
				for name := range excused {
					if strings.HasSuffix(file, name) {
						return true
					}
				}
				t.Errorf("%s: %s is the host's clock, which may be wrong: take Bus.Now", sources.Position(call.Pos()), what)
				return true
			})
		}
	}
}

// isTimeFunc recognises a call of a function of package time.
func isTimeFunc(call *ast.CallExpr, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == "time"
}
