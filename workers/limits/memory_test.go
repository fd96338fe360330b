package limits_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/limits/limitstest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	limitstest.Test(t, limitstest.Subject{
		Open:   func(testing.TB) limits.Limiter { return new(limits.Memory) },
		Bubble: synctest.Test,
		TTL:    10 * time.Second,
	})
}
