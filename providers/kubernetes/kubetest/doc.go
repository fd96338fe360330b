// Package kubetest is a Kubernetes API server for tests, with a small cluster behind it.
//
// It keeps real state: versions of objects, conflicts, merge patches, watches, owner references and what the cluster
// removes because of them. Pods are processes in namespaces of their own with the volumes that their specs name, and
// an exec runs a program beside them, over a WebSocket or SPDY; closing the connection does not end it. A controller
// makes pods of Sandbox objects in both published versions. Admission refuses what the pod security standard
// "restricted" refuses, and an authorizer what the given rules do not grant.
//
// It stands for a cluster where there is none, and is no proof of one: network policies, for instance, decide here only
// whether a pod has a network at all. It needs root, for the namespaces.
package kubetest
