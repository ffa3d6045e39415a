#!/usr/bin/env bash
# Makes the samples' image, without a registry, from the machine's static busybox: desired-state/images.sh [STEAD]
set -euo pipefail
stead=${1:-stead}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{bin,etc,tmp,www,data}
chmod 1777 "$scratch/tmp"
cp /bin/busybox "$scratch/bin/busybox"
for program in $(busybox --list); do ln -s busybox "$scratch/bin/$program" 2>/dev/null || true; done
echo 'root:x:0:0::/:/bin/sh' >"$scratch/etc/passwd"
echo 'hello from stead' >"$scratch/www/index.html"
"$stead" image from-files sample/busybox "$scratch"
