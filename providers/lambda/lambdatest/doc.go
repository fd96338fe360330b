//go:build linux

// Package lambdatest is a service that answers as AWS Lambda does, for tests and for trying things out without an account.
//
// On one side it speaks the API by which functions are invoked: signatures are computed and compared, clocks are looked at, and answers
// have the service's own names and headers. On the other side it speaks the runtime API to execution environments, each a real process in
// namespaces of its own (bubblewrap), in which the vendor's own library (aws-lambda-go) and package handler run. There is one for each
// function, account and invocation at a time; it is frozen between invocations, used again, and gone when its program ends.
//
// What the service does that surprises is there too: a caller that goes away ends nothing, an error of a function is an answer with the
// status 200, and at a function's time limit its environment is ended and what it had to say is lost.
//
// The process of a test is its environments' program too: its TestMain calls [Main] first.
package lambdatest
