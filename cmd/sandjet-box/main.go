//go:build linux

// Command sandjet-box is the spawner and the init of the local provider's boxes. Installed beside
// sandjet it is found by itself and makes boxes start faster; without it sandjet plays both parts.
package main

import "github.com/sandjet/sandjet/providers/local/box"

func main() { box.Main() }
