package main

import "fmt"

// count returns a number with its noun in the right form: "1 result", "2 results". A plural that is not formed by an s is given.
func count[N int | int64 | uint64](n N, noun string, plural ...string) string {
	switch {
	case n == 1:
		return fmt.Sprintf("%d %s", n, noun)
	case len(plural) > 0:
		return fmt.Sprintf("%d %s", n, plural[0])
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// are returns count with its verb: "1 call is", "2 calls are".
func are[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return count(n, noun) + " is"
	}
	return count(n, noun) + " are"
}
