//go:build linux

// Command sandjet-lambda is the program in the functions of the provider lambda: see deploy/lambda and package
// providers/lambda/handler.
package main

import (
	"log/slog"
	"os"

	"github.com/sandjet/sandjet/providers/lambda/handler"
)

func main() {
	handler.Entry()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := handler.FromEnv(log).Serve(); err != nil {
		log.Error("program ended", "error", err)
		os.Exit(1)
	}
}
