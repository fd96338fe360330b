// Package bench measures Sandjet beside the bare engine under it, in the same run, so that what is
// quoted is a ratio and not a property of the machine.
//
// Each benchmark runs in interleaved rounds (bare, ours, bare, ours, …), every run on a fresh
// embedded server with an empty directory, and reports medians with their spread. `sandjet bench`
// prints the tables of docs/BENCHMARKS.md. Nothing here asserts a time: the figures are for people.
package bench
