// Package carry sees a command to its end that the program of package boxrun runs in a sandbox of a vendor's service: from the
// start of the program to the result, for leaves that differ in how a program is started and in how a sandbox is ended.
//
// It keeps the promises of providers.Provider: nothing is started twice, a result without the program's own word on the end is an error of
// the code interrupted, and when Run returns nothing of the command still runs.
package carry
