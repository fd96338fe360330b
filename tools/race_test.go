//go:build race

package tools

// Under the race detector the regexp package's pools lose what is given back to them at random, so matching allocates anew.
const raceShare = 8
