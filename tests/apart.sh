#!/bin/sh
# Run a command where it sees no campus but its own: with a network, places of ledgers and checkpoints, and pinned maps that are its own.
exec unshare --mount --net sh -ec '
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -t bpf bpf /sys/fs/bpf
exec "$@"' sh "$@"
