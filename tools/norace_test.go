//go:build !race

package tools

const raceShare = 1
