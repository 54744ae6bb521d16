#!/bin/busybox sh
# First process of a machine with a cluster. Its root is that of the machine outside, which it reads, with an
# overlay in memory that takes what is written. Lines that start with PODNET-VM are read by
# xtask/src/vm/cluster.rs; everything else is for people.
export PATH=/sbin:/bin:/usr/sbin:/usr/bin

/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
# The kernel has the other serial line to itself.
exec > /dev/ttyS0 2>&1 < /dev/null

while read -r module; do
    insmod "$module" || echo "PODNET-VM problem insmod $module"
done < /podnet/modules

off() {
    echo "PODNET-VM exit $1"
    sync
    poweroff -f
}

read -r command < /podnet/command
mkdir -p /outside /memory /new
mount -t virtiofs -o ro outside /outside || off 125
mount -t tmpfs -o mode=0755,size=80% tmpfs /memory || off 125
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/outside,upperdir=/memory/upper,workdir=/memory/work overlay /new || off 125
mount -t proc proc /new/proc
mount -t sysfs sysfs /new/sys
mount --move /dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
# Security modules of Debian's kernel look up the name of a program that is started by its descriptor, as
# runc starts itself.
ln -s /proc/self/fd /new/dev/fd
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t tmpfs -o mode=1777 tmpfs /new/tmp
mount -t tmpfs -o mode=0755 tmpfs /new/run
mount -t bpf -o mode=0700 bpf /new/sys/fs/bpf
mkdir -p /new/run/netns
# Nodes have a hierarchy of each controller for themselves.
mount -t tmpfs -o mode=0755 tmpfs /new/sys/fs/cgroup
while read -r controller hierarchy groups enabled; do
    case "$controller" in "#"*) continue ;; esac
    [ "$enabled" = 1 ] || continue
    mkdir "/new/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "/new/sys/fs/cgroup/$controller"
done < /proc/cgroups
ip link set lo up
hostname podnet-vm

echo "Linux $(uname -r), up after $(cut -d' ' -f1 /proc/uptime) s"
# Not by chroot: who enters a mount namespace is at its root, and that would be this file system.
cp /bin/busybox /new/run/busybox
exec switch_root /new /bin/sh -c "$command
echo PODNET-VM exit \$?
sync
exec /run/busybox poweroff -f"
