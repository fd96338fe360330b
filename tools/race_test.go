//go:build race

package tools

// Under the race detector the regexp package's pools drop returned items at random, so matching allocates again.
const raceShare = 8
