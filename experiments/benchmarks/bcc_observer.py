"""An independent count, by the BPF Compiler Collection, of the packets that the kernel drops.

It shares no compiler, program, map or loader with the programs that enforce. So a count on which both agree is wrong in
neither. The source is compiled here and now against any kernel's headers: it follows structures by the running kernel's
own offsets.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bpf.btf import drop_reasons, member_offset_bytes
from bpf.errors import BpfError

HEADERS = Path("/usr/src")
# where bcc looks of itself
KERNEL_BRINGS = (Path("/lib/modules", os.uname().release, "build"), Path("/sys/kernel/kheaders.tar.xz"))
MEMBERS: Final = {
    "SK_BUFF_DEV": [("sk_buff", "dev")],
    "SK_BUFF_SK": [("sk_buff", "sk")],
    "NET_DEVICE_ND_NET": [("net_device", "nd_net")],
    "SOCK_SKC_NET": [("sock_common", "skc_net")],
    "NET_NS_INUM": [("net", "ns"), ("ns_common", "inum")],
}
PROGRAM: Final = """
struct seen { u32 inode; u32 kind; };
BPF_HASH(counts, struct seen, u64, 16384);

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
        count(follow(device, NET_DEVICE_ND_NET), (u32)ctx->args[2]);
    else if (sk)
        count(follow(sk, SOCK_SKC_NET), (u32)ctx->args[2]);
    return 0;
}
"""


class BccObserver:
    """Counts in every network namespace, from now until `close`.

    BpfError gives the reason why none can: bcc or kernel headers are not installed, or bcc cannot compile here.
    """

    def __init__(self) -> None:
        offsets = {name: sum(member_offset_bytes(*member) for member in members) for name, members in MEMBERS.items()}
        source, include = kernel_headers()
        if source is not None:
            os.environ["BCC_KERNEL_SOURCE"] = source
        flags = [f"-D{name}={value}" for name, value in offsets.items()]
        try:
            from bcc import BPF  # a package of the distribution's Python

            self._programs: Any = BPF(text=PROGRAM.encode(), cflags=flags + [f"-I{folder}" for folder in include])
        except Exception as error:  # bcc raises no class of its own
            raise BpfError(f"bcc does not count here: {error}; ./setup-apt.sh measure installs it") from error

    def read(self, inode: int) -> Counter[str]:
        """Return drops by the kernel's reason in words, in the network namespace of this inode, since the beginning."""
        names, counts = drop_reasons(), self._programs[b"counts"]
        return Counter(
            {
                names.get(seen.kind, f"reason {seen.kind}"): count.value
                for seen, count in counts.items()
                if seen.inode == inode
            }
        )

    def close(self) -> None:
        """Take the programs off; safe to repeat."""
        self._programs.cleanup()


def kernel_headers() -> tuple[str | None, list[str]]:
    """Return a tree of kernel headers for bcc and folders beside it; none where the kernel brings its own.

    BpfError: no tree is here.
    """
    if any(path.exists() for path in KERNEL_BRINGS):
        return None, []
    trees = sorted(tree.parents[2] for tree in HEADERS.glob("linux-headers-*/include/generated/autoconf.h"))
    if not trees:
        raise BpfError(
            f"bcc needs kernel headers, of any kernel: {HEADERS} has none; apt-get install linux-headers-amd64"
        )
    tree = trees[-1]
    # Debian keeps what all its flavours share in a tree of its own
    common = tree.with_name(tree.name.rpartition("-")[0] + "-common")
    arch = "arm64" if os.uname().machine == "aarch64" else "x86"
    folders = [f"arch/{arch}/include", f"arch/{arch}/include/uapi", "include", "include/uapi", "."]
    return str(tree), [str(common / folder) for folder in folders] if common.exists() else []
