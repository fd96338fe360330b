package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// cfnTypes are the resources of CloudFormation that the template uses: their properties, those that must be there with a sign of
// exclamation, and after the bar what they return besides their name.
var cfnTypes = map[string]string{
	"AWS::ECR::Repository": "EmptyOnDelete ImageScanningConfiguration EncryptionConfiguration LifecyclePolicy RepositoryPolicyText" +
		" | Arn RepositoryUri",
	"AWS::S3::Bucket": "VersioningConfiguration! PublicAccessBlockConfiguration! OwnershipControls BucketEncryption! LifecycleConfiguration" +
		" | Arn DomainName",
	"AWS::S3::BucketPolicy":                 "Bucket! PolicyDocument! |",
	"AWS::IAM::Role":                        "Description AssumeRolePolicyDocument! Policies | Arn RoleId",
	"AWS::IAM::RolePolicy":                  "RoleName! PolicyName! PolicyDocument |",
	"AWS::IAM::ManagedPolicy":               "Description PolicyDocument! | PolicyArn",
	"AWS::S3Files::FileSystem":              "Bucket! RoleArn! Prefix AcceptBucketWarning | FileSystemId FileSystemArn",
	"AWS::S3Files::FileSystemPolicy":        "FileSystemId! Policy! |",
	"AWS::S3Files::AccessPoint":             "FileSystemId! PosixUser RootDirectory | AccessPointId AccessPointArn",
	"AWS::S3Files::MountTarget":             "FileSystemId! SubnetId! SecurityGroups | MountTargetId",
	"AWS::EC2::VPC":                         "CidrBlock! EnableDnsSupport EnableDnsHostnames | VpcId",
	"AWS::EC2::Subnet":                      "VpcId! CidrBlock! AvailabilityZone | SubnetId",
	"AWS::EC2::InternetGateway":             "| InternetGatewayId",
	"AWS::EC2::VPCGatewayAttachment":        "VpcId! InternetGatewayId |",
	"AWS::EC2::EIP":                         "Domain | AllocationId PublicIp",
	"AWS::EC2::NatGateway":                  "AllocationId SubnetId! | NatGatewayId",
	"AWS::EC2::RouteTable":                  "VpcId! | RouteTableId",
	"AWS::EC2::Route":                       "RouteTableId! DestinationCidrBlock! GatewayId NatGatewayId |",
	"AWS::EC2::SubnetRouteTableAssociation": "SubnetId! RouteTableId! |",
	"AWS::EC2::VPCEndpoint":                 "VpcId! VpcEndpointType ServiceName! RouteTableIds PolicyDocument | Id",
	"AWS::EC2::SecurityGroup":               "GroupDescription! VpcId SecurityGroupEgress! | GroupId",
	"AWS::EC2::SecurityGroupIngress":        "GroupId! IpProtocol! FromPort! ToPort! SourceSecurityGroupId! |",
	"AWS::Logs::LogGroup":                   "RetentionInDays! | Arn",
	"AWS::Lambda::Function": "Description PackageType! Architectures! Code! Role! MemorySize! Timeout! ReservedConcurrentExecutions" +
		" TenancyConfig! LoggingConfig Environment VpcConfig FileSystemConfigs | Arn",
}

// withoutResource are the actions for which AWS has no names of resources.
var withoutResource = []string{
	"ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:DeleteNetworkInterface",
	"ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
}

// ofS3Files are the actions with wildcards that the role of a file system has in the user guide of S3 ("Prerequisites for S3 Files"): what
// it does with fewer is not known.
var ofS3Files = []string{"s3:ListBucket*", "s3:DeleteObject*", "s3:GetObject*", "s3:List*", "s3:PutObject*"}

type object = map[string]any

// cfn converts a YAML node of a CloudFormation template into plain values, with short forms such as !Ref written out as functions.
func cfn(n ast.Node) any {
	switch n := n.(type) {
	case *ast.TagNode:
		name, value := strings.TrimPrefix(n.Start.Value, "!"), cfn(n.Value)
		switch name {
		case "Ref", "Condition":
			return object{name: value}
		case "GetAtt":
			resource, attribute, _ := strings.Cut(fmt.Sprint(value), ".")
			return object{"Fn::GetAtt": []any{resource, attribute}}
		}
		return object{"Fn::" + name: value}
	case *ast.MappingNode:
		o := object{}
		for _, v := range n.Values {
			key := strings.Trim(v.Key.String(), `"`)
			if _, twice := o[key]; twice {
				panic("twice there: " + key)
			}
			o[key] = cfn(v.Value)
		}
		return o
	case *ast.MappingValueNode:
		return object{strings.Trim(n.Key.String(), `"`): cfn(n.Value)}
	case *ast.SequenceNode:
		list := []any{}
		for _, v := range n.Values {
			list = append(list, cfn(v))
		}
		return list
	case *ast.AnchorNode, *ast.AliasNode: // they are scalars too, and CloudFormation takes none
	case *ast.LiteralNode:
		return n.Value.Value
	case ast.ScalarNode:
		return n.GetValue()
	}
	panic(fmt.Sprintf("CloudFormation takes no %T", n)) // such as anchors and aliases
}

// template is a CloudFormation template, with the mistakes found in it.
type template struct {
	parts object
	wrong []string
	used  map[string]bool // parameters and conditions
}

func readTemplate(text []byte) (tpl *template, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	parts, ok := cfn(f.Docs[0].Body).(object)
	if !ok || len(f.Docs) != 1 {
		return nil, fmt.Errorf("it is no template")
	}
	return &template{parts: parts, used: map[string]bool{}}, nil
}

func (t *template) bad(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

func (t *template) part(name string) object {
	o, _ := t.parts[name].(object)
	return o
}

func (t *template) resource(name string) object {
	o, _ := t.part("Resources")[name].(object)
	return o
}

func (t *template) properties(name string) object {
	o, _ := t.resource(name)["Properties"].(object)
	return o
}

// check finds everything that is wrong with the template.
func (t *template) check() []string {
	for name := range t.parts {
		if !slices.Contains([]string{"AWSTemplateFormatVersion", "Description", "Parameters", "Conditions", "Resources", "Outputs"}, name) {
			t.bad("%s is no part of a template", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.part("Resources"))) {
		t.checkResource(name)
	}
	for _, name := range slices.Sorted(maps.Keys(t.part("Outputs"))) {
		out, _ := t.part("Outputs")[name].(object)
		t.walk("output "+name, out["Value"], fmt.Sprint(out["Condition"]))
		t.condition(out["Condition"], name)
	}
	t.walk("conditions", t.part("Conditions"), "")
	for _, part := range []string{"Parameters", "Conditions"} {
		for name := range t.part(part) {
			if !t.used[name] {
				t.bad("nothing uses %s", name)
			}
		}
	}
	t.checkStatements("", t.parts)
	return t.wrong
}

func (t *template) checkResource(name string) {
	r := t.resource(name)
	for key := range r {
		if !slices.Contains([]string{"Type", "Properties", "Condition", "DependsOn", "DeletionPolicy", "UpdateReplacePolicy"}, key) {
			t.bad("%s: %s is no attribute of a resource", name, key)
		}
	}
	known, ok := cfnTypes[fmt.Sprint(r["Type"])]
	if !ok {
		t.bad("%s: the type %v is not known", name, r["Type"])
		return
	}
	takes, _, _ := strings.Cut(known, "|")
	properties := t.properties(name)
	for key := range properties {
		if !slices.Contains(strings.Fields(strings.ReplaceAll(takes, "!", "")), key) {
			t.bad("%s: %v has no property %s", name, r["Type"], key)
		}
	}
	for key := range strings.FieldsSeq(takes) {
		if must, required := strings.CutSuffix(key, "!"); required && properties[must] == nil {
			t.bad("%s: %s is missing", name, must)
		}
	}
	t.condition(r["Condition"], name)
	list, isList := r["DependsOn"].([]any)
	if !isList && r["DependsOn"] != nil {
		list = []any{r["DependsOn"]}
	}
	for _, on := range list {
		t.refer(name, fmt.Sprint(on), "", fmt.Sprint(r["Condition"]))
	}
	t.walk(name, properties, fmt.Sprint(r["Condition"]))
}

func (t *template) condition(c any, where string) {
	if c == nil {
		return
	}
	if t.part("Conditions")[fmt.Sprint(c)] == nil {
		t.bad("%s: there is no condition %v", where, c)
	}
	t.used[fmt.Sprint(c)] = true
}

var substitution = regexp.MustCompile(`\$\{([^}!]*)\}`)

// walk follows all references below v.
func (t *template) walk(where string, v any, condition string) {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			text := fmt.Sprint(value)
			switch key {
			case "Ref":
				t.refer(where, text, "", condition)
			case "Fn::GetAtt":
				pair, _ := value.([]any)
				t.refer(where, fmt.Sprint(pair[0]), fmt.Sprint(pair[1]), condition)
			case "Fn::Sub":
				for _, m := range substitution.FindAllStringSubmatch(text, -1) {
					name, attribute, _ := strings.Cut(m[1], ".")
					t.refer(where, name, attribute, condition)
				}
			case "Fn::If":
				list, _ := value.([]any)
				t.condition(list[0], where)
				t.walk(where, list[1:], condition)
			default:
				if strings.HasPrefix(key, "Fn::") && !slices.Contains([]string{"Fn::Equals", "Fn::Not", "Fn::Select", "Fn::Cidr", "Fn::GetAZs"}, key) {
					t.bad("%s: %s is not known", where, key)
				}
				t.walk(where, value, condition)
			}
		}
	case []any:
		for _, one := range v {
			t.walk(where, one, condition)
		}
	}
}

// refer checks a reference to a parameter, a resource, or what one returns, by something under a condition.
func (t *template) refer(where, name, attribute, condition string) {
	if strings.HasPrefix(name, "AWS::") {
		if !slices.Contains([]string{"AWS::AccountId", "AWS::Region", "AWS::Partition", "AWS::NoValue"}, name) {
			t.bad("%s: there is no %s", where, name)
		}
		return
	}
	if t.part("Parameters")[name] != nil && attribute == "" {
		t.used[name] = true
		return
	}
	r := t.resource(name)
	if r == nil {
		t.bad("%s refers to %s, which there is not", where, name)
		return
	}
	if c := r["Condition"]; c != nil && fmt.Sprint(c) != condition {
		t.bad("%s refers to %s, which is there under the condition %v alone", where, name, c)
	}
	_, returns, _ := strings.Cut(cfnTypes[fmt.Sprint(r["Type"])], "|")
	if attribute != "" && !slices.Contains(strings.Fields(returns), attribute) {
		t.bad("%s: %s has no attribute %s", where, name, attribute)
	}
}

// checkStatements checks each policy statement below v.
func (t *template) checkStatements(where string, v any) {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			list, ok := value.([]any)
			if key != "Statement" || !ok {
				t.checkStatements(where+"."+key, value)
				continue
			}
			for _, s := range list {
				o, _ := s.(object)
				t.checkStatement(where, o)
			}
		}
	case []any:
		for _, one := range v {
			t.checkStatements(where, one)
		}
	}
}

func (t *template) checkStatement(where string, s object) {
	for key := range s {
		if !slices.Contains([]string{"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}, key) {
			t.bad("%s: a statement has no %s", where, key)
		}
	}
	if s["Effect"] == "Deny" {
		return
	}
	actions, ok := s["Action"].([]any)
	if !ok {
		actions = []any{s["Action"]}
	}
	nameless := true
	for _, a := range actions {
		if strings.Contains(where, "SyncRole") && slices.Contains(ofS3Files, fmt.Sprint(a)) {
			nameless = false
			continue
		}
		if !regexp.MustCompile(`^[a-z0-9]+:[A-Z][A-Za-z0-9]+$`).MatchString(fmt.Sprint(a)) {
			t.bad("%s: the action %v is not one action", where, a)
		}
		nameless = nameless && slices.Contains(withoutResource, fmt.Sprint(a))
	}
	if s["Effect"] != "Allow" || s["Resource"] == "*" && !nameless {
		t.bad("%s: %v may be done to everything", where, actions)
	}
	trust := strings.Contains(where, "AssumeRolePolicyDocument") || strings.Contains(where, "RepositoryPolicyText")
	if s["Resource"] == nil && !trust {
		t.bad("%s: %v has no resource", where, actions)
	}
	if s["Principal"] == "*" && !strings.Contains(where, "BucketEndpoint") {
		t.bad("%s: everybody may do %v", where, actions)
	}
}

func lambdaTemplate(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "deploy/lambda/template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLambdaTemplate checks as much of the CloudFormation template of the Lambda functions as is possible without AWS.
func TestLambdaTemplate(t *testing.T) {
	t.Parallel()
	tpl, err := readTemplate([]byte(lambdaTemplate(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range tpl.check() {
		t.Error(wrong)
	}
	functions := 0
	for name := range tpl.part("Resources") {
		if tpl.resource(name)["Type"] == "AWS::Lambda::Function" {
			functions++
			checkFunction(t, tpl, name)
		}
	}
	if functions != 4 {
		t.Errorf("there are %d functions", functions)
	}
	for _, name := range []string{"Bucket", "FileSystem"} {
		if r := tpl.resource(name); r["DeletionPolicy"] != "Retain" || r["UpdateReplacePolicy"] != "Retain" {
			t.Errorf("%s goes with its stack", name)
		}
	}
	if got := fmt.Sprint(tpl.properties("Bucket")["VersioningConfiguration"]); got != "map[Status:Enabled]" {
		t.Errorf("the bucket is not versioned: %s", got)
	}
	if got := tpl.properties("FileSystem")["Prefix"]; got != "sandbox/" {
		t.Errorf("workspaces are at %v", got)
	}
	for name := range tpl.part("Resources") { // nothing leads out of the isolated subnets
		p := fmt.Sprint(tpl.properties(name))
		if tpl.resource(name)["Type"] == "AWS::EC2::Route" && strings.Contains(p, "IsolatedRoutes") {
			t.Errorf("%s leads out of the isolated subnets", name)
		}
	}
	for _, group := range []string{"IsolatedGroup", "NowhereGroup"} {
		if strings.Contains(fmt.Sprint(tpl.properties(group)["SecurityGroupEgress"]), "0.0.0.0") {
			t.Errorf("%s lets everything out", group)
		}
	}
}

// checkFunction checks that a function has the mounts and networks that its name implies.
func checkFunction(t *testing.T, tpl *template, name string) {
	t.Helper()
	p, all := tpl.properties(name), fmt.Sprint(tpl.properties(name))
	mount, net := strings.HasPrefix(name, "SandboxMount"), !strings.HasSuffix(name, "NoNet")
	for _, want := range []string{"Architectures:[arm64]", "MemorySize:512", "Timeout:330", "PackageType:Image", "PER_TENANT"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s: %s is not there: %s", name, want, all)
		}
	}
	for what, there := range map[string]bool{
		"FileSystemConfigs": mount, "LocalMountPath:/mnt/workspaces": mount, "DirectS3Read:DISABLED": mount,
		"SANDBOX_WORKSPACES:/mnt/workspaces": mount, "MountRole": mount, "PlainRole": !mount,
		"IsolatedSubnetA": !net, "IsolatedSubnetB": !net, "InternetSubnetA": mount && net, "InternetGroup": mount && net,
		"IsolatedGroup": mount && !net, "NowhereGroup": !mount && !net, "VpcConfig": mount || !net,
	} {
		if strings.Contains(all, what) != there {
			t.Errorf("%s: %s is there: %v, want %v", name, what, !there, there)
		}
	}
	if tpl.resource(name)["Condition"] != "ImageReady" || p["Role"] == nil {
		t.Errorf("%s is made before its image", name)
	}
}

// TestLambdaTemplateCheckBites: each mistake is found.
func TestLambdaTemplateCheckBites(t *testing.T) {
	t.Parallel()
	text := lambdaTemplate(t)
	for name, c := range map[string]struct{ old, with, says string }{
		"a reference to nothing":       {"!Ref Vpc,", "!Ref Vpd,", "Vpd, which there is not"},
		"an attribute that is not":     {"!GetAtt SyncRole.Arn", "!GetAtt SyncRole.Arm", "no attribute Arm"},
		"a text that names nothing":    {"${Repository.RepositoryUri}", "${Repository.Uri}", "no attribute Uri"},
		"a property that is not":       {"      MemorySize: 512\n", "      Memory: 512\n", "no property Memory"},
		"a property that is missing":   {"      Prefix: sandbox/\n      RoleArn: !GetAtt SyncRole.Arn\n", "", "RoleArn is missing"},
		"a type that is not":           {"AWS::EC2::NatGateway", "AWS::EC2::NatGate", "is not known"},
		"a condition that is not":      {"    Condition: ImageReady\n    DependsOn", "    Condition: Ready\n    DependsOn", "no condition Ready"},
		"all actions":                  {`["lambda:InvokeFunction", "lambda:GetFunctionConfiguration"]`, `"lambda:*"`, "is not one action"},
		"all resources":                {`Resource: !Sub "${Bucket.Arn}/sandbox/*"`, `Resource: "*"`, "to everything"},
		"wildcards of another role":    {`Action: "s3:GetObject"`, `Action: "s3:GetObject*"`, "is not one action"},
		"everybody":                    {"Principal: {AWS: !GetAtt MountRole.Arn}", `Principal: "*"`, "everybody may do"},
		"an output before its image":   {"MountNet: {Condition: ImageReady, ", "MountNet: {", "alone"},
		"an unused parameter":          {"!Ref Concurrency", "7", "nothing uses Concurrency"},
		"an alias":                     {"PolicyName: network\n", "PolicyName: &x network\n", "CloudFormation takes no"},
		"a resource's unknown word":    {"    DependsOn: InternetAttachment\n", "    DependOn: InternetAttachment\n", "DependOn is no attribute"},
		"a function that is not known": {"!GetAZs", "!GetZones", "Fn::GetZones is not known"},
	} {
		changed := strings.ReplaceAll(text, c.old, c.with)
		if changed == text {
			t.Errorf("%s: the template has no %q", name, c.old)
			continue
		}
		tpl, err := readTemplate([]byte(changed))
		if err != nil {
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wrong := strings.Join(tpl.check(), "; ")
		if !strings.Contains(wrong, c.says) {
			t.Errorf("%s: found %q", name, wrong)
		}
	}
}
