#!/bin/busybox sh
# First process of the test machine. Lines that start with PODNET-VM are read by
# xtask/src/vm/session.rs; everything else is for people.
export PATH=/podnet:/sbin:/bin:/usr/sbin:/usr/bin HOME=/root TMPDIR=/tmp

/bin/busybox mount -t proc proc /proc
# Keeps what is there already: the host's own sh, ip and tc, when they were packed.
for applet in $(/bin/busybox --list); do
    [ -e "/sbin/$applet" ] || [ -e "/bin/$applet" ] || /bin/busybox ln -s busybox "/bin/$applet"
done
[ -e /sbin/modprobe ] || ln -s ../bin/busybox /sbin/modprobe

mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
# The kernel has the other serial line to itself.
exec > /dev/ttyS0 2>&1 < /dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t bpf -o mode=0700 bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/netns
ip link set lo up
hostname podnet-vm

while read -r module; do
    insmod "$module" || echo "PODNET-VM problem insmod $module"
done < /podnet/modules

set --
while read -r argument; do set -- "$@" "$argument"; done < /podnet/arguments

export PODNET_AGENT=/podnet/podnet-agent
export PODNET_CNI=/podnet/podnet
export PODNET_EBPF_OBJECT=/podnet/podnet-ebpf.o
export PODNET_SKIP_LOG=/run/podnet-skips
export PODNET_VM_KERNEL="$(uname -r)"
export RUST_BACKTRACE=1

echo "Linux $PODNET_VM_KERNEL, up after $(cut -d' ' -f1 /proc/uptime) s"
# Seconds after which no other test program is begun; empty when all are.
read -r limit < /podnet/limit
while read -r name; do
    if [ -n "$limit" ] && [ "$(cut -d. -f1 /proc/uptime)" -ge "$limit" ]; then
        echo "PODNET-VM late $name"
        continue
    fi
    echo "PODNET-VM start $name"
    "/tests/$name" < /dev/null --test-threads=1 --show-output --color=never "$@"
    code=$?
    [ -e "$PODNET_SKIP_LOG" ] && cat "$PODNET_SKIP_LOG" && rm "$PODNET_SKIP_LOG"
    echo "PODNET-VM exit $name $code"
done < /podnet/tests
echo "PODNET-VM done"
sync
poweroff -f
