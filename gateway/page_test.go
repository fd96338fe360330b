package gateway_test

import (
	"reflect"
	"testing"

	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/live"
)

// TestAPageIsOneOnTheWire: pages from memory and from the log have the same members, in the same order.
func TestAPageIsOneOnTheWire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ log, memory reflect.Type }{
		{reflect.TypeFor[conversations.Page](), reflect.TypeFor[live.Page]()},
		{reflect.TypeFor[conversations.PageEvent](), reflect.TypeFor[live.PageEvent]()},
	} {
		if c.log.NumField() != c.memory.NumField() {
			t.Errorf("%s has %d members, %s has %d", c.log, c.log.NumField(), c.memory, c.memory.NumField())
			continue
		}
		for i := range c.log.NumField() {
			log, memory := c.log.Field(i), c.memory.Field(i)
			if log.Name != memory.Name || log.Tag != memory.Tag {
				t.Errorf("%s.%s is %s, %s.%s is %s", c.log, log.Name, log.Tag, c.memory, memory.Name, memory.Tag)
			}
		}
	}
}
