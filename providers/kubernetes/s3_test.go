package kubernetes_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// onS3 is a command in a workspace that is on S3.
func onS3(script string) providers.Command {
	cmd := command(script)
	cmd.Mounts = []providers.Mount{{Namespace: cmd.Mounts[0].Namespace, Storage: "s3"}}
	cmd.Spec.Mounts = cmd.Mounts
	return cmd
}

func bucket(o *kubernetes.Options) {
	o.S3 = kubernetes.S3{Bucket: "team-files", Region: "eu-central-1", MountOptions: []string{"endpoint-url https://s3.example.com"}}
}

// TestWorkspaceOnS3: its files are in the bucket, below its own prefix, whichever command runs and however the box is kept, and stay
// when boxes go.
func TestWorkspaceOnS3(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, bucket)
		sh(t, p, onS3("echo kept >file"))
		ref, err := p.Reserve(t.Context(), "key", onS3("").Spec)
		if err != nil {
			t.Fatal(err)
		}
		again := onS3("cat file; cat /workspace/file; cat >>more")
		again.Sandbox = ref
		if got := sh(t, p, again); got != "kept\nkept\n" {
			t.Errorf("the kept box has %q", got)
		}
		if err := p.Release(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, p, command("ls -A")); got != "" {
			t.Errorf("a workspace that is not on S3 has %q", got)
		}
		volumes, claims := c.Objects("persistentvolumes"), slices.DeleteFunc(c.Objects("persistentvolumeclaims"), func(s string) bool {
			return !strings.HasPrefix(s, "s3-")
		})
		if len(volumes) != 1 || len(claims) != 1 || volumes[0] != kubetest.Namespace+"-"+claims[0] {
			t.Fatalf("volumes %v, claims %v", volumes, claims)
		}
		if dir := c.Volume(claims[0]); !strings.HasSuffix(dir, "/team-files/sandbox/"+onS3("").Mounts[0].Namespace) {
			t.Errorf("the files are in %s", dir)
		}
	}, kubetest.Options{S3: true})
}

// TestVolumesAreAsTheDriverHasThem compares the fields of our volume and claim with those of the driver's published example of static
// provisioning (examples/kubernetes/static_provisioning/non_root.yaml of Mountpoint's CSI driver, version 2).
func TestVolumesAreAsTheDriverHasThem(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{S3: true})
	p := open(t, c, bucket)
	sh(t, p, onS3("true"))
	claim := c.Objects("persistentvolumeclaims")[0]
	volume := kubetest.Namespace + "-" + claim
	ns := onS3("").Mounts[0].Namespace
	for resource, want := range map[string]map[string]string{
		"persistentvolumes": {
			"spec.capacity.storage": "1200Gi", "spec.accessModes": "ReadWriteMany", "spec.storageClassName": "",
			"spec.claimRef.namespace": kubetest.Namespace, "spec.claimRef.name": claim,
			"spec.mountOptions": "allow-delete allow-overwrite allow-other uid=1000 gid=1000 prefix sandbox/" + ns + "/ " +
				"region eu-central-1 endpoint-url https://s3.example.com",
			"spec.csi.driver": "s3.csi.aws.com", "spec.csi.volumeHandle": volume, "spec.csi.volumeAttributes.bucketName": "team-files",
			"spec.persistentVolumeReclaimPolicy": "Retain", // static volumes have it unless it is said otherwise
		},
		"persistentvolumeclaims": {
			"spec.accessModes": "ReadWriteMany", "spec.storageClassName": "", "spec.resources.requests.storage": "1200Gi", "spec.volumeName": volume,
		},
	} {
		got := map[string]string{}
		flatten(got, "spec", c.Get(resource, cmp.Or(map[string]string{"persistentvolumes": volume}[resource], claim))["spec"])
		if !maps.Equal(got, want) {
			t.Errorf("%s:\n%v\nwant\n%v", resource, got, want)
		}
	}
}

// flatten writes the leaves of an object under their paths.
func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			flatten(into, path+"."+name, inner)
		}
	case []any:
		var words []string
		for _, e := range v {
			s, _ := e.(string)
			words = append(words, s)
		}
		into[path] = strings.Join(words, " ")
	case string:
		into[path] = v
	}
}

// TestS3ThatCannotBe: what lacks the bucket, the driver or a right is refused, and says what to do.
func TestS3ThatCannotBe(t *testing.T) {
	t.Parallel()
	none := kubetest.Start(t, kubetest.Options{})
	p := open(t, none, nil)
	if p.Profile().Storage != schemas.StorageNo {
		t.Errorf("without a bucket the profile says %q", p.Profile().Storage)
	}
	_, err := p.Run(t.Context(), onS3("true"))
	if wantCode(t, err, schemas.Unsupported); err != nil && !strings.Contains(err.Error(), "--kubernetes-s3-bucket") {
		t.Errorf("the error says %v", err)
	}
	strange := onS3("true")
	strange.Mounts[0].Storage = "tape"
	_, err = p.Run(t.Context(), strange)
	wantCode(t, err, schemas.Unsupported)
	p = open(t, none, func(o *kubernetes.Options) {
		bucket(o)
		o.StartTimeout = 300 * time.Millisecond
	})
	_, err = p.Run(t.Context(), onS3("true"))
	if wantCode(t, err, schemas.Unavailable); err != nil && !strings.Contains(err.Error(), "not registered") {
		t.Errorf("the error says %v", err)
	}
	if says := findings(t, none, bucket); !strings.Contains(says, "no driver s3.csi.aws.com") {
		t.Errorf("the check says:\n%s", says)
	}
	poor := kubetest.Start(t, kubetest.Options{S3: true, Rules: rulesOf(t, "rbac-pod.yaml")})
	for _, want := range []string{"create persistentvolumes", "rbac-s3.yaml"} {
		if says := findings(t, poor, bucket); !strings.Contains(says, want) {
			t.Errorf("the check does not say %q:\n%s", want, says)
		}
	}
}

func findings(t *testing.T, c *kubetest.Cluster, change func(*kubernetes.Options)) string {
	t.Helper()
	o := kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"}
	change(&o)
	var says strings.Builder
	for _, f := range kubernetes.Check(t.Context(), o) {
		says.WriteString(f.Says + ": " + f.Remedy + "\n")
	}
	return says.String()
}

func TestSettingsOfS3(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	for name, change := range map[string]func(*kubernetes.Options){
		"not the name of a bucket": func(o *kubernetes.Options) { o.S3.Bucket = "Team/Files" },
		"is missing":               func(o *kubernetes.Options) { o.S3.Bucket = "" },
		"not a region":             func(o *kubernetes.Options) { o.S3.Region = "eu central" },
		"set by the provider":      func(o *kubernetes.Options) { o.S3.MountOptions = []string{"prefix=everything/"} },
		"or is not an option":      func(o *kubernetes.Options) { o.S3.MountOptions = []string{"--allow-root"} },
		"with user namespaces":     func(o *kubernetes.Options) { o.UserNamespaces = true },
		"\"--uid 0\" is set":       func(o *kubernetes.Options) { o.S3.MountOptions = []string{"--uid 0"} },
	} {
		o := kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"}
		bucket(&o)
		change(&o)
		_, err := kubernetes.New(t.Context(), o)
		if wantCode(t, err, schemas.Invalid); err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not in %v", name, err)
		}
	}
}
