package kubetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

const podUser = 1000

// pod holds the processes of a pod.
type pod struct {
	c         *Cluster
	key       key
	uid       string
	container string
	process   *exec.Cmd
	pid       int
	memory    int64 // bytes; 0: no limit
	env       []string
	dir       string
	leaving   bool
	gone      bool
}

// rootProgram makes the pod's root: the host's programs read-only, and the volumes that standard input names.
const rootProgram = `set -e
r=$1; shift
mount --make-rprivate /
mount -t tmpfs -o mode=755 pod "$r"
for d in bin sbin lib lib32 lib64 libx32 usr etc opt; do
  if [ -L "/$d" ]; then cp -P "/$d" "$r/$d"
  elif [ -d "/$d" ]; then mkdir "$r/$d"; mount --bind "/$d" "$r/$d"; mount -o remount,bind,ro "$r/$d"; fi
done
mkdir "$r/proc" "$r/dev" "$r/tmp" "$r/run" "$r/mnt" "$r/home"
mount -t proc proc "$r/proc"
for n in null zero full random urandom tty; do : >"$r/dev/$n"; mount --bind "/dev/$n" "$r/dev/$n"; done
ln -s /proc/self/fd "$r/dev/fd"
ln -s /proc/self/fd/0 "$r/dev/stdin"; ln -s /proc/self/fd/1 "$r/dev/stdout"; ln -s /proc/self/fd/2 "$r/dev/stderr"
while IFS=' ' read -r mode source target; do
  mkdir -p "$r$target"
  mount --bind "$source" "$r$target"
  [ "$mode" = rw ] || mount -o remount,bind,ro "$r$target"
done
mount -o remount,ro "$r"
echo made
exec chroot "$r" setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@" </dev/null
`

// path is that of every container.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// startPod starts a pod's first process. The lock is held.
func (c *Cluster) startPod(k key, o object) {
	uid := text(o, "metadata", "uid")
	p := &pod{c: c, key: k, uid: uid, container: strings.ReplaceAll(uid, "-", "") + "00000000" + c.number(), dir: c.podDir(uid)}
	main := list(o, "spec", "containers")[0]
	if q, err := resource.ParseQuantity(text(main, "resources", "limits", "memory")); err == nil {
		p.memory = q.Value()
	}
	p.env = []string{path, "HOSTNAME=" + k.name}
	for _, e := range list(main, "env") {
		p.env = append(p.env, text(e, "name")+"="+text(e, "value"))
	}
	root := filepath.Join(p.dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return
	}
	volumes, err := c.mounts(o, p.dir)
	if err != nil {
		c.status(k, o, unschedulable(err.Error()))
		return
	}
	args := []string{"-c", rootProgram, "root", root, "env", "-i"}
	args = append(args, p.env...)
	for _, a := range append(list(main, "command"), list(main, "args")...) {
		s, _ := a.(string)
		args = append(args, s)
	}
	p.process = exec.Command("bash", args...) //nolint:noctx // ending it is the kubelet's work
	p.process.Stdin = strings.NewReader(volumes)
	p.process.Stderr = os.Stderr
	flags := syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	joins := false
	if c.isolated(o) {
		flags |= syscall.CLONE_NEWNET
		joins = c.opt.Joined != nil && c.joins(o)
	}
	p.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(flags), Setsid: true}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return
	}
	if err := p.process.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "kubetest: pod not started:", err)
		return
	}
	p.pid = p.process.Process.Pid
	c.pods[k.name] = p
	c.work.Go(func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // nothing: it has ended
		if line == "made\n" && p.rooted() {
			if joins {
				c.opt.Joined(p.pid)
			}
			c.mu.Lock()
			p.running()
			c.mu.Unlock()
		}
		err := p.process.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		p.ended(err)
	})
}

// unschedulable returns the status of a pod that fits no node.
func unschedulable(message string) object {
	return object{"phase": "Pending", "conditions": []any{object{
		"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
	}}}
}

// rooted waits until the first process has changed its root, which an exec enters, and reports whether it has.
func (p *pod) rooted() bool {
	for range 5000 {
		switch root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", p.pid)); {
		case err != nil:
			return false
		case root != "/":
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// isolated reports whether a policy cuts the pod off from the network. This cluster knows no partial access.
func (c *Cluster) isolated(o object) bool {
	for k, policy := range c.objects {
		if k.resource != "networkpolicies" {
			continue
		}
		labels := map[string]string{}
		if all, ok := at(policy, "spec", "podSelector", "matchLabels").(object); ok {
			for name, v := range all {
				labels[name], _ = v.(string)
			}
		}
		open := false
		for _, rule := range list(policy, "spec", "egress") {
			for _, to := range list(rule, "to") {
				open = open || text(to, "ipBlock", "cidr") == "0.0.0.0/0"
			}
		}
		if matches(o, labels) && !open {
			return true
		}
	}
	return false
}

// joins reports whether the pod's own policy lets it reach other pods.
func (c *Cluster) joins(o object) bool {
	for k, policy := range c.objects {
		if k.resource != "networkpolicies" || text(policy, "metadata", "name") != text(o, "metadata", "labels", "sandjet/box") {
			continue
		}
		for _, rule := range list(policy, "spec", "egress") {
			for _, to := range list(rule, "to") {
				if at(to, "podSelector") != nil {
					return true
				}
			}
		}
	}
	return false
}

// mounts returns the lines for rootProgram, short paths first.
func (c *Cluster) mounts(o object, dir string) (string, error) {
	sources := map[string]string{}
	for _, v := range list(o, "spec", "volumes") {
		name := text(v, "name")
		if claim := text(v, "persistentVolumeClaim", "claimName"); claim != "" {
			there := c.objects[key{"", "persistentvolumeclaims", claim}]
			if there == nil {
				return "", fmt.Errorf("persistentvolumeclaim %q not found", claim)
			}
			if at(there, "metadata", "deletionTimestamp") != nil {
				return "", fmt.Errorf("persistentvolumeclaim %q is being deleted", claim)
			}
			if phase := text(there, "status", "phase"); phase != "Bound" {
				return "", fmt.Errorf("persistentvolumeclaim %q is %s", claim, phase)
			}
			sources[name] = c.volumeDir(c.volumeOf(there))
			continue
		}
		sources[name] = filepath.Join(dir, "volumes", name)
		if err := os.MkdirAll(sources[name], 0o770); err != nil {
			return "", err
		}
		if err := os.Chown(sources[name], podUser, podUser); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	for _, m := range list(list(o, "spec", "containers")[0], "volumeMounts") {
		source := sources[text(m, "name")]
		if sub := text(m, "subPath"); sub != "" {
			source = filepath.Join(source, sub)
			if err := os.MkdirAll(source, 0o770); err != nil {
				return "", err
			}
			if err := os.Chown(source, podUser, podUser); err != nil {
				return "", err
			}
		}
		mode := "rw"
		if at(m, "readOnly") == true {
			mode = "ro"
		}
		fmt.Fprintln(&b, mode, source, text(m, "mountPath"))
	}
	return b.String(), nil
}

// running sets the pod's status to running. The lock is held, as for the methods below.
func (p *pod) running() {
	o := p.c.objects[p.key]
	if o == nil || text(o, "metadata", "uid") != p.uid {
		return
	}
	p.c.status(p.key, o, object{
		"phase":      "Running",
		"podIP":      "127.0.0.1", // as whatever enforces policies connects for it
		"conditions": []any{object{"type": "PodScheduled", "status": "True"}, object{"type": "Ready", "status": "True"}},
		"containerStatuses": []any{object{
			"name": "main", "ready": true, "started": true, "restartCount": int64(0), "containerID": "double://" + p.container,
			"state": object{"running": object{"startedAt": time.Now().UTC().Format(time.RFC3339)}},
		}},
	})
}

// ended sets the pod's status by how the first process ended, and removes the pod from the running ones.
func (p *pod) ended(err error) {
	p.gone = true
	if p.c.pods[p.key.name] == p {
		delete(p.c.pods, p.key.name)
	}
	_ = os.RemoveAll(p.dir)
	o := p.c.objects[p.key]
	same := o != nil && text(o, "metadata", "uid") == p.uid
	if same && at(o, "metadata", "deletionTimestamp") == nil && text(o, "status", "phase") != "Failed" {
		code, reason, phase := p.process.ProcessState.ExitCode(), "Completed", "Succeeded"
		if err != nil {
			reason, phase = "Error", "Failed"
		}
		p.c.status(p.key, o, p.terminated(phase, "", "", reason, code))
	}
	p.c.notify()
}

func (p *pod) terminated(phase, reason, message, why string, code int) object {
	s := object{"phase": phase, "containerStatuses": []any{object{
		"name": "main", "ready": false, "containerID": "double://" + p.container,
		"state": object{"terminated": object{"reason": why, "exitCode": int64(code)}},
	}}}
	if reason != "" {
		s["reason"], s["message"] = reason, message
	}
	return s
}

// fail ends a pod and sets its status to failed.
func (p *pod) fail(reason, message, why string, code int) {
	if o := p.c.objects[p.key]; o != nil && text(o, "metadata", "uid") == p.uid {
		if why == "" {
			why, code = "Error", 137
		}
		p.c.status(p.key, o, p.terminated("Failed", reason, message, why, code))
	}
	p.kill()
}

// terminate sends the first process SIGTERM, and SIGKILL after the pod's grace period.
func (p *pod) terminate() {
	if p.leaving {
		return
	}
	p.leaving = true
	_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may have ended
	grace := 30 * time.Second
	if s, ok := at(p.c.objects[p.key], "spec", "terminationGracePeriodSeconds").(int64); ok {
		grace = time.Duration(s) * time.Second
	}
	time.AfterFunc(grace, func() {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		p.kill()
	})
}

// kill kills the first process, and with it all others.
func (p *pod) kill() {
	if !p.gone {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // as above
	}
}

// namespaces returns the process ids of the host by pid namespace. It is called fifty times a second and lists no directory but /proc.
func namespaces() map[string][]int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()                //nolint:errcheck // it was only read
	names, _ := proc.Readdirnames(-1) // what was read until an error
	found := map[string][]int{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if ns, err := os.Readlink("/proc/" + name + "/ns/pid"); err == nil {
				found[ns] = append(found[ns], pid)
			}
		}
	}
	return found
}

// processes returns the process ids of the pod among all.
func (p *pod) processes(all map[string][]int) []int {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid))
	if err != nil || p.gone {
		return nil
	}
	return all[own]
}

// watchMemory ends pods that exceed their memory limit, with all processes as kubelets do with cgroup v2. It checks pods with execs only,
// because nothing else grows.
func (c *Cluster) watchMemory() {
	var all map[string][]int
	for s := range c.execs {
		p := s.pod
		if p.memory == 0 || p.gone {
			continue
		}
		if all == nil {
			all = namespaces()
		}
		var used int64
		for _, pid := range p.processes(all) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // nothing: it has ended
			if fields := strings.Fields(string(b)); len(fields) > 1 {
				pages, _ := strconv.ParseInt(fields[1], 10, 64)
				used += pages * int64(os.Getpagesize())
			}
		}
		if used > p.memory {
			p.fail("", "", "OOMKilled", 137)
		}
	}
}

// endPods kills all pods.
func (c *Cluster) endPods() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		p.kill()
	}
}
