package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// writeToClients are the packages whose JSON goes to clients, or to the log from which they get it.
var writeToClients = []string{"gateway", "gateway/accounts", "gateway/live", "gateway/natsapi", "gateway/replay", "gateway/web"}

// TestJSONForClientsIsWrittenInOneWay: schemas.EncodeJSON says what is escaped, so that an event has the same bytes on every way.
func TestJSONForClientsIsWrittenInOneWay(t *testing.T) {
	files := 0
	for _, p := range packages(t) {
		if !slices.Contains(writeToClients, p.Path) {
			continue
		}
		for _, f := range parse(t, p.files(p.GoFiles)) {
			files++
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "json" && (s.Sel.Name == "Marshal" || s.Sel.Name == "NewEncoder") {
					t.Errorf("%s: json.%s: use schemas.EncodeJSON", sources.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
	if files == 0 {
		t.Error("it sees no files")
	}
}
