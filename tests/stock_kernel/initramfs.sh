#!/bin/busybox sh
# The first process in the initramfs: puts an overlay in memory over the checkout as it was and the machine's files (both by 9p), and
# goes on in it with $GUEST.
# With `just_boot` on the command line it ends at once: a trial of the accelerator. CHECKOUT, MODULES, GUEST: paths on the machine.
bb=/bin/busybox
die() { $bb echo "stock kernel: no $1"; $bb reboot -f; }
$bb mount -t proc proc /proc
$bb mount -t devtmpfs dev /dev
case " $($bb cat /proc/cmdline) " in *" just_boot "*) $bb echo "it boots"; $bb reboot -f ;; esac
while read -r module; do $bb insmod "$module" || die "module $module"; done < /modules
nine=trans=virtio,version=9p2000.L,msize=512000
$bb mount -t 9p -o "$nine,ro,cache=loose" files /files || die "files of the machine"
$bb mount -t 9p -o "$nine,ro,cache=loose" snapshot /snapshot || die "copy of the checkout"
$bb mount -t tmpfs -o mode=755,size=75% tmpfs /memory || die "memory"
$bb mkdir /memory/upper /memory/work
$bb mount -t overlay -o lowerdir=/snapshot:/files,upperdir=/memory/upper,workdir=/memory/work overlay /root || die "overlay"
for each in proc sys dev run tmp; do  # what the machine runs and has mounted is not the guest's
    case "$CHECKOUT" in "/$each/"*) continue ;; esac
    $bb mount -t tmpfs -o mode=755 tmpfs "/root/$each"
done
$bb mkdir -p /root/.stock_kernel "/root/lib/modules/$($bb uname -r)"
$bb mount -t 9p -o "$nine" exchange /root/.stock_kernel || die "folder for the results"
$bb mount --bind "/files$MODULES" "/root/lib/modules/$($bb uname -r)" || die "modules of its kernel"
$bb umount /proc
$bb umount /dev
exec $bb switch_root /root /bin/sh "$GUEST"
