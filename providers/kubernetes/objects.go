package kubernetes

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/providers"
)

// object is a Kubernetes object as the dynamic client takes it: JSON with int64 for whole numbers.
type object = map[string]any

// Where things are in a box.
const (
	container  = "main"
	homePath   = "/home/agent"
	tempPath   = "/tmp"
	runsPath   = "/run/sandjet" // the runner's files, one folder for each run
	uid        = int64(1000)
	runsLimit  = "256Mi"
	graceOfPod = int64(2) // seconds from TERM to KILL of the first process, which reacts to TERM at once
)

// initProgram is process 1: it adopts and reaps what runs leave behind, and ends at once when it is asked to.
const initProgram = `trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done`

// box is what has to be made.
type box struct {
	name, kind string
	key        string // of a kept box
	spec       providers.Spec
	until      time.Time     // when the cluster ends it by itself
	limit      time.Duration // of a box of one run: how long it may live at most
}

func (b box) kept() bool { return b.kind == kindKept }

// metadata names an object of ours.
func (p *Provider) metadata(name, kind, boxName string) object {
	labels := object{labelKind: kind}
	if boxName != "" {
		labels[labelBox] = boxName
	}
	return object{
		"name": name, "namespace": p.opt.Namespace, "labels": labels,
		"annotations": object{noteMade: time.Now().UTC().Format(time.RFC3339)},
	}
}

// sandboxObject is a box as a Sandbox of agent-sandbox.
func (p *Provider) sandboxObject(b box) object {
	spec := object{
		"podTemplate":    object{"metadata": object{"labels": object{labelBox: b.name, labelKind: b.kind}}, "spec": p.podSpec(b)},
		"shutdownTime":   b.until.UTC().Format(time.RFC3339),
		"shutdownPolicy": "Delete",
	}
	p.setRunning(spec, true)
	if b.hasHome() {
		spec["volumeClaimTemplates"] = []any{object{"metadata": object{"name": "home"}, "spec": p.claimSpec("ReadWriteOnce", p.diskOf(b.spec))}}
	}
	return p.identified(b, object{
		"apiVersion": sandboxGroup + "/" + p.sandbox, "kind": "Sandbox",
		"metadata": p.metadata(b.name, b.kind, b.name),
		"spec":     spec,
	})
}

// setRunning says in a Sandbox's spec whether it has a pod, in the words of the served version.
func (p *Provider) setRunning(spec object, running bool) {
	switch {
	case p.sandbox == "v1alpha1" && running:
		spec["replicas"] = int64(1)
	case p.sandbox == "v1alpha1":
		spec["replicas"] = int64(0)
	case running:
		spec["operatingMode"] = "Running"
	default:
		spec["operatingMode"] = "Suspended"
	}
}

// podObject is a box as a pod of our own.
func (p *Provider) podObject(b box) object {
	spec := p.podSpec(b)
	if !b.kept() {
		spec["activeDeadlineSeconds"] = int64(b.limit.Seconds()) + 1
	}
	return p.annotated(b, object{"apiVersion": "v1", "kind": "Pod", "metadata": p.metadata(b.name, b.kind, b.name), "spec": spec})
}

// annotated says whose a box is, and until when.
func (p *Provider) annotated(b box, o object) object {
	if m, ok := o["metadata"].(object); ok {
		if notes, ok := m["annotations"].(object); ok {
			notes[noteAccount], notes[noteUntil] = string(b.spec.Account), b.until.UTC().Format(time.RFC3339)
		}
	}
	return o
}

// identified says so of what stands for a box, and where a kept one is found by its deployment.
func (p *Provider) identified(b box, o object) object {
	if m, ok := o["metadata"].(object); ok && b.kept() {
		if labels, ok := m["labels"].(object); ok && b.spec.Deployment != "" {
			labels[labelOf] = b.spec.Deployment
		}
		if notes, ok := m["annotations"].(object); ok {
			notes[noteKey] = b.key
		}
	}
	return p.annotated(b, o)
}

// hasHome reports whether the box's home outlives its pod.
func (b box) hasHome() bool { return b.kept() && !b.spec.EphemeralHome }

// claimObject is a claim for a disk.
func (p *Provider) claimObject(name, kind, boxName, access string, bytes int64) object {
	return object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": p.metadata(name, kind, boxName),
		"spec":     p.claimSpec(access, bytes),
	}
}

func (p *Provider) claimSpec(access string, bytes int64) object {
	spec := object{"accessModes": []any{access}, "resources": object{"requests": object{"storage": strconv.FormatInt(bytes, 10)}}}
	if p.opt.StorageClass != "" {
		spec["storageClassName"] = p.opt.StorageClass
	}
	return spec
}

func (p *Provider) diskOf(spec providers.Spec) int64 {
	if spec.Disk > 0 {
		return spec.Disk
	}
	return int64(p.opt.DiskGb) * gibi
}

// podSpec is a pod that passes the pod security standard "restricted", limited in memory, processors and disk, and
// without any credentials of the cluster.
func (p *Provider) podSpec(b box) object {
	volumes, mounts := p.volumes(b)
	memory, cpus := b.spec.MemoryLimit, b.spec.CPUs
	if memory <= 0 {
		memory = p.opt.Memory
	}
	if cpus <= 0 {
		cpus = p.opt.CPUs
	}
	main := object{
		"name":       container,
		"image":      p.opt.Image,
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
				"ephemeral-storage": strconv.FormatInt(p.diskOf(b.spec), 10),
			},
		},
		"volumeMounts": mounts,
	}
	p.addGPUs(main)
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
	if p.opt.RuntimeClass != "" {
		spec["runtimeClassName"] = p.opt.RuntimeClass
	}
	if len(b.spec.Network.AllowDomains) > 0 { // there is no name server: a question fails at once, in place of a wait for an answer
		spec["dnsPolicy"], spec["dnsConfig"] = "None", object{"nameservers": []any{"127.0.0.1"}}
	}
	if p.opt.UserNamespaces {
		spec["hostUsers"] = false
	}
	p.place(spec)
	var secrets []any
	for _, s := range p.opt.PullSecrets {
		secrets = append(secrets, object{"name": s})
	}
	if len(secrets) > 0 {
		spec["imagePullSecrets"] = secrets
	}
	return spec
}

// volumes are what a box can write, and where it finds it.
func (p *Provider) volumes(b box) (volumes, mounts []any) {
	add := func(name, path string, source object) {
		source["name"] = name
		volumes = append(volumes, source)
		mounts = append(mounts, object{"name": name, "mountPath": path})
	}
	scratch := func(limit string) object { return object{"emptyDir": object{"sizeLimit": limit}} }
	disk := strconv.FormatInt(p.diskOf(b.spec), 10)
	add("tmp", tempPath, scratch(disk))
	add("runs", runsPath, scratch(runsLimit))
	switch {
	case !b.hasHome():
		add("home", homePath, scratch(disk))
	case p.sandbox != "": // the controller adds the volume of a claim template
		mounts = append(mounts, object{"name": "home", "mountPath": homePath})
	default:
		add("home", homePath, object{"persistentVolumeClaim": object{"claimName": homeName(b.name)}})
	}
	claims := map[string]string{}
	for i, m := range b.spec.Mounts {
		claim, sub := p.workspaceClaim(m)
		volume, ok := claims[claim]
		if !ok {
			volume = fmt.Sprintf("workspace-%d", i)
			claims[claim] = volume
			volumes = append(volumes, object{"name": volume, "persistentVolumeClaim": object{"claimName": claim}})
		}
		paths := []string{m.Path()}
		if i == 0 {
			paths = append(paths, providers.WorkspacePath)
		}
		for _, path := range paths {
			mount := object{"name": volume, "mountPath": path}
			if sub != "" {
				mount["subPath"] = sub
			}
			if m.ReadOnly {
				mount["readOnly"] = true
			}
			mounts = append(mounts, mount)
		}
	}
	return volumes, mounts
}

// workspaceClaim is the claim with a workspace's files, and their folder in it.
func (p *Provider) workspaceClaim(m providers.Mount) (claim, sub string) {
	switch {
	case m.Storage == storageS3:
		return p.volumeS3(m.Namespace), ""
	case p.opt.WorkspaceClaim != "":
		return p.opt.WorkspaceClaim, m.Namespace
	}
	return workspaceName(m.Namespace), ""
}
