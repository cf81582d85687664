#!/bin/sh
# Builds the Debian package of this machine's Debian release and architecture.
#   deb.sh VERSION DIRECTORY     makes DIRECTORY/basefs_VERSION_ARCH.deb, and .cdx.json, the list of what it bundles
# What BaseFS needs of Python is inside, in a virtual environment of its own: bsdiff and others are not in Debian,
# and what is there may be too old.  requirements.txt has the versions and hashes.  Serf, FUSE and Python itself come from Debian.
set -eu
version=$1 target=$2
here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
python=/usr/bin/python3
home=/usr/lib/basefs
root=$(mktemp -d)
report=$(mktemp)
trap 'rm -rf "$root" "$report"' EXIT
chmod 755 "$root"

minor=$($python -c 'import sys; print(sys.version_info.minor)')
arch=$(dpkg --print-architecture)

# -- the programs
$python -m venv "$root$home"
pip() { "$root$home/bin/python3" -m pip --quiet --disable-pip-version-check "$@"; }
# From a copy: what earlier builds left here would be installed as well.
mkdir "$root/copy"
cp -r "$source/basefs" "$source/setup.py" "$source/pyproject.toml" "$source/README.md" "$source/LICENSE" "$root/copy/"
# Nothing is built here but BaseFS itself, with tools that are pinned as well.
pip install --no-compile --require-hashes --only-binary :all: --report "$report" -r "$here/requirements.txt"
pip install --no-compile --no-deps --no-build-isolation "$root/copy"
pip check
rm -rf "$root/copy"
pip uninstall --yes setuptools pip
# What belongs to the place where it was built, and what nobody needs here.
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.%s\n' "$minor" > "$root$home/pyvenv.cfg"
find "$root$home/bin" -mindepth 1 ! -name 'python*' -delete
find "$root$home" -name direct_url.json -delete
find "$root$home" -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf "$root$home/include"
for name in basefs mount.fuse.basefs; do
    module=$(test $name = basefs && echo main || echo mounthelper)
    printf '#!%s/bin/python3 -sE\nfrom basefs.management.%s import main\n\nmain()\n' "$home" "$module" > "$root$home/bin/$name"
    chmod 755 "$root$home/bin/$name"
done
# Not by date, which is that of unpacking.
"$root$home/bin/python3" -m compileall -q -s "$root" --invalidation-mode unchecked-hash "$root$home/lib"

# -- what points to them
install -d "$root/usr/bin" "$root/usr/sbin" "$root/lib/systemd/system" "$root/usr/share/man/man1" "$root/usr/share/man/man8" \
    "$root/usr/share/doc/basefs" "$root/usr/share/bash-completion/completions" \
    "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d" "$root/DEBIAN"
ln -s ../lib/basefs/bin/basefs "$root/usr/bin/basefs"
ln -s ../lib/basefs/bin/mount.fuse.basefs "$root/usr/sbin/mount.fuse.basefs"
install -m 644 "$here/basefs@.service" "$here/basefs-mount@.service" "$root/lib/systemd/system/"
install -m 644 "$source/LICENSE" "$root/usr/share/doc/basefs/copyright"
install -d "$root/usr/share/doc/basefs/docs"
install -m 644 "$source/README.md" "$root/usr/share/doc/basefs/"
install -m 644 "$source"/docs/*.md "$root/usr/share/doc/basefs/docs/"
gzip -9n < "$source/CHANGELOG.md" > "$root/usr/share/doc/basefs/changelog.gz"
chmod 644 "$root/usr/share/doc/basefs/changelog.gz"
run() { (cd "$source" && "$root$home/bin/python3" -B "$@"); }
run -m deploy.manpages "$root/usr/share/man/man1"
mv "$root"/usr/share/man/man1/*.8 "$root/usr/share/man/man8/"
gzip -9n "$root"/usr/share/man/man?/*
run -m basefs completion bash > "$root/usr/share/bash-completion/completions/basefs"
run -m basefs completion zsh > "$root/usr/share/zsh/vendor-completions/_basefs"
run -m basefs completion fish > "$root/usr/share/fish/vendor_completions.d/basefs.fish"
run -m deploy.sbom "$version" "$report" "$root/usr/share/doc/basefs/sbom.cdx.json"
chmod 644 "$root/usr/share/doc/basefs/sbom.cdx.json"
find "$root/usr" -type d -exec chmod 755 {} +

# -- what dpkg reads
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
cat > "$root/DEBIAN/control" <<END
Package: basefs
Version: $version
Architecture: $arch
Maintainer: BaseFS <basefs@localhost>
Installed-Size: $size
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), serf, fuse3, passwd
Section: admin
Priority: optional
Description: configuration filesystem for clusters without a server
 Every machine mounts the same directory tree. Any machine can write at any
 time, cut off from the others or not, and all replicas converge by themselves.
 Every change is signed, and permission to write is a key granted on a directory.
END
for script in postinst prerm postrm; do
    install -m 755 "$here/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr lib -type f -exec md5sum {} + > DEBIAN/md5sums)
mkdir -p "$target"
dpkg-deb --root-owner-group -Zxz --build "$root" "$target/basefs_${version}_$arch.deb" >/dev/null
install -m 644 "$root/usr/share/doc/basefs/sbom.cdx.json" "$target/basefs_${version}_$arch.cdx.json"
echo "$target/basefs_${version}_$arch.deb"
