//go:build linux

package lambda_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/lambda/lambdatest"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) {
	lambdatest.Main()
	longtest.SideBySide()
	flag.Parse()
	// Nothing of AWS's that this host has may be found, but for the tests that ask for it.
	found := map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_PROFILE": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_LAMBDA": "",
	}
	if *live {
		clear(found)
	}
	for name, value := range found {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const (
	account  = schemas.AccountID("acct_lambda")
	patience = 60 * time.Second
)

// start starts a service of the test's own, and a provider on it.
func start(tb testing.TB, o lambdatest.Options, change func(*lambda.Options)) (*lambda.Provider, *lambdatest.Service) {
	tb.Helper()
	s, url := lambdatest.Start(tb, o)
	return on(tb, url, change), s
}

// functions are those of the service.
func functions() lambda.Functions {
	return lambda.Functions{
		MountNet: lambdatest.MountNet, MountNoNet: lambdatest.MountNoNet,
		NoMountNet: lambdatest.NoMountNet, NoMountNoNet: lambdatest.NoMountNoNet,
	}
}

// credentials are those that a service takes, with a session token.
func credentials(token string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: lambdatest.AccessKey, SecretAccessKey: lambdatest.SecretKey, SessionToken: token}, nil
	})
}

// settings are those of a provider on a service.
func settings(url string) lambda.Options {
	return lambda.Options{
		Functions: functions(), Region: lambdatest.Region, Endpoint: url, Credentials: credentials("session"),
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll},
	}
}

// on opens a provider on a service.
func on(tb testing.TB, url string, change func(*lambda.Options)) *lambda.Provider {
	tb.Helper()
	o := settings(url)
	if change != nil {
		change(&o)
	}
	p, err := lambda.Open(tb.Context(), o)
	testwait.OK(tb, err)
	tb.Cleanup(func() { testwait.OK(tb, p.Close()) })
	return p
}

// namespace is that of the workspace of [command].
const namespace = "fs-1"

// command is script with a workspace.
func command(script string) providers.Command {
	s := providers.Spec{
		Account: account, Mounts: []providers.Mount{{Namespace: namespace}}, Network: schemas.Network{Mode: schemas.DenyAll},
	}
	return providers.Command{Script: script, Mounts: s.Mounts, Network: s.Network, Spec: s, Timeout: patience}
}

// plain is script without one.
func plain(script string) providers.Command {
	cmd := command(script)
	cmd.Mounts, cmd.Spec.Mounts = nil, nil
	return cmd
}

// ok runs cmd, which must succeed, and returns what it printed.
func ok(t *testing.T, p *lambda.Provider, cmd providers.Command) string {
	t.Helper()
	res, err := p.Run(t.Context(), cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("exit code %d, %v (stdout %.300q, stderr %.300q)", res.ExitCode, err, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}
