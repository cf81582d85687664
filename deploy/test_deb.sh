#!/bin/sh
# Installs the package in a fresh Debian, uses it as a person does, and purges it.
#   test_deb.sh PACKAGE.deb [RELEASE]      as root; takes some minutes, most of them for debootstrap
# The Debian is made from what this machine's apt is told to use, unless DEBIAN_ROOT is a directory that has one already.
set -eu
package=$(realpath "$1")
release=${2:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
work=$(mktemp -d)
root=$work/root

clean_up() {
    umount "$root/mnt" 2>/dev/null || true
    for place in dev/pts dev/shm dev proc sys; do umount -l "$root/$place" 2>/dev/null || true; done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

say() { printf '== %s\n' "$*"; }

mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" 2>/dev/null | grep -m1 'debian/$' || true)
if [ -n "${DEBIAN_ROOT:-}" ]; then
    say "a copy of $DEBIAN_ROOT"
    cp -a "$DEBIAN_ROOT" "$root"
else
    say "debootstrap $release"
    debootstrap --variant=minbase "$release" "$root" ${mirror:+"$mirror"} > "$work/log" 2>&1 ||
        { tail "$work/log"; exit 1; }
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Nothing is to be started in there, and apt is to use what works here.
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
cp "$package" "$root/basefs.deb"

within() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
# Everything but what apt and dpkg remember.
files() {
    within find / -xdev \( -path /proc -o -path /dev -o -path /sys -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/cache -o -path /var/log -o -path /mnt \) -prune -o -print | LC_ALL=C sort
}
quietly() { "$@" > "$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }; }

say "install"
quietly within apt-get update
# What it depends on comes first, so that afterwards only it is gone.
quietly within apt-get install -y --no-install-recommends python3 serf fuse3 man-db findutils
# Nor the copies that useradd keeps.
quietly within sh -c 'useradd --system --user-group someone && userdel someone'
files > "$work/before"
quietly within apt-get install -y --no-install-recommends /basefs.deb
within dpkg -L basefs | grep -cE 'man[18]/|completions|\.service$' | sed 's/$/ unit, man pages and completions/'
within basefs --version
within man basefs-mount | grep -c . > /dev/null

say "use"
within sh -eu -c '
    cd /tmp
    basefs genkey
    basefs bootstrap conf
    test -f /var/lib/basefs/key
    basefs mount conf /mnt -b 127.0.0.1:17900
    echo hello > /mnt/greeting
    test "$(cat /mnt/greeting)" = hello
    basefs members conf
    # Serf is a user of its own.
    for name in /proc/[0-9]*/comm; do
        test "$(cat "$name" 2>/dev/null)" != serf || stat -c "Serf runs as %U" "${name%/comm}"
    done | grep "Serf runs as basefs-serf"
    test -s /usr/share/doc/basefs/sbom.cdx.json
    basefs list
    basefs export conf /tmp/archive
    basefs import again /tmp/archive
    basefs unmount conf
    test -z "$(ls -A /mnt)"
    mount -t fuse.basefs basefs:again /mnt -o single-node
    test "$(cat /mnt/greeting)" = hello
    findmnt -n /mnt
    umount /mnt
    rm /tmp/archive
'
say "removing it while it is in use is refused"
within mount -t fuse.basefs basefs:again /mnt -o single-node
(cd "$root/mnt" && ! within apt-get purge -y basefs > "$work/log" 2>&1)
grep "is in use" "$work/log"
say "purge"
quietly within apt-get purge -y basefs
if within findmnt /mnt; then exit 1; fi
files > "$work/after"
if within getent passwd basefs-serf; then exit 1; fi
diff "$work/before" "$work/after" && say "nothing is left"
