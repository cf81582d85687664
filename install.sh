#!/bin/sh
# Installs the Debian packages named on the command line, those that are missing; says so where it may not.
#   install.sh PACKAGE...            install
#   install.sh --check-root WHAT     fail, with one line, unless WHAT can mount and make namespaces here
set -eu

fail() {
    echo "$*" >&2
    exit 1
}

if [ "${1:-}" = --check-root ]; then
    [ "$(id -u)" = 0 ] || fail "$2 needs root, to mount and to make network namespaces: run 'sudo $2'"
    [ -e /dev/fuse ] || fail "$2 needs /dev/fuse: load the module with 'modprobe fuse'"
    exit 0
fi

missing=
for package in "$@"; do
    # A package may have another name than asked for, such as a transitional or t64 one: what provides it counts.
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || fail "missing:$missing; install them with this system's package manager"
if [ "$(id -u)" = 0 ]; then
    run=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    run=sudo
else
    fail "missing:$missing; as root: apt-get install$missing"
fi
echo "Installing$missing ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $run apt-get update && DEBIAN_FRONTEND=noninteractive $run apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get failed: see the lines above"
fi
