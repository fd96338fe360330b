// Command gateway serves a folder as S3: what tests and walks through the guide use as a bucket. It is versitygw, embedded, in a
// module of its own, so that users of Sandjet do not get what it depends on.
//
//	gateway -listen 127.0.0.1:9000 -folder DIR -key KEY -secret SECRET
//
// Each folder in DIR is a bucket. It ends with its standard input where -attached is given, so that none outlives its test.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:9000", "address")
	folder := flag.String("folder", "", "folder whose folders are the buckets")
	key := flag.String("key", "sandjet", "access key of the administrator")
	secret := flag.String("secret", "sandjet-secret", "its secret")
	attached := flag.Bool("attached", false, "end with standard input")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *attached {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // only its end matters
			stop()
		}()
	}
	files, err := posix.New(*folder, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		return fmt.Errorf("folder %q: %w", *folder, err)
	}
	const many = 1000
	return embedgw.RunVersityGW(ctx, files, &embedgw.Config{
		RootUserAccess: *key, RootUserSecret: *secret, Ports: []string{*listen},
		MaxConnections: many, MaxRequests: many, MultipartMaxParts: 10 * many, Quiet: true,
	})
}
