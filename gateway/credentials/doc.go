// Package credentials authenticates requests and sockets by an API key or an attach token, and finds when that stops being valid.
package credentials
