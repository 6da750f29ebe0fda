#!/bin/sh
# Installs the Debian or Ubuntu packages that the testbed needs, and only those that are missing.
#   python3-venv          the virtual environment (made by Debian's own python3)
#   mininet bridge-utils  Mininet itself; brctl for its LinuxBridge, the peer in `reclaimnet measure bringup`
#   iproute2 iputils-ping ip, tc; ping, for pingAll
#   procps                sysctl, which stock Mininet calls
#   openvswitch-switch    the switches of campuses with several paths (their own daemons; the system's are not used)
#   nftables              the peer of the kill-switch in `reclaimnet measure killswitch`
#   libseccomp2           the filter of system calls in the sandbox of jobs
#   clang libbpf-dev      compile the BPF programs;  libbpf1/libbpf0 load them
# With the word `measure`, what `make measure` needs as well:
#   python3-bpfcc         bcc: an observer that counts apart from the programs that it watches
#   linux-headers-*       what bcc's compiler reads; those of any kernel do
#   iptables              a peer of the kill-switch
#   etcd-server           log of two coordinators (their own members; the system's service is disabled)
# With the word `tests`, that and what only the tests need:
#   tcpdump               reads what is on the cables of a run
#   systemd-container     the machine on which an agent is installed;  dbus libpam-systemd  sessions of its owner
#   chromium              opens every page (where it is a Debian package; Ubuntu's is a snap, and those tests say so)
# With the word `stock-kernel`, what `make test-stock-kernel` needs as well:
#   qemu-system-x86       runs Debian's kernel;  busybox-static kmod  its initramfs
set -eu
packages="python3 python3-venv python3-dev mininet bridge-utils iproute2 iputils-ping procps openvswitch-switch nftables libseccomp2 clang libbpf-dev make"
[ "${1:-}" = stock-kernel ] && packages="$packages qemu-system-x86 busybox-static kmod"
if [ "${1:-}" = tests ] || [ "${1:-}" = measure ]; then
    if grep -q '^ID=ubuntu' /etc/os-release; then headers=generic; else headers=$(dpkg --print-architecture); fi
    packages="$packages python3-bpfcc linux-headers-$headers iptables etcd-server"
fi
[ "${1:-}" = tests ] && packages="$packages tcpdump systemd-container dbus libpam-systemd"
[ "${1:-}" = tests ] && ! grep -q '^ID=ubuntu' /etc/os-release && packages="$packages chromium"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 -- a list of words
apt-get install -y -qq --no-install-recommends $missing
case "$missing" in *etcd-server*) systemctl disable --now etcd 2>/dev/null || true ;; esac
