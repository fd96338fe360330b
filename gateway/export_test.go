package gateway

import "github.com/sandjet/sandjet/gateway/jobs"

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

// LookUpJobs has n jobs looked up by their tokens until end is called.
func (g *Gateway) LookUpJobs(n int64) (end func()) {
	place, _ := g.jobTokens.TakeMany("", n)
	return place.Release
}

// MostJobTokens is for how many requests jobs are looked up by their tokens at the same time.
const MostJobTokens = jobs.MostTokens
