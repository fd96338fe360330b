package gateway

// AliasRow is a row of the aliases, for tests from outside.
type AliasRow struct{ Method, Path, Of string }

// AliasRows lists the aliases of all routes.
func AliasRows() []AliasRow {
	var rows []AliasRow
	for _, a := range New(Options{}).aliases() {
		rows = append(rows, AliasRow{a.method, a.path, a.of})
	}
	return rows
}
