#!/usr/bin/env bash
# One test node: namespaces of its own for mounts, network, processes, cgroups, host name and IPC.
#
#   node.sh outer ID DIR    moves itself into fresh cgroups and becomes `unshare`, which runs the inner half as pid 1
#   node.sh inner DIR       sets the node up, says "ready", and holds it until its stdin closes: then everything dies
#   node.sh daemon PROGRAM ARGUMENT...    becomes PROGRAM inside the node's cgroups
#
# Pid 1 is a shell, so orphans are reaped. The root filesystem is read-only inside, so nothing of the host can change.
set -euo pipefail

role=$1
shift

# One line for each cgroup hierarchy of the machine: its mount point, type and options.
hierarchies() { awk '{ for (i = 7; $i != "-"; i++); if ($(i+1) ~ /^cgroup2?$/) print $5, $(i+1), $(i+3) }' /proc/self/mountinfo; }

# What of a v1 mount's options names the hierarchy.
v1_name() { tr ',' '\n' <<<"$1" | grep -vxE 'rw|ro|xattr|clone_children|release_agent=.*' | paste -sd, | sed 's/^name=/none,name=/'; }

outer() {
    local id=$1 dir=$2 point type options
    hierarchies >"$dir/hierarchies"
    while read -r point type options; do
        mkdir "$point/$id"
        echo "$point/$id" >>"$dir/cgroups"
        if [ "$type" = cgroup2 ]; then
            for controller in $(cat "$point/cgroup.controllers"); do
                echo "+$controller" >"$point/cgroup.subtree_control" 2>/dev/null || true
            done
        fi
        for file in cpuset.cpus cpuset.mems; do # v1 starts these empty, and then takes no process
            if [ "$type" = cgroup ] && [ -e "$point/$file" ]; then cat "$point/$file" >"$point/$id/$file"; fi
        done
        echo $$ >"$point/$id/cgroup.procs"
    done <"$dir/hierarchies"
    exec unshare --mount --net --uts --ipc --cgroup --pid --fork --kill-child --mount-proc bash "$0" inner "$dir"
}

mount_cgroups() {
    local dir=$1 point type options
    mount -t sysfs sysfs /sys
    if grep -q '^/sys/fs/cgroup cgroup2' "$dir/hierarchies"; then
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        mkdir /sys/fs/cgroup/node # v2: no process beside child groups that have controllers
        echo 1 >/sys/fs/cgroup/node/cgroup.procs
        for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
            echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
        done
        return
    fi
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    while read -r point type options; do
        mkdir -p "$point"
        if [ "$type" = cgroup2 ]; then mount -t cgroup2 cgroup2 "$point"
        else mount -t cgroup -o "$(v1_name "$options")" cgroup "$point"; fi
    done <"$dir/hierarchies"
}

mount_files() {
    local dir=$1 checkout
    mount --bind "$dir" "$dir" # stays writable
    # The checkout may lie below one of the directories that the node has its own of.
    checkout=$(realpath "$(dirname "$0")/../..")
    mkdir -p "$dir/checkout"
    mount --bind -o ro "$checkout" "$dir/checkout"
    mount -t tmpfs -o mode=755 tmpfs /run
    mount -t tmpfs -o mode=755 tmpfs /var/log
    # A writable /etc that is not the host's.
    mkdir -p "$dir/etc" "$dir/etc.work" "$dir/tmp" "$dir/containerd"
    chmod 1777 "$dir/tmp"
    mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc,workdir=$dir/etc.work" overlay /etc
    rm -f /etc/resolv.conf
    printf 'nameserver 192.0.2.2\nsearch lab.test\n' >/etc/resolv.conf
    mkdir -p /etc/containerd /run/netns
    # Of /var/lib, the node has its own, but for the list of installed packages.
    mkdir -p /run/dpkg
    mount --bind -o ro /var/lib/dpkg /run/dpkg
    mount -t tmpfs -o mode=755 tmpfs /var/lib
    mkdir -p /var/lib/stead /var/lib/containerd /var/lib/dpkg
    mount --move /run/dpkg /var/lib/dpkg
    rmdir /run/dpkg
    # Snapshots: memory, or the disk where times are measured.
    if [ -n "${STEAD_LAB_DISK:-}" ]; then mount --bind "$dir/containerd" /var/lib/containerd; fi
    mount --bind "$dir/tmp" /tmp
    if [ ! -e "$checkout/Cargo.toml" ]; then
        mkdir -p "$checkout"
        mount --rbind "$dir/checkout" "$checkout"
    fi
    mount -o remount,bind,ro /
}

# The node is 192.0.2.1; "another host" is 192.0.2.2, which knows no way to anything behind the node.
make_network() {
    ip link set lo up
    ip netns add client
    ip link add up0 type veth peer name eth0 netns client
    ip address add 192.0.2.1/24 dev up0
    ip link set up0 up
    ip -n client link set lo up
    ip -n client address add 192.0.2.2/24 dev eth0
    ip -n client link set eth0 up
    ip route add default via 192.0.2.2
}

inner() {
    local dir=$1
    hostname node
    mount_cgroups "$dir"
    mount_files "$dir"
    make_network
    echo ready
    while read -r _; do :; done
}

daemon() {
    local file
    if [ -d /sys/fs/cgroup/node ]; then echo $$ >/sys/fs/cgroup/node/cgroup.procs
    else for file in /sys/fs/cgroup/*/cgroup.procs; do echo $$ >"$file"; done; fi
    exec "$@"
}

"$role" "$@"
