package kubetest

import (
	"path/filepath"
	"slices"
	"strings"
)

const driverS3 = "s3.csi.aws.com"

// optionsS3 lists the Mountpoint options that the driver passes on, and whether each has a value.
func optionsS3() map[string]bool {
	return map[string]bool{
		"allow-delete": false, "allow-overwrite": false, "allow-other": false, "read-only": false, "uid": true, "gid": true,
		"prefix": true, "region": true, "endpoint-url": true, "force-path-style": false,
	}
}

// mountOptions returns a volume's mount options by name.
func mountOptions(volume any) map[string]string {
	all := map[string]string{}
	for _, v := range list(volume, "spec", "mountOptions") {
		s, _ := v.(string)
		name, value, _ := strings.Cut(strings.Replace(s, "=", " ", 1), " ")
		all[name] = value
	}
	return all
}

// checkVolume validates a volume as the API server does, and a bucket's mount options as Mountpoint does, which exits on unknown ones.
func (c *Cluster) checkVolume(o, old object, bad complain) {
	if old != nil && !sameJSON(at(old, "spec", "csi"), at(o, "spec", "csi")) {
		bad("", "spec.persistentvolumesource is immutable after creation", "spec", "csi")
	}
	checkQuantity(at(o, "spec", "capacity", "storage"), bad, "spec", "capacity", "storage")
	if len(list(o, "spec", "accessModes")) == 0 {
		bad("", "Required value", "spec", "accessModes")
	}
	for _, path := range [][]string{{"spec", "csi", "driver"}, {"spec", "csi", "volumeHandle"}} {
		if text(o, path...) == "" {
			bad("", "Required value", path...)
		}
	}
	if text(o, "spec", "csi", "driver") != driverS3 {
		return
	}
	if text(o, "spec", "csi", "volumeAttributes", "bucketName") == "" {
		bad("", "Required value", "spec", "csi", "volumeAttributes", "bucketName")
	}
	for name, value := range mountOptions(o) {
		if valued, known := optionsS3()[name]; !known || valued != (value != "") {
			bad(name, "unexpected argument", "spec", "mountOptions")
		}
	}
	if p := mountOptions(o)["prefix"]; p != "" && !strings.HasSuffix(p, "/") {
		bad(p, "a prefix ends with /", "spec", "mountOptions")
	}
}

// binding returns the phase of a claim that names its volume.
func (c *Cluster) binding(claim object) string {
	volume := c.objects[key{"", "persistentvolumes", text(claim, "spec", "volumeName")}]
	ref, _ := at(volume, "spec", "claimRef").(object)
	switch {
	case volume == nil || text(ref, "namespace") != Namespace || text(ref, "name") != text(claim, "metadata", "name"):
		return "Pending"
	case text(volume, "spec", "storageClassName") != text(claim, "spec", "storageClassName"):
		return "Pending"
	case !slices.ContainsFunc(list(claim, "spec", "accessModes"), func(m any) bool {
		return slices.Contains(list(volume, "spec", "accessModes"), m)
	}):
		return "Pending"
	case text(volume, "spec", "csi", "driver") == driverS3 && !c.opt.S3:
		return "bound to a volume of a driver that is not registered"
	}
	return "Bound"
}

// volumeOf returns the directory of a claim's files, below that of all volumes. All claims on the same bucket and prefix share one.
func (c *Cluster) volumeOf(claim object) string {
	volume := c.objects[key{"", "persistentvolumes", text(claim, "spec", "volumeName")}]
	if volume == nil || text(volume, "spec", "csi", "driver") != driverS3 {
		return text(claim, "metadata", "uid")
	}
	return filepath.Join("buckets", text(volume, "spec", "csi", "volumeAttributes", "bucketName"), mountOptions(volume)["prefix"])
}
