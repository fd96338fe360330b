// Package providers says what a sandbox backend is: one method that must be there, [Provider.Run],
// and optional capabilities that are interfaces of one to four verbs, asked for with [As].
//
// A provider does not know that there is a log. It gets a [Command], runs it in a box and returns
// what came of it. A command that exits with another code than 0 is a [Result]; an error means that
// the command was not run to its end. Facts and limits of a provider are data, its [Profile].
//
// Each backend is a package below this one and passes the suite in providertest.
package providers
