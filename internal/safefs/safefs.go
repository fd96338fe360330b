// Package safefs opens files below a root that somebody else may be changing at the same time.
package safefs

// Root is a directory below which all names are resolved, race-free.
type Root struct{}
