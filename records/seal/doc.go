// Package seal keeps secrets unreadable at rest: it seals them with AES-256-GCM under keys that are
// not where the secrets are.
//
// A [Ring] holds the keys. The first of them seals; all of them open, so that a new key can come
// before every secret was sealed again. What is sealed is bound to its place, a [Context]: put
// elsewhere, it does not open.
//
// The initialisation vector of each envelope is 96 random bits. A key therefore must not seal more than 2^32 times: a repeated vector, less
// likely than one in 2^32 up to there, would betray what the two envelopes under it hold. Values are not counted; at a hundred writes a
// second that is more than a year. Put a new key first once a year.
package seal
