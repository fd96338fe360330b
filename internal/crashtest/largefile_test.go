package crashtest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/longtest"
)

const (
	largeFile = 1 << 30
	// largeFileMemory is how much more a process may hold while a large file goes through it: some pieces, and what the collector leaves.
	largeFileMemory = 128 << 20
)

// TestALargeFileGoesUpAndDown: a file of 1 GiB goes up and down whole, while gateway, workers and the server of the log are killed on the
// way, and no process holds more of it than some pieces.
func TestALargeFileGoesUpAndDown(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it moves 1 GiB twice")
	ctx, cancel := context.WithTimeout(t.Context(), sizeOf().ends)
	defer cancel()
	c := startCluster(ctx, t)
	cl := client.New("http://"+c.gateway, c.key)
	w, err := cl.Workspaces("me").Add(ctx, map[string]string{"name": "large"})
	if err != nil {
		t.Fatal(err)
	}
	watch := c.watchMemory(ctx)
	kills := &killsOnTheWay{t: t, c: c, every: largeFile / 4}
	up := &counted{Hash: sha256.New()}
	source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{7}), largeFile), up)
	f, err := cl.Files(w.ID).Upload(ctx, "data/large.bin", source, client.UploadOptions{ID: "large", Progress: kills.at})
	if err != nil || f.Size != largeFile {
		t.Fatalf("%+v, %v", f, err)
	}
	if kills.done != 3 {
		t.Errorf("%d kills on the way up", kills.done)
	}
	kills.done = 0
	down := &counted{Hash: sha256.New(), at: kills.at}
	if n, err := cl.Files(w.ID).Download(ctx, "data/large.bin", down); err != nil || n != largeFile {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if kills.done != 3 {
		t.Errorf("%d kills on the way down", kills.done)
	}
	if sent, got := hex.EncodeToString(up.Sum(nil)), hex.EncodeToString(down.Sum(nil)); sent != got {
		t.Errorf("it came back as %s, not %s", got, sent)
	}
	for name, grown := range watch() {
		t.Logf("%s held up to %d MiB more", name, grown>>20)
		if grown > largeFileMemory {
			t.Errorf("%s held %d MiB more", name, grown>>20)
		}
	}
}

// killsOnTheWay kills one role after the other, each time that so many bytes more have gone.
type killsOnTheWay struct {
	t     *testing.T
	c     *cluster
	every int64
	done  int
}

func (k *killsOnTheWay) at(n int64) {
	if n < k.every*int64(k.done+1) || k.done >= 3 {
		return
	}
	p := k.c.roles[[]int{1, 2, 0}[k.done]] // a gateway, a worker, the server
	k.done++
	p.kill()
	k.c.revive(k.t, p)
	if k.done == 2 {
		for _, other := range k.c.roles[3:] {
			other.kill()
			k.c.revive(k.t, other)
		}
	}
}

// counted is a hash that says how many bytes it has.
type counted struct {
	hash.Hash

	n  int64
	at func(n int64)
}

func (c *counted) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	if c.at != nil {
		c.at(c.n)
	}
	return c.Hash.Write(b)
}

// watchMemory looks at what the roles hold until the function that it returns is called, which says by how much each grew at most.
func (c *cluster) watchMemory(ctx context.Context) func() map[string]int64 {
	before, most := c.memory(), map[string]int64{}
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			for name, n := range c.memory() {
				most[name] = max(most[name], n-before[name])
			}
			pause(ctx, 50*time.Millisecond)
		}
	})
	return func() map[string]int64 {
		stop()
		looking.Wait()
		return most
	}
}
