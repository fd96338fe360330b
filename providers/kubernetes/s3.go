package kubernetes

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// S3 is a bucket that holds workspaces on S3, mounted by the driver s3.csi.aws.com (Mountpoint). The zero value is none.
type S3 struct {
	Bucket       string   // its name, or an access point's
	Region       string   // empty: the driver finds it
	MountOptions []string // further ones of Mountpoint, such as "endpoint-url https://s3.example.com"
}

const (
	storageS3 = "s3"
	driverS3  = "s3.csi.aws.com"
	// prefixS3 is what the keys of all workspaces begin with.
	prefixS3 = "sandbox/"
	// sizeS3 is required by the API and means nothing for a bucket.
	sizeS3 = "1200Gi"
)

var (
	volumeResource = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}                   //nolint:gochecknoglobals // the name of a resource never changes
	driverResource = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"} //nolint:gochecknoglobals // the name of a resource never changes
	bucketName     = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$|^arn:aws[a-z-]*:s3[a-z-]*:[^\s]{1,200}$`)
	regionName     = regexp.MustCompile(`^[a-z0-9-]{0,40}$`)
)

// ownMountOptions are those that the provider sets itself.
func ownMountOptions() []string {
	return []string{"allow-delete", "allow-overwrite", "allow-other", "allow-root", "uid", "gid", "prefix", "region", "read-only"}
}

// checkS3 reports the first setting of the bucket that cannot be used.
func (o Options) checkS3() error {
	if o.S3.Bucket == "" {
		if o.S3.Region != "" || len(o.S3.MountOptions) > 0 {
			return schemas.Invalidf("s3-bucket", "is missing, and a region or mount options are set: name the bucket")
		}
		return nil
	}
	switch {
	case !bucketName.MatchString(o.S3.Bucket):
		return schemas.Invalidf("s3-bucket", "%q is not the name of a bucket", schemas.Quotable(o.S3.Bucket))
	case !regionName.MatchString(o.S3.Region):
		return schemas.Invalidf("s3-region", "%q is not a region such as eu-central-1", schemas.Quotable(o.S3.Region))
	case o.UserNamespaces:
		return schemas.Invalidf("s3-bucket", "a bucket cannot be mounted into pods with user namespaces: "+
			"its file system maps no users. Leave one of the two out")
	}
	for _, s := range o.S3.MountOptions {
		name, _, _ := strings.Cut(strings.TrimLeft(strings.ReplaceAll(s, "=", " "), "-"), " ")
		if name == "" || slices.Contains(ownMountOptions(), name) {
			return schemas.Invalidf("s3-mount-options", "%q is set by the provider or is not an option: leave it out", schemas.Quotable(s))
		}
	}
	return nil
}

// volumeS3 is the name of a workspace's claim and a part of its volume's: another bucket makes others.
func (p *Provider) volumeS3(namespace string) string {
	return "s3-" + hashOf(p.opt.S3.Bucket, namespace)
}

// s3Objects are a workspace's volume, which is static as the driver wants it, and the claim that takes this and no other. The volume is no
// namespace's, so its name and its handle carry ours.
func (p *Provider) s3Objects(namespace string) (volume, claim object) {
	name := p.volumeS3(namespace)
	whole := p.opt.Namespace + "-" + name
	options := []any{
		"allow-delete", "allow-overwrite", "allow-other",
		"uid=" + strconv.FormatInt(uid, 10), "gid=" + strconv.FormatInt(uid, 10), "prefix " + prefixS3 + namespace + "/",
	}
	if p.opt.S3.Region != "" {
		options = append(options, "region "+p.opt.S3.Region)
	}
	for _, o := range p.opt.S3.MountOptions {
		options = append(options, o)
	}
	volume = object{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": whole, "labels": object{labelKind: kindWorkspace, labelWorkspace: namespace}},
		"spec": object{
			"capacity": object{"storage": sizeS3}, "accessModes": []any{"ReadWriteMany"}, "storageClassName": "",
			"persistentVolumeReclaimPolicy": "Retain",
			"claimRef":                      object{"namespace": p.opt.Namespace, "name": name},
			"mountOptions":                  options,
			"csi": object{
				"driver": driverS3, "volumeHandle": whole, "volumeAttributes": object{"bucketName": p.opt.S3.Bucket},
			},
		},
	}
	claim = object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": p.metadata(name, kindWorkspace, ""),
		"spec": object{
			"accessModes": []any{"ReadWriteMany"}, "storageClassName": "", "volumeName": whole,
			"resources": object{"requests": object{"storage": sizeS3}},
		},
	}
	return volume, workspaceLabels(claim, namespace)
}

// makeS3 makes the volume and the claim of a workspace on S3 where they are not there.
func (p *Provider) makeS3(ctx context.Context, namespace string) error {
	if there, err := p.get(ctx, claimResource, p.volumeS3(namespace)); err != nil || there != nil {
		return err
	}
	volume, claim := p.s3Objects(namespace)
	if _, _, err := p.create(ctx, volumeResource, volume); err != nil {
		return err
	}
	_, _, err := p.create(ctx, claimResource, claim)
	return err
}

// refuseStorage reports files that are where no pod of ours reaches them.
func (p *Provider) refuseStorage(m providers.Mount) error {
	switch {
	case m.Storage != "" && m.Storage != storageS3:
		return schemas.Errorf(schemas.Unsupported, "run", "workspaces on %s are not known here", schemas.Quotable(m.Storage))
	case m.Storage == storageS3 && p.opt.S3.Bucket == "":
		return schemas.Errorf(schemas.Unsupported, "run", "the workspace is on S3, and no bucket is named: "+
			"give the worker --kubernetes-s3-bucket, in a cluster with the driver %s", driverS3)
	}
	return nil
}
