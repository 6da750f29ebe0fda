"""Counts, with the BPF Compiler Collection, the packets that the kernel drops and the states that its TCP sockets go through.

It is run as a file by the distribution's own Python, to which bcc belongs, and imports nothing of this package: the source is
compiled here and now, by bcc's compiler, loader and maps. Its first line of input is JSON: `offsets`, where the members that are
followed lie in the running kernel's structures; `kernel_source`, a tree of headers, or null for bcc's own search; `include`,
folders of further headers. It answers "counting", or dies. Each later line is the inode of a network namespace, and is answered
by a line of JSON: [[kind, count], ...], where kind is a number of `skb_drop_reason`, or STATE + 256 * the old + the new state of
a socket.
"""

import json
import os
import sys

STATE = 1 << 16
NAMESPACE_KINDS = 16384

PROGRAM = """
struct seen { u32 inode; u32 kind; };
BPF_HASH(counts, struct seen, u64, NAMESPACE_KINDS);

static __always_inline void *follow(void *from, u32 offset)
{
    void *to = 0;
    bpf_probe_read_kernel(&to, sizeof(to), from + offset);
    return to;
}

static __always_inline void count(void *net, u32 kind)
{
    struct seen seen = {.kind = kind};
    if (!net)
        return;
    bpf_probe_read_kernel(&seen.inode, sizeof(seen.inode), net + NET_NS_INUM);
    counts.atomic_increment(seen);
}

/* skb, location, reason */
RAW_TRACEPOINT_PROBE(kfree_skb)
{
    void *skb = (void *)ctx->args[0];
    void *device = follow(skb, SK_BUFF_DEV), *sk = device ? 0 : follow(skb, SK_BUFF_SK);
    if (device)
        count(follow(device, NET_DEVICE_ND_NET), (u32)ctx->args[2] & (STATE - 1));
    else if (sk)
        count(follow(sk, SOCK_SKC_NET), (u32)ctx->args[2] & (STATE - 1));
    return 0;
}

/* sk, old state, new state */
RAW_TRACEPOINT_PROBE(inet_sock_set_state)
{
    u32 change = ((u32)ctx->args[1] & 255) << 8 | ((u32)ctx->args[2] & 255);
    count(follow((void *)ctx->args[0], SOCK_SKC_NET), STATE | change);
    return 0;
}
"""


def main() -> None:
    """Compile, attach, and answer until the input ends."""
    asked = json.loads(sys.stdin.readline())
    if asked["kernel_source"]:
        os.environ["BCC_KERNEL_SOURCE"] = asked["kernel_source"]
    from bcc import BPF  # it reads the environment

    constants = {**asked["offsets"], "STATE": STATE, "NAMESPACE_KINDS": NAMESPACE_KINDS}
    flags = [f"-D{name}={value}" for name, value in constants.items()]
    counts = BPF(text=PROGRAM, cflags=flags + [f"-I{folder}" for folder in asked["include"]])["counts"]
    print("counting", flush=True)
    for line in sys.stdin:
        inode = int(line)
        found = [[key.kind, count.value] for key, count in counts.items() if key.inode == inode]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
