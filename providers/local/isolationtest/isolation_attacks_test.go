//go:build linux

package isolationtest

// Each script prints one line for what it could do, so that the expectation of most attacks is the
// empty output, or the kernel's refusal from the probe program.
//
// An attack must do no harm where it succeeds: the box that is under test may be broken, and the
// test may be run by root. So files of the system are opened for writing and not written, what is
// changed is changed to what it is, mounts and the like name places that do not exist, and nothing is sent to the
// first process before it is seen to be the box's own.

// viewAttacks look for files outside of the box.
func viewAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"a file outside by its path", `cat "$OUTSIDE"; wc -c <"$OUTSIDE"`, ``, ""},
		{"a file outside through a link in the workspace", `ln -s "$OUTSIDE" link; cat link; cat ./link/../outside`, ``, ""},
		{"a directory outside through a link",
			`ln -s "$(dirname "$OUTSIDE")" dirlink; ls dirlink/; cat dirlink/outside; echo x >dirlink/new && echo wrote`, ``, ""},
		{"a file outside through dots", `cat ../../../../../../../../../../"$OUTSIDE"; cd /; cat "../..$OUTSIDE"`, ``, ""},
		{"a file outside through /proc",
			`for p in /proc/*/root /proc/*/cwd; do cat "$p$OUTSIDE" && echo "$p"; done; cat /proc/self/root"$OUTSIDE"`, ``, ""},
		{"all files of the system", `grep -rslF -m1 "canary-9d4""1f0" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr; true`, ``, ""},
		{"other workspaces by listing", `ls -A /mnt/workspaces | grep -v "^$(basename "$PWD")$"; ls "$WORKSPACES"`, ``, l3},
		{"another workspace by its name", `cat /mnt/workspaces/"$OTHER"/file "$WORKSPACES/$OTHER/file" ../"$OTHER"/file; ls ../"$OTHER"`, ``, ""},
		{"a workspace beside ours", `mkdir ../another && echo made; echo x >../file && echo wrote`, ``, ""},
		{"moving our workspace", `mv ../"$(basename "$PWD")" ../moved && echo moved; rmdir ../* && echo removed`, ``, ""},
		// Landlock alone does not know chmod: a run may change modes of files of its own user anywhere.
		{"the mode of what is outside",
			`chmod 777 .. && echo changed; chmod 600 "$OUTSIDE" && echo changed; touch -d yesterday .. && echo touched`, ``, l3},
		{"passwords of the host", `cat /etc/shadow /etc/gshadow /etc/sudoers; ls /etc/ssh /etc/sudoers.d`, ``, ""},
		{"users of the host", `cut -d: -f1 /etc/passwd | sort | tr '\n' ' '`, `(nobody|root|sandbox|user| )+`, l3},
		{"homes of the host", `ls -A /root /home/* 2>/dev/null | grep -v ':$' | grep .; true`, ``, l3},
		{"what the host runs and mounts",
			`ls -d /run/* /var/run/* /var/lib/* /var/log/* /srv/* /media/* /opt/* /boot /lost+found | grep -v ^/run/boot_id$`, ``, l3},
		{"the host's temporary files", `[ "$(find /tmp /var/tmp -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 2 ] && echo few`, `few`, l3},
		{"sockets of container engines",
			`for s in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock; do [ -e $s ] && ./probe unix $s; done; true`, `((EPERM|EACCES|ENOENT|ECONNREFUSED)\n?)*`, ""},
		{"kernel's file systems", `ls /sys/* 2>/dev/null | head -1; ls /sys/fs/cgroup /sys/kernel/debug /sys/firmware`, ``, l3},
		{"writing the root",
			`for f in /sandjet-x; do (: >$f) && echo wrote && rm -f $f; mkdir $f && echo made && rmdir $f; ln -s x $f && echo linked && rm -f $f; done 2>/dev/null; true`, ``, ""},
		{"writing system directories",
			`for d in /usr /usr/bin /usr/lib /bin /lib /etc /mnt /proc /etc/ssl; do (: >$d/sandjet-x) && echo $d && rm -f $d/sandjet-x; mkdir $d/sandjet-d && echo $d && rmdir $d/sandjet-d; done 2>/dev/null; true`, ``, ""},
		{"changing system files",
			`for f in /usr/bin/env /bin/sh /etc/passwd /etc/hosts /etc/resolv.conf; do [ -e $f ] || continue; (: >>$f) && echo $f; chmod --reference=$f $f && echo mode $f; done 2>/dev/null; true`, ``, ""},
		{"hard links to system files",
			`ln /usr/bin/env hard && echo linked; ln /etc/passwd hard2 && echo linked; ln "$OUTSIDE" hard3 && echo linked`, ``, ""},
		{"mount flags",
			`for m in / /usr /proc "$PWD"; do f=$(awk -v m="$m" '$5==m {o=$6} END {print o}' /proc/self/mountinfo); o=; for w in ro nosuid nodev; do case ",$f," in *,$w,*) o="$o $w";; esac; done; echo "${m##*/}:$o"; done`, `: ro.*\nusr: ro nosuid nodev\nproc: ro nosuid.*\nfs-\w+: nosuid nodev`, l3},
		{"other terminals",
			`ls /dev/pts | grep -v ptmx; (exec 3<>/dev/tty) 2>/dev/null && echo tty; (exec 3<>/dev/console) 2>/dev/null && echo console; true`,
			``, l3},
	}
}

// deviceAttacks look for devices.
func deviceAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"devices that are there",
			`for d in $(find /dev -path /dev/pts -prune -o ! -type l -print | sort); do ([ -c $d ] || [ -b $d ]) && printf "%s " $d; done; true`,
			`(/dev/(null|zero|full|random|urandom|tty|ptmx) ?)+`, l3},
		{"devices are what they claim", `for d in null zero full random urandom tty; do stat -c "$d %t:%T" /dev/$d; done`,
			`null 1:3\nzero 1:5\nfull 1:7\nrandom 1:8\nurandom 1:9\ntty 5:0`, ""},
		{"devices of the host",
			`for d in mem kmem port kmsg vsock fuse kvm net/tun sda vda nvme0n1 loop0 loop-control mapper/control cpu_dma_latency userfaultfd; do [ -e /dev/$d ] && for m in r rw; do [ "$(./probe open /dev/$d $m)" = ok ] && echo $d $m; done; done; true`, ``, ""},
		{"making a device",
			`mknod device c 1 1 && echo made; mknod device b 8 0 && echo made; mknod /tmp/device c 1 5 && echo made; mknod /dev/device c 1 5 && echo made`, ``, ""},
		{"making a device by system call", `./probe syscall mknod-memory`, `EPERM|EACCES`, ""},
		{"useful devices work",
			`echo x >/dev/null && head -c 3 /dev/zero | wc -c; head -c 8 /dev/urandom | wc -c; (echo x >/dev/full) 2>/dev/null || echo full; echo y | cat /dev/stdin`, `3\n8\nfull\ny`, ""},
		{"shared memory is a directory of our own",
			`echo x >/dev/shm/x && cat /dev/shm/x && df --output=size -k /dev/shm | tail -1 | awk '{print ($1 <= 1048576)}'`, `x\n1`, l3},
	}
}

// procAttacks use what the kernel offers in /proc.
func procAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"processes of the host", `ls /proc | grep -c '^[0-9]'; ls -d "/proc/$WORKER" "/proc/$OUTSIDE_PID" 2>/dev/null | grep .; true`,
			`[1-7]`, l3},
		{"arguments and environments of all", `cat /proc/*/cmdline /proc/*/environ 2>/dev/null >all; grep -ac "canary-9d4""1f0" all`, `0`, l3},
		{"environments of all without namespaces", `cat /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep -c "canary-9d4""1f0"`, `0`, ""},
		{"memory of the first process", `for m in r w rw; do ./probe open /proc/1/mem $m; done`, `((EACCES|EPERM|EROFS)\n?){3}`, ""},
		{"secrets of the first process",
			`for f in environ auxv maps smaps stack syscall personality io; do (cat /proc/1/$f) >/dev/null 2>&1 && echo $f; done; ls /proc/1/fd /proc/1/ns/ /proc/1/map_files 2>/dev/null | grep .; readlink /proc/1/exe /proc/1/cwd /proc/1/root; true`, ``, ""},
		{"program of the first process", `for m in r w rw; do ./probe open /proc/1/exe $m; done`, `((EACCES|EPERM|EROFS)\n?){3}`, ""},
		{"threads of the first process", `for f in /proc/1/task/*/mem /proc/1/task/*/environ; do ./probe open $f r; done | sort -u`,
			`EACCES|EPERM|EACCES\nEPERM`, ""},
		{"handler of core dumps", `./probe open /proc/sys/kernel/core_pattern w; [ -w /proc/sys/kernel/core_pattern ] && echo writable; true`,
			`EROFS|EACCES|EPERM`, ""},
		{"loader of modules",
			`./probe open /proc/sys/kernel/modprobe w; ./probe open /proc/sys/kernel/hotplug w; ./probe open /proc/sys/kernel/poweroff_cmd w`,
			`((EROFS|EACCES|EPERM|ENOENT)\n?){3}`, ""},
		{"system request key", `./probe open /proc/sysrq-trigger w; ./probe open /proc/sys/kernel/sysrq w`,
			`((EROFS|EACCES|EPERM|ENOENT)\n?){2}`, ""},
		{"binary formats", `./probe open /proc/sys/fs/binfmt_misc/register w`, `EROFS|EACCES|EPERM|ENOENT`, ""},
		{"settings of the kernel", `find /proc/sys -type f -exec ./probe writable {} +`, ``, ""},
		{"settings by name",
			`for f in vm/drop_caches vm/overcommit_memory kernel/ns_last_pid kernel/hostname net/ipv4/ip_forward user/max_user_namespaces fs/protected_hardlinks; do ./probe writable /proc/sys/$f; done`, ``, ""},
		{"escape by release agent",
			`find / -xdev \( -name release_agent -o -name notify_on_release \) -exec ./probe writable {} + 2>/dev/null; true`, ``, ""},
		{"memory of the kernel",
			`for f in kcore kmsg kpagecount kpageflags; do (head -c 1 /proc/$f) >/dev/null 2>&1 && echo $f; done; awk '$1 !~ /^0+$/ {print; exit}' /proc/kallsyms 2>/dev/null; true`, ``, ""},
		{"messages of the kernel", `dmesg 2>/dev/null | head -1; ./probe syscall syslog`, `EPERM`, ""},
		{"keys of the kernel", `for c in add_key request_key keyctl; do ./probe syscall $c; done`, `(EPERM\n?){3}`, ""},
		{"/proc over itself",
			`./probe writable /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups >map; (echo -1000 >/proc/self/oom_score_adj) 2>/dev/null && echo immortal; (echo 0 0 1 >/proc/self/uid_map) 2>/dev/null && echo mapped; true`, ``, ""},
		{"current directory lies inside", `readlink /proc/self/cwd | sed "s|$PWD|ws|"; readlink /proc/self/root`, `ws\n/`, ""},
	}
}

// networkAttacks try to reach anything in deny-all.
func networkAttacks() []attack {
	const l3 = "L3"
	refused := `(ECONNREFUSED|ENETUNREACH|EPERM|EHOSTUNREACH|EACCES|EAFNOSUPPORT|EADDRNOTAVAIL|EINVAL)`
	return []attack{
		{"a service of the worker's machine",
			`./probe tcp 127.0.0.1 $TCP_PORT; (exec 3<>/dev/tcp/127.0.0.1/$TCP_PORT && cat <&3) 2>/dev/null`, refused, ""},
		{"the same by other names", `for a in 127.0.0.2 0.0.0.0 127.255.255.254; do ./probe tcp $a $TCP_PORT; done; ./probe tcp ::1 $TCP_PORT`,
			`(` + refused + `\n?){4}`, ""},
		{"the internet", `./probe tcp 8.8.8.8 53; ./probe tcp 1.1.1.1 443`, `(` + refused + `\n?){2}`, ""},
		{"the cloud's metadata", `./probe tcp 169.254.169.254 80`, refused, ""},
		{"names", `getent hosts example.com; ./probe udp 8.8.8.8 53`, refused, ""},
		{"interfaces", `ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`, `lo`, l3},
		{"routes", `tail -n +2 /proc/net/route`, ``, l3},
		{"sockets of the host",
			`cat /proc/net/tcp /proc/net/udp /proc/net/unix /proc/net/tcp6 2>/dev/null | grep -vE 'sl|Num|Local' | grep .; true`, ``, l3},
		{"an abstract socket outside", `./probe abstract "canary-9d4""1f0-$WORKER"`, refused, ""},
		{"a socket outside by its path", `./probe unix "$UNIX_SOCKET"`, `ENOENT|EPERM|EACCES|ECONNREFUSED`, ""},
		{"raw sockets", `./probe socket 2 3 1; ./probe socket 10 3 58`, `((EPERM|EACCES|EAFNOSUPPORT)\n?){2}`, ""},
		{"packet sockets", `./probe socket 17 3 768; ./probe socket 17 2 768`, `(EPERM\n?){2}`, ""},
		{"protocols that nobody needs",
			`for f in 2 10; do ./probe socket $f 1 262; ./probe socket $f 2 136; ./probe socket $f 2 33; ./probe socket $f 1 132; done | sort -u`,
			`EPERM`, ""},
		{"protocols that everybody needs", `./probe socket 2 1 0; ./probe socket 2 1 6; ./probe socket 2 2 17`, `ok\nok\nok`, l3},
		{"the hypervisor", `./probe socket 40 1 0`, `EPERM`, ""},
		{"ciphers of the kernel", `./probe socket 38 5 0`, `EPERM`, ""},
		{"families that nobody needs",
			`for f in 3 4 5 9 15 21 29 30 31 36 37 39 41 42 43 44 45; do ./probe socket $f 1 0; ./probe socket $f 2 0; ./probe socket $f 3 0; done | sort -u`, `EPERM`, ""},
		{"netlink beyond routes", `for p in 2 4 6 9 12 15 16 21; do ./probe socket 16 3 $p; done | sort -u`, `EPERM`, ""},
		{"changing the network", `(ip link set lo up || ip link add sandjet type dummy) 2>/dev/null && echo changed; true`, ``, ""},
		{"loopback of one's own works", `python3 -c 'import socket as s
l=s.create_server(("127.0.0.1",0)); c=s.create_connection(l.getsockname()); a,_=l.accept(); a.send(b"x"); print(c.recv(1))' 2>&1 || echo "b'x'"`, `b'x'`, l3},
	}
}

// rightsAttacks try to become more than the box gives.
func rightsAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"capabilities", `./probe status`, `CapInh= CapPrm= CapEff= CapBnd=[0-9a-f]* CapAmb= NoNewPrivs=1 Seccomp=2`, ""},
		{"bounding set", `./probe status`, `.* CapBnd= .*`, l3},
		{"threads of the whole box", `./probe tasks | sort -u`,
			`(CapInh= CapPrm= CapEff= CapBnd=[0-9a-f]* CapAmb= NoNewPrivs=1 Seccomp=2\n?)+`, l3},
		{"capabilities of many runs at once", `for i in $(seq 200); do ./probe status & done | sort -u | sed 's/CapBnd=[0-9a-f]*/CapBnd=/'; wait`,
			`CapInh= CapPrm= CapEff= CapBnd= CapAmb= NoNewPrivs=1 Seccomp=2`, ""},
		{"who we are", `id -u; id -g; id -G; whoami`, `1000\n1000\n1000( 65534)*\n\S+`, l3},
		{"we are nobody on the host",
			`awk '$2 == 0 {print "host root is mapped"} {n += $3} END {print n}' /proc/self/uid_map; awk '$2 == 0 {print "host root group is mapped"}' /proc/self/gid_map`, `1`, l3},
		{"becoming root", `for c in setuid setgid setgroups setresuid-nobody; do ./probe syscall $c; done`, `((EPERM|EINVAL)\n?){4}`, ""},
		{"becoming root by a program",
			`for p in su sudo pkexec mount passwd newuidmap; do f=$(command -v $p) && [ -u "$f" ] && "$f" --help >/dev/null 2>&1; done; cp "$(command -v id)" myid && chmod 6755 myid && ./myid -u`, `\d+`, ""},
		{"giving files away",
			`touch file && { chown 0:0 file && echo chowned; chown 65533 file && echo chowned; chgrp 0 file && echo chgrped; }; true`, ``, ""},
		{"file capabilities",
			`touch file; setfattr -n security.capability -v 0x0100000202000000000000000000000000000000 file 2>/dev/null && echo set; setcap cap_net_raw+ep file 2>/dev/null && echo set; setfattr -n trusted.x -v 1 file 2>/dev/null && echo set; true`, ``, ""},
		{"immortal files", `touch file; chattr +i file 2>/dev/null && echo immutable; true`, ``, ""},
		{"priority",
			`nice -n -5 true 2>&1 >/dev/null | grep -c 'annot'; ./probe syscall sched-realtime; ionice -c 1 true 2>/dev/null && echo realtime; true`,
			`1\nEPERM`, ""},
		{"the clock", `date -s "$(date)" >/dev/null 2>&1 && echo set; true`, ``, ""},
		{"the name of the machine", `hostname 2>/dev/null || cat /proc/sys/kernel/hostname`, `sandbox`, l3},
		{"a namespace by command", `for f in -U -m -n -p -i -u -C '-r -m'; do unshare $f true 2>/dev/null && echo "unshare $f"; done; true`,
			``, ""},
		{"another namespace by command",
			`nsenter -t 1 -m true 2>/dev/null && echo entered; nsenter -t 1 -a true 2>/dev/null && echo entered; nsenter --mount=/proc/self/ns/mnt true 2>/dev/null && echo entered; true`, ``, ""},
		{"a box in the box",
			`mkdir m; command -v bwrap >/dev/null && bwrap --ro-bind / / true 2>/dev/null && echo nested; unshare -Ur bash -c 'mount -t tmpfs x m && echo mounted' 2>/dev/null; true`, ``, ""},
		{"mounting by command",
			`mkdir m && for c in "mount -t tmpfs x m" "mount --bind . m" "mount -o remount,ro m" "umount m" "umount -l m"; do $c 2>/dev/null && echo "$c"; done; true`, ``, ""},
		{"typing into a terminal", `./probe terminal`, `\d+ EPERM|ENOENT|EACCES|ENODEV`, ""},
	}
}

// callAttacks make system calls that are not for boxes, each with its answer.
func callAttacks() []attack {
	answers := map[string][]string{
		"EPERM": {
			"mount", "remount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsmount", "fspick", "mount_setattr",
			"setns", "unshare-user", "unshare-mount", "unshare-pid", "unshare-net", "unshare-cgroup", "unshare-time", "clone-newuser", "clone-newns",
			"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd",
			"open_by_handle_at", "name_to_handle_at", "fanotify_init", "kexec_load", "kexec_file_load", "init_module",
			"finit_module", "delete_module",
			"reboot", "swapon", "swapoff", "settimeofday", "clock_settime", "adjtimex", "acct", "quotactl", "sethostname", "personality", "vhangup",
			"move_pages", "mbind", "tiocsti", "tiocsti-high-bits", "tioclinux",
		},
		"ENOSYS": {"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "future"},
		// Only some processors have these.
		"EPERM|not on this processor": {"iopl", "ioperm", "modify_ldt", "uselib", "x32", "x32-clone"},
	}
	attacks := []attack{
		{"32-bit interface", `[ "$(uname -m)" = x86_64 ] || { echo 159; exit; }; ./probe foreign int80 2>/dev/null; echo $?`,
			`159|2`, ""}, // 2: a fault, on a host whose kernel has no such interface
	}
	for _, want := range []string{"EPERM", "ENOSYS", "EPERM|not on this processor"} {
		for _, name := range answers[want] {
			attacks = append(attacks, attack{name, "./probe syscall " + name, want, ""})
		}
	}
	return attacks
}

// processAttacks turn against other processes.
func processAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"signals to processes outside", `for p in $WORKER $OUTSIDE_PID; do ./probe kill $p 0; ./probe kill $p 9; done | sort -u`,
			`ESRCH|EPERM|EPERM\nESRCH`, ""},
		{"signals to everybody",
			`[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 ] || exit; trap '' TERM; (sleep 0.1; kill -TERM -1) 2>/dev/null; echo alive`, `alive`, l3},
		{"reading the first process", `./probe vmread 1; ./probe ptrace 1`, `(EPERM\n?){2}`, ""},
		{"reading a sibling", `sleep 600 & ./probe vmread $!; ./probe ptrace $!; kill $!`, `(EPERM\n?){2}`, ""},
		{"ending the first process",
			`[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 ] || exit; for s in TERM INT HUP QUIT USR1 USR2 ALRM PIPE SEGV ABRT STOP TSTP KILL; do kill -$s 1 2>/dev/null; done; sleep 0.2; echo alive`, `alive`, l3},
		{"stopping the first process", `[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 ] || exit; kill -STOP 1 2>/dev/null; sleep 0.1; echo alive`,
			`alive`, l3},
		{"open files of the run", `ls -l /proc/self/fd | awk 'NR>1 {print $9, $11}' | sed -E 's/[0-9]+\]/]/; s|/proc/.*|proc|'`,
			`0 \S+\n1 \S+\n2 \S+\n3 proc`, ""},
		{"files behind the run's own", `for n in 0 1 2; do readlink /proc/self/fd/$n; done | grep -vE '^(pipe|socket|/dev/null)'; true`, ``, ""},
		{"signal dispositions are the default", `grep -E '^Sig(Ign|Blk)' /proc/self/status | tr -d '\t'`, `SigBlk:0+\nSigIgn:0+`, ""},
	}
}

// limitAttacks test limits that hold at once; the bombs are elsewhere.
func limitAttacks() []attack {
	const l3 = "L3"
	return []attack{
		{"a giant file",
			`truncate -s 1T sparse 2>/dev/null && echo made; dd if=/dev/zero of=big bs=1 count=1 seek=2T 2>/dev/null && echo made; rm -f sparse big; true`, ``, ""},
		{"a preallocated file", `fallocate -l 2G big 2>/dev/null && echo made; rm -f big; true`, ``, ""},
		{"filling the temporary directory",
			`head -c 2G /dev/zero >"$TMPDIR/x" 2>/dev/null; s=$(stat -c %s "$TMPDIR/x"); [ "$s" -le 1073741824 ] && echo bounded; rm -f "$TMPDIR/x"`,
			`bounded`, ""},
		{"sizes of what lies in memory",
			`df --output=size -k /tmp /home /dev/shm | tail -n +2 | awk '{n += $1} END {print (n <= 1024*1024)}'`, `1`, l3},
		{"numbers of files in memory",
			`df --output=itotal /tmp /home /dev/shm | tail -n +2 | awk '{ if ($1 == 0 || $1 > 1000000) print "unbounded", $1 }'`, ``, l3},
		{"many open files", `./probe files 100000 | awk '{print ($1 <= 1024)}'`, `1`, ""},
		{"raising limits",
			`ulimit -n 1000000 2>/dev/null && echo files; ulimit -c unlimited 2>/dev/null && echo core; ulimit -u unlimited 2>/dev/null && echo processes; ulimit -l unlimited 2>/dev/null && echo locked; true`, ``, ""},
		{"limits of others and marks of runs", `sleep 60 & ./probe limits $!; kill $!`,
			`ask  prlimit EPERM setrlimit EPERM other EPERM files  core 1 1`, ""},
		{"instances of inotify", `./probe inotify`, `32`, l3},
		{"core dumps", `ulimit -c; bash -c 'kill -SEGV $$' 2>/dev/null; ls | grep -c core`, `0\n0`, ""},
		{"a deep tree",
			`mkdir deep && cd deep && p=$(printf 'd/%.0s' $(seq 500)); for i in 1 2 3; do mkdir -p $p && cd -P $p 2>/dev/null; done; echo deep`,
			`deep`, ""},
		{"a loop of links", `ln -s loop loop; cat loop 2>&1 | grep -c 'Too many levels'; cat loop/x 2>&1 | grep -c 'Too many levels'`,
			`1\n1`, ""},
		{"message queues", `python3 - 2>/dev/null <<'END' || echo refused
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
class A(ctypes.Structure): _fields_ = [(n, ctypes.c_long) for n in "fmsc"] + [("p", ctypes.c_long * 4)]
n = l.mq_open(b"/x", os.O_CREAT | os.O_RDWR, 0o600, None)
print("made" if n >= 0 else "refused")
END`, `refused`, ""},
	}
}
