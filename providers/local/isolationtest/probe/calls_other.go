//go:build linux && !amd64

package main

func nativeCalls() map[string]call { return nil }

func foreignCall(string) uint64 { return 0 }
