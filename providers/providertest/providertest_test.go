package providertest

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
)

func TestBare(t *testing.T) {
	Test(t, func(tb testing.TB) providers.Provider {
		b := NewBare(tb.TempDir())
		tb.Cleanup(func() {
			if err := b.Close(); err != nil {
				tb.Error(err)
			}
		})
		return b
	})
}
