// Package natsapi is the API for NATS clients: [IntakeConsumer] takes calls that were published, at any time, and [Service]
// answers requests at once. Both admit by package admission, so that a request means here what it means over HTTP.
package natsapi
