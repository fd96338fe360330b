package modal_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
)

// TestVendorsGoClient runs the vendor's own client for Go, as it is, against the service of these tests: what it takes for Modal may
// stand for it.
func TestVendorsGoClient(t *testing.T) { // it reads its address from the environment
	s, at := modaltest.Start(t, modaltest.Options{MaxRunning: 2})
	t.Setenv("MODAL_SERVER_URL", at)
	t.Setenv("MODAL_CONFIG_PATH", filepath.Join(t.TempDir(), "none"))
	client, err := sdk.NewClientWithOptions(&sdk.ClientParams{TokenID: modaltest.TokenID, TokenSecret: modaltest.TokenSecret})
	testwait.OK(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	app, err := client.Apps.FromName(ctx, "vendor", &sdk.AppFromNameParams{CreateIfMissing: true})
	testwait.OK(t, err)
	files, err := client.Volumes.FromName(ctx, "files", &sdk.VolumeFromNameParams{CreateIfMissing: true, Version: 2})
	testwait.OK(t, err)
	image := client.Images.FromRegistry("debian:12", nil)
	box, err := client.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{
		Name: "first", Tags: map[string]string{"purpose": "a"}, BlockNetwork: true, Volumes: map[string]*sdk.Volume{"/mnt/files": files},
		Timeout: time.Minute,
	})
	testwait.OK(t, err)
	defer func() { _ = box.Detach() }()
	_, err = client.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{Name: "first"})
	if !errors.As(err, &sdk.AlreadyExistsError{}) {
		t.Errorf("a second of the name: %v", err)
	}
	run, err := box.Exec(ctx, []string{"bash", "-c", `read -r x; echo "$x $MINE"; echo err >&2; pwd; echo kept >/mnt/files/file; exit 3`},
		&sdk.SandboxExecParams{Workdir: "/tmp", Env: map[string]string{"MINE": "too"}})
	testwait.OK(t, err)
	_, err = io.WriteString(run.Stdin, "word\n")
	testwait.OK(t, err)
	out, err := io.ReadAll(run.Stdout)
	testwait.OK(t, err)
	errs, err := io.ReadAll(run.Stderr)
	testwait.OK(t, err)
	if code, err := run.Wait(ctx, nil); err != nil || code != 3 || string(out) != "word too\n/tmp\n" || string(errs) != "err\n" {
		t.Errorf("%d, %v, %q, %q", code, err, out, errs)
	}
	if found, err := client.Sandboxes.FromName(ctx, "vendor", "first", nil); err != nil || found.SandboxID != box.SandboxID {
		t.Errorf("by name: %v, %v", found, err)
	}
	if tags, err := box.GetTags(ctx, nil); err != nil || tags["purpose"] != "a" {
		t.Errorf("tags: %v, %v", tags, err)
	}
	for want, tag := range map[int]string{1: "a", 0: "b"} {
		all, err := client.Sandboxes.List(ctx, &sdk.SandboxListParams{AppID: app.AppID, Tags: map[string]string{"purpose": tag}})
		testwait.OK(t, err)
		n := 0
		for _, err := range all {
			testwait.OK(t, err)
			n++
		}
		if n != want {
			t.Errorf("%d with the tag %s", n, tag)
		}
	}
	testwait.OK(t, box.ReloadVolumes(ctx, nil))
	if code, err := box.Poll(ctx, nil); err != nil || code != nil {
		t.Errorf("it has ended: %v, %v", code, err)
	}
	if code, err := box.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true}); err != nil || code != 137 {
		t.Errorf("ended with %d, %v", code, err)
	}
	if _, err := client.Sandboxes.FromName(ctx, "vendor", "first", nil); !errors.As(err, &sdk.NotFoundError{}) {
		t.Errorf("by name, when it has ended: %v", err)
	}
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestVendorsClient runs the vendor's own client for JavaScript against the service of these tests.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Modal for JavaScript")
	s, at := modaltest.Start(t, modaltest.Options{MaxRunning: 2})
	cloudtest.VendorsClient(t, "modaltest/client", []string{"MODAL_TOKEN_ID=" + modaltest.TokenID, "MODAL_TOKEN_SECRET=" + modaltest.TokenSecret,
		"MODAL_SERVER_URL=" + at, "MODAL_CONFIG_PATH=" + filepath.Join(t.TempDir(), "none"), "MODAL_LOGLEVEL=ERROR"},
		[]string{"create", "run", "stdin", "deadline", "tags", "list", "limits", "gone"})
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
