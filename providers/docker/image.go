package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// PullPolicy is when a starting worker pulls the image.
type PullPolicy string

// The policies.
const (
	PullMissing PullPolicy = "missing" // when the engine does not have it
	PullAlways  PullPolicy = "always"  // at each start, so that a tag that was moved is followed
	PullNever   PullPolicy = "never"
)

// PullPolicies lists all policies.
func PullPolicies() []PullPolicy { return []PullPolicy{PullMissing, PullAlways, PullNever} }

// image is the image of containers.
type image struct {
	name  string
	path  string // PATH of its programs
	shell string // bash, or sh where it has none
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// imageSource provides the image, pulling it according to the policy.
type imageSource struct {
	engine *client.Client
	log    *slog.Logger
	name   string
	policy PullPolicy
}

// get ensures that the engine has the image, and returns the PATH of its programs.
func (s imageSource) get(ctx context.Context) (programs string, err error) {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	found, err := s.engine.ImageInspect(asking, s.name)
	cancel()
	missing := errdefs.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return "", unreachable(s.engine, err)
	case missing && s.policy == PullNever:
		return "", schemas.OpErrorf(schemas.NotFound, "docker",
			"the engine has no image %s: build it with \"docker build -t %[1]s deploy/sandbox\", or name another with --docker-image", s.name)
	case missing || s.policy == PullAlways:
		if err := s.pull(ctx); err != nil {
			if missing || ctx.Err() != nil {
				return "", err
			}
			s.log.Warn("image not pulled, using the local one", "image", s.name, "error", err)
		}
		asking, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if found, err = s.engine.ImageInspect(asking, s.name); err != nil {
			return "", unreachable(s.engine, err)
		}
	}
	programs = defaultPath
	if found.Config != nil {
		for _, variable := range found.Config.Env {
			if path, ok := strings.CutPrefix(variable, "PATH="); ok && path != "" {
				programs = path
			}
		}
	}
	return programs, nil
}

// progressEvery is how often a pull is logged.
const progressEvery = 5 * time.Second

// pull pulls the image from its registry. It has no credentials: if the registry needs a password, the operator runs "docker pull" first.
func (s imageSource) pull(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	s.log.Info("pulling the image", "image", s.name)
	answer, err := s.engine.ImagePull(ctx, s.name, client.ImagePullOptions{})
	if err != nil {
		return s.notPulled(err)
	}
	defer answer.Close() //nolint:errcheck // it was read to its end
	layers, logged := map[string][2]int64{}, time.Now()
	for m, err := range answer.JSONMessages(ctx) {
		switch {
		case err != nil:
			return s.notPulled(err)
		case m.Error != nil:
			return s.notPulled(errors.New(m.Error.Message))
		case m.Progress != nil && m.ID != "" && m.Status == "Downloading":
			layers[m.ID] = [2]int64{m.Progress.Current, m.Progress.Total}
		}
		if time.Since(logged) >= progressEvery {
			logged = time.Now()
			var have, all int64
			for _, l := range layers {
				have, all = have+l[0], all+l[1]
			}
			s.log.Info("pulling the image", "image", s.name, "layers", len(layers), "mib", have/mebi, "of_mib", all/mebi)
		}
	}
	s.log.Info("image pulled", "image", s.name)
	return nil
}

// notPulled returns the error for an image that cannot be pulled, with a remedy.
func (s imageSource) notPulled(err error) error {
	return schemas.Wrap(schemas.NotFound, "docker",
		fmt.Sprintf("the image %s is not on the engine and cannot be pulled: "+
			"try \"docker pull %[1]s\", with \"docker login\" first where the registry wants a password", s.name), err)
}
