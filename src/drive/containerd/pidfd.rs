//! pidfd_open(2) and the PIDFD_GET_INFO ioctl: the only unsafe code of this room, since neither has a safe wrapper
//! among our dependencies.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `struct pidfd_info` of linux/pidfd.h in its first published size (64 bytes).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `_IOWR(0xff, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: u32 = 0xC040_FF0B;
/// Asks for, and tells of, the exit status (Linux 6.15 and later).
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// A handle on a process that stays with it when its pid is used again.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, libc::PIDFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EMFILE))?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A handle that tells when its process has ended.
pub fn watch(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd gives out the same open descriptor until it is dropped, and AsyncFd deregisters it before that.
    unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }.map_err(io::Error::from)
}

/// The wait status of a process that has been reaped; `None` while the kernel does not (or cannot) tell.
pub fn wait_status(fd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the kernel writes at most the 64 bytes that the request's number encodes, which is the size of `info`.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(PIDFD_GET_INFO), &mut info) };
    (answer == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);
