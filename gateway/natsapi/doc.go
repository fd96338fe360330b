// Package natsapi is the API for NATS clients: [IntakeConsumer] admits calls that were published, at any time, and [Service] answers
// requests at once. Both admit through package admission, so a request has the same meaning as over HTTP.
package natsapi
