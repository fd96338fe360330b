// Package oracle holds nothing but tests: the libraries that chat services themselves or most of their users have for JavaScript judge
// which requests are genuine, beside the adapters, and speak to the doubles, so that these may stand for the services.
package oracle
