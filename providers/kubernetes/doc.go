// Package kubernetes runs commands in pods of a Kubernetes cluster.
//
// # Objects
//
// A box is a Sandbox object of agent-sandbox (group agents.x-k8s.io, v1beta1 or v1alpha1, whichever the cluster
// serves) or, in clusters without that resource, a pod of our own with a claim for its home. Everything lies in one
// namespace, has the label sandjet/box with the box's name, and is found again by it after any restart:
//
//	box-<hash of account and key>   a kept box: Sandbox or Pod, NetworkPolicy; claim home-<name> of its home
//	run-<random>                    a box of one run: Sandbox or Pod, NetworkPolicy
//	ws-<hash of namespace>          the claim with a workspace's files; it stays when boxes go
//
// The NetworkPolicy is made before the pod, so that no process of a box ever runs without it, and belongs to the box from then on. Names of
// kept boxes are computed: when many make the same box at once, all but one find that it exists, and use that one.
//
// # Runs
//
// A run is an exec into the pod. The API server's stream neither ends a command when it is closed nor says reliably
// that it ended, so a small bash program (runner.sh) in the pod starts the command in a session of its own, passes
// its output on, ends it when its time is over, and says how it ended in a record at the end of both streams. Without
// that record a run is interrupted, whatever the stream says. Script, variables and input go through standard input:
// the arguments of an exec are in the cluster's audit log. A second exec ends a run that is cancelled.
//
// # Buckets
//
// The driver, and nothing else. The worker makes a PersistentVolume for each workspace, with the prefix sandbox/<namespace>/, and the
// claim that alone may take it; both stay when boxes go. It is opt-in: an operator names the bucket, and without one such a workspace is
// refused, by the worker for every provider that does not reach S3 where it runs. deploy/kubernetes/rbac-s3.yaml lets the worker create
// volumes, and a ValidatingAdmissionPolicy takes from that right all volumes but those of this driver for this namespace. Names are
// hashes of bucket and workspace: another bucket makes others.
package kubernetes
