package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// TestLambdaTemplateTypes checks the template against the types that AWS publishes for CloudFormation, to the last property, with a reader
// that shares nothing with [TestLambdaTemplate]. That the check finds what is wrong is shown with templates that are.
func TestLambdaTemplateTypes(t *testing.T) {
	longtest.Only(t, "it installs the types of CloudFormation for JavaScript")
	text := lambdaTemplate(t)
	cases := []struct{ name, old, with, says string }{
		{name: "as it is"},
		{"a property deep inside", "VersioningConfiguration: {Status:", "VersioningConfiguration: {State:", "no property State"},
		{"a property in a list", "LocalMountPath:", "MountPath:", "no property MountPath"},
		{"a list that is none", "Architectures: [arm64]", "Architectures: arm64", "is no list"},
		{"a number that is none", "MemorySize: 512", "MemorySize: much", "is no whole number"},
		{"a type that is not", "AWS::EC2::NatGateway", "AWS::EC2::NatGate", "no type AWS::EC2::NatGate"},
		{"an attribute that is not", "!GetAtt SyncRole.Arn", "!GetAtt SyncRole.Arm", "no attribute Arm"},
		{"an attribute in a text", "${Repository.RepositoryUri}", "${Repository.Uri}", "no attribute Uri"},
		{"a property that is missing", "      RoleArn: !GetAtt SyncRole.Arn\n", "", "RoleArn is missing"},
	}
	templates := make([]object, len(cases))
	for i, c := range cases {
		changed := text
		if c.old != "" {
			changed = strings.ReplaceAll(text, c.old, c.with)
			if changed == text {
				t.Fatalf("%s: the template has no %q", c.name, c.old)
			}
		}
		tpl, err := readTemplate([]byte(changed))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		templates[i] = tpl.parts
	}
	sent, err := json.Marshal(templates)
	if err != nil {
		t.Fatal(err)
	}
	var found [][]string
	if err := json.Unmarshal(checkTypes(t, sent), &found); err != nil || len(found) != len(cases) {
		t.Fatalf("%d answers, %v", len(found), err)
	}
	for i, c := range cases {
		all := strings.Join(found[i], "; ")
		if c.says == "" && all != "" || !strings.Contains(all, c.says) {
			t.Errorf("%s: found %q, want %q", c.name, all, c.says)
		}
	}
}

// checkTypes is what the check prints of the templates sent.
func checkTypes(t *testing.T, sent []byte) []byte {
	t.Helper()
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("testdata/cloudformation")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) []byte {
		cmd := exec.CommandContext(ctx, name, args...)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(sent), &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, stderr.Bytes())
		}
		return out
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	return run("node", "check.mjs")
}
