#!/usr/bin/env bash
# Makes this machine able to run the tests on a real node: the Debian packages that they use, and a second
# containerd (1.7, from the next Debian release) unpacked into a prefix of its own beside the machine's 1.6.
# With `packages` as its argument it leaves the second containerd out. Safe to run again; does nothing, quickly, when
# everything is there. Needs root and an apt mirror.
set -euo pipefail

packages=(bash busybox-static ca-certificates containerd crun curl iproute2 make nftables procps protobuf-compiler runc util-linux)
prefix=/opt/stead-lab/containerd-1.7

say() { printf 'setup: %s\n' "$*"; }

missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
    say "installing ${missing[*]}"
    # No service may start while packages are unpacked: the tests bring their own containerd.
    policy=/usr/sbin/policy-rc.d
    made_policy=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made_policy=yes
    fi
    trap '[ -z "$made_policy" ] || rm -f "$policy"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || say "apt-get update failed; going on with the lists at hand"
    apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi

[ "${1:-}" != packages ] || exit 0

# The machine's own Debian mirror.
mirror() {
    grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 | tr -d ' ' || true
}

if [ ! -x "$prefix/usr/bin/containerd" ]; then
    url="$(mirror)"
    url="${url:-http://deb.debian.org/debian}"
    say "unpacking containerd 1.7 from $url trixie into $prefix"
    scratch="$(mktemp -d)"
    chmod 755 "$scratch"
    mkdir -p "$scratch/lists/partial" "$scratch/out"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    printf 'deb [signed-by=%s] %s trixie main\n' "$keyring" "$url" >"$scratch/trixie.list"
    options=(-o "Dir::Etc::sourcelist=$scratch/trixie.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$scratch/lists"
        -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o APT::Sandbox::User=root)
    apt-get -qq "${options[@]}" update
    (cd "$scratch" && apt-get -qq "${options[@]}" download containerd)
    # Only this package: trixie's runc and nft need a newer glibc and would shadow the machine's.
    dpkg -x "$scratch"/containerd_*.deb "$scratch/out"
    mkdir -p "$(dirname "$prefix")"
    rm -rf "$prefix"
    mv "$scratch/out" "$prefix"
    rm -rf "$scratch"
fi

say "containerd $(containerd --version | awk '{print $3}') and $("$prefix/usr/bin/containerd" --version | awk '{print $3}'), runc $(runc --version | awk 'NR==1{print $3}'), nft $(nft --version | awk '{print $2}')"
