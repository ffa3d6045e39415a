//! A power cut.

use super::Scene;
use nix::sys::signal::Signal;

impl Scene {
    /// Takes all that a reboot takes: processes, `/run`, links, netns, nft tables, sysctls; and the machine has another
    /// boot id. containerd is to be started again by the caller.
    #[track_caller]
    pub fn cut_the_power(&mut self) {
        self.end_containerd(Signal::SIGKILL);
        self.sh(
            "for pid in $(ls /proc | grep -E '^[0-9]+$'); do [ $pid = 1 ] || [ $pid = $$ ] || [ $pid = $PPID ] || \
             kill -9 $pid 2>/dev/null || true; done",
        );
        self.sh(
            "for file in /run/netns/*; do case $file in */client) ;; *) umount -l $file; rm $file ;; esac; done
             for mount in $(cut -d' ' -f5 /proc/self/mountinfo | grep '^/run/containerd/' | sort -r); do umount -l $mount; done
             rm -rf /run/stead /run/containerd /var/run/stead
             for link in $(ip -o link show type bridge | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/'); do ip link del $link; done
             nft flush ruleset
             sysctl -qw net.ipv4.ip_forward=0
             cat /proc/sys/kernel/random/uuid >/etc/boot_id
             mount --bind /etc/boot_id /proc/sys/kernel/random/boot_id",
        );
        let gone = self.sh("ls /run/netns; ip -o link | grep -c ': st' || true");
        assert_eq!(gone, "client\n0\n", "the lab's power cut takes everything");
    }
}
