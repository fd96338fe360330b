package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// putTrust writes the file of certificates that programs of a container trust: those of its image, and one more. If the root is read-only
// the file's folder is a volume of the container. The file belongs to root.
func putTrust(ctx context.Context, engine *client.Client, id string, certificate []byte, writable bool) error {
	all, err := imageCertificates(ctx, engine, id)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		all = append(bytes.TrimRight(all, "\n"), '\n')
	}
	all = append(all, certificate...)
	to, name := trustDir, path.Base(trustFile)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if writable {
		to, name = path.Dir(trustDir), path.Base(trustDir)+"/"+name
		err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Dir(name) + "/", Mode: 0o755, ModTime: time.Now()})
	}
	err = errors.Join(err,
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(all)), ModTime: time.Now()}))
	if err == nil {
		_, err = w.Write(all)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err = engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: to, Content: &archive})
	return err
}

// imageCertificates returns the certificates that programs of a container's image trust; empty if the image has none.
func imageCertificates(ctx context.Context, engine *client.Client, id string) ([]byte, error) {
	for _, from := range authorities() {
		all, link, err := fileOf(ctx, engine, id, from)
		if err == nil && link != "" {
			all, _, err = fileOf(ctx, engine, id, link)
		}
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, err
		case len(all) > 0:
			return all, nil
		}
	}
	return nil, nil
}

// fileOf returns the content of a file of a container, at most mostCertificates bytes, or the target if it is a link.
func fileOf(ctx context.Context, engine *client.Client, id, from string) (content []byte, link string, err error) {
	found, err := engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: from})
	if err != nil {
		return nil, "", err
	}
	defer found.Content.Close() //nolint:errcheck // read only
	if found.Stat.LinkTarget != "" {
		return nil, found.Stat.LinkTarget, nil
	}
	r := tar.NewReader(found.Content)
	h, err := r.Next()
	if err != nil {
		return nil, "", fmt.Errorf("read %s of the image: %w", from, err)
	}
	if h.Typeflag != tar.TypeReg || h.Size > mostCertificates {
		return nil, "", nil
	}
	content, err = io.ReadAll(io.LimitReader(r, mostCertificates))
	return content, "", err
}
