# Becomes systemd as process 1 of a machine of its own: in new mount, pid, uts, ipc, net and cgroup namespaces, on a root
# whose changes are in $1/upper, over the Debian in $2, which stays as it is.
#
# What a container's manager has to provide: https://systemd.io/CONTAINER_INTERFACE/. As systemd-nspawn(1) does it, each
# boot has a boot id of its own ($1/boot_id), which the kernel would not give.
set -e
folder=$1
root=$folder/root
if ! mount -t overlay -o "lowerdir=$2,upperdir=$folder/upper,workdir=$folder/work" machine "$root" 2>/dev/null; then
    # The disk may be an overlay itself, as in containers: then the machine gets a Debian of its own, once.
    [ -e "$folder/copied" ] || cp -an "$2/." "$folder/upper/"
    touch "$folder/copied"
    mount --bind "$folder/upper" "$root"
fi
cd "$root"
mount -t proc proc proc
# Nobody else's load decides what a session finds to change.
mount --bind "$folder/stat" proc/stat
mount --bind "$folder/boot_id" proc/sys/kernel/random/boot_id
# Most of the kernel's parameters are everybody's, and systemd-sysctl would set some: only those of the network are the
# machine's own.
mount --bind proc/sys/net proc/sys/net
mount --rbind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for name in run dev tmp; do mount -t tmpfs -o mode=755 tmpfs $name; done
chmod 1777 tmp
for name in null zero full random urandom tty; do
    touch dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir run/outside
pivot_root . run/outside
umount -l /run/outside
rmdir /run/outside
ip link set lo up
hostname web
exec env -i container=webdyno-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
