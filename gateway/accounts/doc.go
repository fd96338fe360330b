// Package accounts serves the routes below /v1/accounts: the accounts themselves, their collections, manifests, variables and
// credentials for NATS. It stores nothing: what it needs of the records, the log and the gateway are the fields of [Options].
package accounts
