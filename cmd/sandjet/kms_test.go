package main

import (
	"maps"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/records/seal/awskms/kmstest"
)

// kms runs a key service until the script ends, and puts its URL and the name of its key into variables.
func kms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: kms")
	}
	server, stop, err := kmstest.New()
	ts.Check(err)
	ts.Defer(stop)
	for name, value := range kmstest.Env() {
		ts.Setenv(name, value)
	}
	ts.Setenv("KMS", server.URL)
	ts.Setenv("KMSKEY", kmstest.ARN("one"))
}

// kmsVariables are those that a process needs to reach the service.
func kmsVariables() []string {
	return slices.AppendSeq([]string{"SANDJET_KMS_ENDPOINT"}, maps.Keys(kmstest.Env()))
}
