package providertest

import (
	"io/fs"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

func TestBare(t *testing.T) {
	longtest.Only(t, "the suite once more, by a provider that isolates nothing; package local passes it in boxes")
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

func TestObjects(t *testing.T) {
	t.Parallel()
	RunFS(t, func(*testing.T) Workspace {
		o := NewObjects()
		return Workspace{
			Open: func(_ *testing.T, readOnly bool) workspacefs.FS { return o.FS(readOnly) },
			Symlink: func(_ *testing.T, target, name string) {
				o.Put(name, fs.ModeSymlink|0o777, []byte(target), time.Now())
			},
			FIFO: func(_ *testing.T, name string) { o.Put(name, fs.ModeNamedPipe|0o666, nil, time.Now()) },
		}
	})
}
