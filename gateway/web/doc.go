// Package web is what all routes of a gateway share: how requests are read and answered, errors as problems, deadlines for reading from
// and writing to clients, slots for requests in flight, limits of connections. It knows no route and no log.
package web
