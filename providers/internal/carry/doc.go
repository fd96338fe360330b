// Package carry runs a command with the program of package boxrun in a sandbox of a vendor's service, from the start of the program to the
// result. Provider packages add how a program is started and how a sandbox is ended.
//
// It guarantees the contract of providers.Provider: nothing is started twice; a command whose end the program has not reported is an error
// with the code interrupted; and when Run returns, no process of the command is left.
package carry
