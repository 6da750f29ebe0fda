#!/bin/sh
# The guest's first process: mounts what a booted machine has, runs /.stock_kernel/command, leaves its exit status beside it.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec > /dev/ttyS0 2>&1 < /dev/null
mkdir -p /dev/pts /dev/shm /dev/net
mount -t devpts -o mode=600,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
# as a machine's device manager makes it: opened, it loads the module
mknod /dev/net/tun c 10 200
ln -s /proc/self/fd /dev/fd
chmod 1777 /tmp
ip link set lo up
sh /.stock_kernel/command
echo $? > /.stock_kernel/status.new
mv /.stock_kernel/status.new /.stock_kernel/status
sync
echo b > /proc/sysrq-trigger
