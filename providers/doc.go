// Package providers defines the interface of a sandbox backend: one required method, [Provider.Run], and optional capabilities, which are
// interfaces of one to four methods and are found with [As].
//
// A provider does not use NATS. It receives a [Command], runs it in a sandbox and returns the outcome. A command that exits with a code
// other than 0 is a [Result]; an error means that the command did not run to its end. The properties and limits of a provider are data,
// its [Profile].
//
// Each backend is a package below this one and passes the suite in providertest.
package providers
