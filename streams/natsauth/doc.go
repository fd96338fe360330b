// Package natsauth says who may speak NATS with the log's server, and what: the users of an embedded server, tenants of an outside one by
// its auth_callout, and the limits of both. What a tenant's clients may publish and subscribe to is one table, [AccessOf].
package natsauth
