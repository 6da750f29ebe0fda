"""`make test-stock-kernel`: the tests marked `stock_kernel` in a guest that runs Debian's own kernel, which has fq and the
kernel's Open vSwitch, and another verifier and other type information than the machine's.

No image of a disk: the guest's root is the machine's own, read-only over 9p, below an overlay in the guest's memory. So it sees
this very checkout and its `.venv`, and what it writes is gone with it. `initramfs.sh` mounts that, `guest.sh` goes on there.
"""
