package lambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// diagnoseTime is how long one question may take.
	diagnoseTime = 15 * time.Second
	// probeTime is how long the command of a probe may take.
	probeTime = 10 * time.Second
	// probeWake is how long a probe waits for a function that AWS prepares.
	probeWake = 15 * time.Second
)

// probe is that command: it prints which programs are missing.
const probe = `for c in bash python3 node uv rg git; do command -v "$c" >/dev/null || echo "$c"; done`

// Diagnose looks at each function that is named: whether this worker may run it; where it may read that, whether its settings are right; and
// by one short command without a workspace, whether its image and its file system start, what keeps commands apart in it, and which
// programs it has. That is one invocation of each function. It blocks for two minutes at most.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(ctx, o)
	if err != nil {
		return []providers.Diagnosis{{About: "lambda", Says: err.Error(),
			Remedy: "for --provider lambda only: docs/providers/lambda.md makes the functions"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	f := p.opt.Functions
	functions := []struct{ slot, name string }{
		{"MOUNT_NET", f.MountNet}, {"MOUNT_NONET", f.MountNoNet}, {"NOMOUNT_NET", f.NoMountNet}, {"NOMOUNT_NONET", f.NoMountNoNet},
	}
	out := make([]providers.Diagnosis, len(functions))
	var work sync.WaitGroup
	for i, one := range functions {
		if one.name == "" {
			out[i] = providers.Diagnosis{About: "lambda " + one.slot, Says: "no function is named: calls that need it are refused",
				Remedy: "set SANDBOX_FN_" + one.slot}
			continue
		}
		work.Go(func() {
			out[i] = p.diagnose(ctx, one.name, one.slot[:5] == "MOUNT")
			out[i].About = "lambda " + one.slot
		})
	}
	work.Wait()
	return out
}

// diagnose checks one function.
func (p *Provider) diagnose(ctx context.Context, name string, mount bool) providers.Diagnosis {
	d := p.look(ctx, name, mount)
	if d.Good {
		d = p.probe(ctx, name, d)
	}
	return d
}

// look checks a function without running it.
func (p *Provider) look(ctx context.Context, name string, mount bool) providers.Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTime)
	defer cancel()
	in := &lambda.InvokeInput{
		FunctionName: aws.String(name), InvocationType: types.InvocationTypeDryRun, TenantId: p.tenant("doctor"), Payload: []byte("{}"),
	}
	if _, err := p.ask(ctx, in, diagnoseTime, new(atomic.Bool)); err != nil {
		return p.refused(name, err)
	}
	c, err := p.client.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: aws.String(name)})
	if statusOf(err) == http.StatusForbidden {
		return providers.Diagnosis{Good: true, Says: name + " may be run; its settings were not looked at: lambda:GetFunctionConfiguration is not allowed"}
	}
	if err != nil {
		return p.refused(name, err)
	}
	return p.settings(name, mount, c)
}

// probe runs a command in a function and adds the results to d.
func (p *Provider) probe(ctx context.Context, name string, d providers.Diagnosis) providers.Diagnosis {
	cmd := providers.Command{Script: probe, Timeout: probeTime}
	r, err := request(cmd)
	if err != nil {
		return providers.Diagnosis{Says: err.Error(), Remedy: "report this"}
	}
	in := &lambda.InvokeInput{
		FunctionName: aws.String(name), InvocationType: types.InvocationTypeRequestResponse, TenantId: p.tenant("doctor"),
	}
	out, _, err := p.invoke(ctx, attempt{in: in, request: r, limit: probeTime + overhead, wake: probeWake, mayBegin: cmd.MayBegin})
	if err != nil {
		return p.refused(name, err)
	}
	if out.FunctionError != nil {
		return providers.Diagnosis{Says: fmt.Sprintf("%s fails: %s", name, schemas.Quotable(string(out.Payload))),
			Remedy: "see the function's log in AWS, and push the image of deploy/lambda again"}
	}
	answer, err := invocation.DecodeResponse(out.Payload)
	switch {
	case err != nil:
		return providers.Diagnosis{Says: name + " has another program: its answer cannot be read", Remedy: "push the image of deploy/lambda"}
	case !answer.OK:
		return providers.Diagnosis{Says: fmt.Sprintf("%s runs no commands: %s", name, schemas.Quotable(string(answer.Err()))),
			Remedy: "where the kernel is what is missing: docs/providers/lambda.md, \"Where the kernel cannot confine\""}
	}
	i := isolation(answer.Confined)
	if d.Says += ", isolation " + i.Level; i.Level != level {
		d.Says += " (missing: " + strings.Join(i.Missing, ", ") + ")"
	}
	if missing := strings.Fields(string(answer.Out())); len(missing) > 0 { // an image of the operator's own may do without
		d.Says += "; its image has no " + strings.Join(missing, ", ")
	}
	return d
}

// refused returns the finding for a function for which Lambda returned an error.
func (p *Provider) refused(name string, err error) providers.Diagnosis {
	code := schemas.CodeOf(err)
	if _, ours := errors.AsType[*schemas.Error](err); !ours {
		r, known := judge(err, false)
		if !known {
			r = row{schemas.Unavailable, never, "Lambda cannot be asked"}
		}
		code, err = r.code, notStarted(r, err)
	}
	d := providers.Diagnosis{Says: fmt.Sprintf("%s in %s: %s", name, p.opt.Region, err), Remedy: "try again later"}
	if _, ok := errors.AsType[credentialsError](err); ok {
		d.Remedy = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this host a role"
		return d
	}
	if r, known := judge(err, false); known && r.again == waking {
		d.Remedy = "run this again in some minutes"
		return d
	}
	switch code { //nolint:exhaustive // of the others nothing better is known
	case schemas.Denied:
		d.Remedy = "give this process credentials whose policy allows lambda:InvokeFunction on it (the output WorkerPolicy of the stack)"
	case schemas.Unsupported:
		d.Remedy = "compare the name, the region and --lambda-shared-environments with the outputs of the stack"
	case schemas.Unavailable:
		d.Remedy = "see whether Lambda can be reached from here, and what state the function is in"
	}
	return d
}

// settings compares the settings of a function with what its commands need.
func (p *Provider) settings(name string, mount bool, c *lambda.GetFunctionConfigurationOutput) providers.Diagnosis {
	need := int32((invocation.MaxTimeout + 10*time.Second).Seconds())
	tenants := c.TenancyConfig != nil && c.TenancyConfig.TenantIsolationMode == types.TenantIsolationModePerTenant
	mounted := len(c.FileSystemConfigs) > 0
	switch {
	case c.State == types.StatePending:
		return providers.Diagnosis{Says: fmt.Sprintf("%s is prepared by AWS at the moment (Pending): %s; calls wait for it, or fail",
			name, reason(c.StateReasonCode, c.StateReason)), Remedy: "run this again in some minutes"}
	case c.State != "" && c.State != types.StateActive && c.State != types.StateInactive:
		return providers.Diagnosis{Says: fmt.Sprintf("%s takes no calls (%s): %s", name, c.State, reason(c.StateReasonCode, c.StateReason)),
			Remedy: remedyOf(string(c.StateReasonCode))}
	case c.LastUpdateStatus == types.LastUpdateStatusFailed:
		return providers.Diagnosis{Says: fmt.Sprintf("the last change of %s has failed, and calls get what it was before: %s",
			name, reason(c.LastUpdateStatusReasonCode, c.LastUpdateStatusReason)), Remedy: remedyOf(string(c.LastUpdateStatusReasonCode))}
	case mount && !mounted:
		return providers.Diagnosis{Says: name + " has no file system, which workspaces need",
			Remedy: "give it that of the stack, or name another function"}
	case mount && aws.ToString(c.FileSystemConfigs[0].LocalMountPath) != invocation.WorkspacesPath:
		return providers.Diagnosis{Says: name + " has its file system at another path", Remedy: "mount it at " + invocation.WorkspacesPath}
	case tenants == p.opt.SharedEnvironments:
		return providers.Diagnosis{
			Says:   fmt.Sprintf("%s is made for tenants: %v, and --lambda-shared-environments is %v", name, tenants, p.opt.SharedEnvironments),
			Remedy: "make the functions with TenancyConfig, or set --lambda-shared-environments where all accounts trust one another",
		}
	case aws.ToInt32(c.Timeout) < need:
		return providers.Diagnosis{Says: fmt.Sprintf("%s ends after %d s: commands have less than the %s that they may take",
			name, aws.ToInt32(c.Timeout), invocation.MaxTimeout), Remedy: fmt.Sprintf("set its Timeout to %d or more", need)}
	case aws.ToInt32(c.MemorySize) < memory>>20:
		return providers.Diagnosis{Says: fmt.Sprintf("%s has %d MB of memory", name, aws.ToInt32(c.MemorySize)), Remedy: "give it 512 or more"}
	}
	d := providers.Diagnosis{Good: true, Says: fmt.Sprintf("%s may be run: %d MB, %d s", name, aws.ToInt32(c.MemorySize), aws.ToInt32(c.Timeout))}
	switch {
	case c.State == types.StateInactive:
		d.Says += ", was idle for weeks (Inactive), and is prepared with its first call"
	case c.LastUpdateStatus == types.LastUpdateStatusInProgress:
		d.Says += ", is being changed, and calls get what it was before until that is done"
	}
	return d
}

// reason describes AWS's reason for a state.
func reason[Code ~string](code Code, text *string) string {
	return schemas.Quotable(cmp.Or(aws.ToString(text), "no reason is given") + " (" + cmp.Or(string(code), "no code") + ")")
}

// remedyOf returns the remedy for a failed function, by AWS's reason code.
func remedyOf(code string) string {
	switch {
	case strings.HasPrefix(code, "Image"), strings.HasPrefix(code, "FunctionError"), code == "InvalidImage":
		return "push the image of deploy/lambda under another tag, and have the stack use that (ImageTag)"
	case strings.HasPrefix(code, "Subnet"), strings.HasPrefix(code, "Eni"), strings.HasPrefix(code, "EC2"), code == "InsufficientCapacity":
		return "give the subnets of the stack more addresses, or ask AWS for more network interfaces; then change the function, such as its description"
	case code == "InvalidSubnet", code == "InvalidSecurityGroup", code == "DisallowedByVpcEncryptionControl":
		return "deploy the stack again: it makes the subnets and security groups that the function names"
	case strings.HasPrefix(code, "EFS"), strings.HasPrefix(code, "S3Files"):
		return "see whether the file system has mount targets in the function's subnets, and whether its security group lets port 2049 in"
	case strings.Contains(code, "KMS"):
		return "give the function's role the key, or enable that"
	case code == "InsufficientRolePermissions":
		return "deploy the stack again: the role of the function lacks rights"
	}
	return "see the function's events in AWS"
}
