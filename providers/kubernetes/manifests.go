package kubernetes

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// manifests writes the objects of boxes and workspaces according to the operator's settings and the served versions.
type manifests struct {
	opt    Options
	served served
}

// metadata returns the metadata of an object of the provider.
func (m *manifests) metadata(name, kind, boxName string) object {
	labels := object{labelKind: kind}
	if boxName != "" {
		labels[labelBox] = boxName
	}
	return object{
		"name": name, "namespace": m.opt.Namespace, "labels": labels,
		"annotations": object{noteMade: time.Now().UTC().Format(time.RFC3339)},
	}
}

// sandbox returns the Sandbox object of agent-sandbox for a box.
func (m *manifests) sandbox(b box) object {
	spec := object{
		"podTemplate":    object{"metadata": object{"labels": object{labelBox: b.name, labelKind: b.kind}}, "spec": m.podSpec(b)},
		"shutdownTime":   b.until.UTC().Format(time.RFC3339),
		"shutdownPolicy": "Delete",
	}
	m.served.setRunning(spec, true)
	if b.hasHome() {
		spec["volumeClaimTemplates"] = []any{object{"metadata": object{"name": "home"}, "spec": m.claimSpec("ReadWriteOnce", m.disk(b.spec))}}
	}
	return identified(b, object{
		"apiVersion": sandboxGroup + "/" + m.served.sandbox, "kind": "Sandbox",
		"metadata": m.metadata(b.name, b.kind, b.name),
		"spec":     spec,
	})
}

// pod returns the pod for a box in a cluster without agent-sandbox.
func (m *manifests) pod(b box) object {
	spec := m.podSpec(b)
	if !b.kept() {
		spec["activeDeadlineSeconds"] = int64(b.limit.Seconds()) + 1
	}
	return annotated(b, object{"apiVersion": "v1", "kind": "Pod", "metadata": m.metadata(b.name, b.kind, b.name), "spec": spec})
}

// claim returns a persistent volume claim.
func (m *manifests) claim(name, kind, boxName, access string, bytes int64) object {
	return object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": m.metadata(name, kind, boxName),
		"spec":     m.claimSpec(access, bytes),
	}
}

// claimSpec returns the spec of a persistent volume claim.
func (m *manifests) claimSpec(access string, bytes int64) object {
	spec := object{"accessModes": []any{access}, "resources": object{"requests": object{"storage": strconv.FormatInt(bytes, 10)}}}
	if m.opt.StorageClass != "" {
		spec["storageClassName"] = m.opt.StorageClass
	}
	return spec
}

// disk returns the disk size of a box in bytes.
func (m *manifests) disk(spec providers.Spec) int64 {
	if spec.Disk > 0 {
		return spec.Disk
	}
	return int64(m.opt.DiskGb) * gibi
}

// podSpec returns the spec of a pod that meets the pod security standard "restricted", has limits on memory, processors and disk, and has
// no credentials of the cluster.
func (m *manifests) podSpec(b box) object {
	volumes, mounts := m.volumes(b)
	memory, cpus := b.spec.MemoryLimit, b.spec.CPUs
	if memory <= 0 {
		memory = m.opt.Memory
	}
	if cpus <= 0 {
		cpus = m.opt.CPUs
	}
	main := object{
		"name":       container,
		"image":      m.opt.Image,
		"command":    []any{"bash", "-c", initProgram},
		"workingDir": tempPath,
		"env":        []any{object{"name": "HOME", "value": homePath}},
		"securityContext": object{
			"allowPrivilegeEscalation": false,
			"privileged":               false,
			"readOnlyRootFilesystem":   true,
			"capabilities":             object{"drop": []any{"ALL"}},
		},
		"resources": object{
			"requests": object{"cpu": "100m", "memory": strconv.FormatInt(min(memory, 256*mebi), 10)},
			"limits": object{
				"cpu": strconv.FormatInt(int64(cpus*1000), 10) + "m", "memory": strconv.FormatInt(memory, 10),
				"ephemeral-storage": strconv.FormatInt(m.disk(b.spec), 10),
			},
		},
		"volumeMounts": mounts,
	}
	m.addGPUs(main)
	spec := object{
		"automountServiceAccountToken":  false,
		"enableServiceLinks":            false,
		"restartPolicy":                 "Never",
		"terminationGracePeriodSeconds": graceOfPod,
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": uid, "runAsGroup": uid, "fsGroup": uid, "fsGroupChangePolicy": "OnRootMismatch",
			"seccompProfile": object{"type": "RuntimeDefault"},
		},
		"containers": []any{main},
		"volumes":    volumes,
	}
	if m.opt.RuntimeClass != "" {
		spec["runtimeClassName"] = m.opt.RuntimeClass
	}
	if len(b.spec.Network.AllowDomains) > 0 { // there is no name server: a question fails at once, in place of a wait for an answer
		spec["dnsPolicy"], spec["dnsConfig"] = "None", object{"nameservers": []any{"127.0.0.1"}}
	}
	if m.opt.UserNamespaces {
		spec["hostUsers"] = false
	}
	m.place(spec)
	var secrets []any
	for _, s := range m.opt.PullSecrets {
		secrets = append(secrets, object{"name": s})
	}
	if len(secrets) > 0 {
		spec["imagePullSecrets"] = secrets
	}
	return spec
}

// volumes returns the volumes that a box can write to, and their mounts.
func (m *manifests) volumes(b box) (volumes, mounts []any) {
	add := func(name, path string, source object) {
		source["name"] = name
		volumes = append(volumes, source)
		mounts = append(mounts, object{"name": name, "mountPath": path})
	}
	scratch := func(limit string) object { return object{"emptyDir": object{"sizeLimit": limit}} }
	disk := strconv.FormatInt(m.disk(b.spec), 10)
	add("tmp", tempPath, scratch(disk))
	add("runs", runsPath, scratch(runsLimit))
	switch {
	case !b.hasHome():
		add("home", homePath, scratch(disk))
	case m.served.sandbox != "": // the controller adds the volume of a claim template
		mounts = append(mounts, object{"name": "home", "mountPath": homePath})
	default:
		add("home", homePath, object{"persistentVolumeClaim": object{"claimName": homeName(b.name)}})
	}
	claims := map[string]string{}
	for i, mounted := range b.spec.Mounts {
		claim, sub := m.workspaceClaim(mounted)
		volume, ok := claims[claim]
		if !ok {
			volume = fmt.Sprintf("workspace-%d", i)
			claims[claim] = volume
			volumes = append(volumes, object{"name": volume, "persistentVolumeClaim": object{"claimName": claim}})
		}
		paths := []string{mounted.Path()}
		if i == 0 {
			paths = append(paths, providers.WorkspacePath)
		}
		for _, path := range paths {
			mount := object{"name": volume, "mountPath": path}
			if sub != "" {
				mount["subPath"] = sub
			}
			if mounted.ReadOnly {
				mount["readOnly"] = true
			}
			mounts = append(mounts, mount)
		}
	}
	return volumes, mounts
}

// workspaceClaim returns the claim with a workspace's files, and their directory in it.
func (m *manifests) workspaceClaim(mounted providers.Mount) (claim, sub string) {
	switch {
	case mounted.Storage == storageS3:
		return m.bucketClaim(mounted.Namespace), ""
	case m.opt.WorkspaceClaim != "":
		return m.opt.WorkspaceClaim, mounted.Namespace
	}
	return workspaceName(mounted.Namespace), ""
}

// addGPUs adds GPUs to a container's resources. The API takes whole numbers only, with equal requests and limits.
func (m *manifests) addGPUs(main object) {
	resources, ok := main["resources"].(object)
	if !ok || m.opt.GPUs == 0 {
		return
	}
	for _, kind := range []string{"requests", "limits"} {
		if all, ok := resources[kind].(object); ok {
			all[m.opt.GPUResource] = strconv.Itoa(m.opt.GPUs)
		}
	}
}

// place sets in a pod's spec on which nodes it may run.
func (m *manifests) place(spec object) {
	if len(m.opt.NodeSelector) > 0 {
		labels := object{}
		for key, value := range m.opt.NodeSelector {
			labels[key] = value
		}
		spec["nodeSelector"] = labels
	}
	var tolerations []any
	for _, t := range m.opt.Tolerations {
		tolerations = append(tolerations, t.object())
	}
	if len(tolerations) > 0 {
		spec["tolerations"] = tolerations
	}
}

// policy returns the NetworkPolicy of a box; by is the proxy through which it reaches host names, nil if there is none. It allows no
// incoming connections; an exec does not use the pod's network.
func (m *manifests) policy(name, kind string, n schemas.Network, by *proxy) object {
	spec := object{
		"podSelector": object{"matchLabels": object{labelBox: name}},
		"policyTypes": []any{"Ingress", "Egress"},
	}
	if rules := waysOut(n, by); len(rules) > 0 {
		spec["egress"] = rules
	}
	return object{
		"apiVersion": "networking.k8s.io/v1",
		"kind":       "NetworkPolicy",
		"metadata":   m.metadata(name, kind, name),
		"spec":       spec,
	}
}

// bucketClaim returns the name of a workspace's claim, which is also a part of its volume's name. It depends on the bucket.
func (m *manifests) bucketClaim(namespace string) string {
	return "s3-" + hashOf(m.opt.S3.Bucket, namespace)
}

// bucketObjects returns a workspace's volume, which is statically provisioned as the driver requires, and the claim that binds to exactly
// that volume. Volumes have no namespace, so the volume's name and handle contain ours.
func (m *manifests) bucketObjects(namespace string) (volume, claim object) {
	name := m.bucketClaim(namespace)
	whole := m.opt.Namespace + "-" + name
	options := []any{
		"allow-delete", "allow-overwrite", "allow-other",
		"uid=" + strconv.FormatInt(uid, 10), "gid=" + strconv.FormatInt(uid, 10), "prefix " + prefixS3 + namespace + "/",
	}
	if m.opt.S3.Region != "" {
		options = append(options, "region "+m.opt.S3.Region)
	}
	for _, o := range m.opt.S3.MountOptions {
		options = append(options, o)
	}
	volume = object{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": whole, "labels": object{labelKind: kindWorkspace, labelWorkspace: namespace}},
		"spec": object{
			"capacity": object{"storage": sizeS3}, "accessModes": []any{"ReadWriteMany"}, "storageClassName": "",
			"persistentVolumeReclaimPolicy": "Retain",
			"claimRef":                      object{"namespace": m.opt.Namespace, "name": name},
			"mountOptions":                  options,
			"csi": object{
				"driver": driverS3, "volumeHandle": whole, "volumeAttributes": object{"bucketName": m.opt.S3.Bucket},
			},
		},
	}
	claim = object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": m.metadata(name, kindWorkspace, ""),
		"spec": object{
			"accessModes": []any{"ReadWriteMany"}, "storageClassName": "", "volumeName": whole,
			"resources": object{"requests": object{"storage": sizeS3}},
		},
	}
	return volume, workspaceLabels(claim, namespace)
}

// poolClaim returns a claim on a box of the warm pool. It has the same shutdown time as a new box would have.
func (m *manifests) poolClaim(b box, template string) object {
	spec := object{
		"lifecycle":             object{"shutdownTime": b.until.UTC().Format(time.RFC3339), "shutdownPolicy": "Delete"},
		"additionalPodMetadata": object{"labels": object{labelBox: b.name, labelKind: b.kind}},
	}
	if m.served.claims == "v1alpha1" {
		spec["sandboxTemplateRef"], spec["warmpool"] = object{"name": template}, m.opt.WarmPool
	} else {
		spec["warmPoolRef"] = object{"name": m.opt.WarmPool}
	}
	return annotated(b, object{
		"apiVersion": extensionGroup + "/" + m.served.claims, "kind": kindOfClaims,
		"metadata": m.metadata(b.name, b.kind, b.name), "spec": spec,
	})
}

// isPodOf reports whether a template, or a Sandbox, has the same pod as a new box would have.
func (m *manifests) isPodOf(o *unstructured.Unstructured, b box) bool {
	spec, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "podTemplate", "spec")
	return sameJSON(spec, m.podSpec(b))
}
