// Package credentials finds who a request or a socket belongs to, by a key or an attach token, and when that ends.
package credentials
