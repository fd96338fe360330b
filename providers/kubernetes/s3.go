package kubernetes

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

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

// ownMountOptions returns the mount options that the provider sets itself.
func ownMountOptions() []string {
	return []string{"allow-delete", "allow-overwrite", "allow-other", "allow-root", "uid", "gid", "prefix", "region", "read-only"}
}

// checkS3 returns an error for the first invalid setting of the bucket.
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
