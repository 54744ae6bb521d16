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

export PODNET_AGENT=/podnet/podnet-agent
export PODNET_CNI=/podnet/podnet
export PODNET_EBPF_OBJECT=/podnet/podnet-ebpf.o
export PODNET_SKIP_LOG=/run/podnet-skips
export PODNET_VM_KERNEL="$(uname -r)"
export RUST_BACKTRACE=1

now() { cut -d. -f1 /proc/uptime; }

# Runs the tests of part $1, which are of program $2, until the machine has run for $end seconds. Standard
# error of the tests is 3: the shell's own would have a word on a program that is killed.
part() {
    program=/tests/$2
    list=/podnet/parts/$1
    set --
    while read -r argument; do set -- "$@" "$argument"; done < "$list"
    set -- "$program" --test-threads=1 --show-output --color=never "$@"
    [ -z "$end" ] || set -- /bin/busybox timeout -s KILL "$((end - $(now)))" "$@"
    (exec "$@" < /dev/null 2>&3 3>&-)
}

echo "Linux $PODNET_VM_KERNEL, up after $(cut -d' ' -f1 /proc/uptime) s"
# Seconds after which what runs is cut short and nothing else is begun; empty where there is time for all.
read -r end < /podnet/end
while read -r label name; do
    if [ -n "$end" ] && [ "$(now)" -ge "$end" ]; then
        echo "PODNET-VM late $label"
        continue
    fi
    echo "PODNET-VM start $label"
    part "$label" "$name" 3>&2 2> /dev/null
    code=$?
    word="exit $label $code"
    # 128 + SIGKILL; the line of the test that ran is not ended.
    if [ "$code" = 137 ] && [ -n "$end" ] && [ "$(now)" -ge "$end" ]; then
        word="cut $label"
        echo
    fi
    [ -e "$PODNET_SKIP_LOG" ] && cat "$PODNET_SKIP_LOG" && rm "$PODNET_SKIP_LOG"
    echo "PODNET-VM $word"
done < /podnet/tests
echo "PODNET-VM done"
sync
poweroff -f
