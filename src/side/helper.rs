//! The helper that the agent carries in itself and puts where containers can run it: a program of its own, static and
//! without a library, since it runs in any image.
//!
//! - `helper -- PROGRAM ARGUMENT...` is the first process of a container: it starts the program, hands on every signal
//!   that it gets, reaps what is left to it, and ends as the program ended.
//! - `helper log FILE` is started by a shim: it appends what a terminal shows (descriptor 3) to a file, and says by
//!   closing descriptor 5 that it is ready.
//!
//! `build.rs` compiles it. Tests: `tests/node_keys.rs`.

#![allow(unsafe_code)]

use std::ffi::{OsString, c_int};
use std::fs::{File, OpenOptions};
use std::os::fd::FromRawFd as _;
use std::process::{Command, ExitCode};

/// As large as any libc for Linux has it.
type SignalSet = [u64; 16];

unsafe extern "C" {
    fn sigfillset(set: *mut SignalSet) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

const SIG_BLOCK: c_int = 0;
const SIGCHLD: c_int = 17;
const WNOHANG: c_int = 1;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(word), Some(program)) if word == "--" => init(program, arguments),
        (Some(word), Some(file)) if word == "log" => log(file),
        _ => {
            eprintln!("usage: helper -- PROGRAM ARGUMENT... | helper log FILE");
            ExitCode::from(64)
        }
    }
}

fn init(program: OsString, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut all: SignalSet = [0; 16];
    // SAFETY: the set is as large as any libc's, and lives as long as the calls. Nothing is missed: from here on every
    // signal waits until it is asked for. The program starts with an empty mask, as `Command` gives it.
    unsafe {
        sigfillset(&mut all);
        sigprocmask(SIG_BLOCK, &all, std::ptr::null_mut());
    }
    let child = match Command::new(&program).args(arguments).spawn() {
        Ok(child) => child.id().cast_signed(),
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            return ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    loop {
        let mut signal = 0;
        // SAFETY: both pointers are to live variables of the right size.
        if unsafe { sigwait(&all, &mut signal) } != 0 {
            continue;
        }
        if signal != SIGCHLD {
            // SAFETY: a plain call. The child is not reaped yet, so the number is still its own.
            unsafe { kill(child, signal) };
            continue;
        }
        if let Some(code) = reap(child) {
            return ExitCode::from(code);
        }
    }
}

/// Reaps everything that has ended; tells how the child did, if it is among them.
fn reap(child: c_int) -> Option<u8> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live variable.
        let pid = unsafe { waitpid(-1, &mut status, WNOHANG) };
        if pid <= 0 {
            return code;
        }
        if pid == child {
            let signal = status & 0x7f;
            code = u8::try_from(if signal == 0 { status >> 8 & 0xff } else { 128 + signal }).ok();
        }
    }
}

fn log(file: OsString) -> ExitCode {
    // SAFETY: the shim opened both for this process alone, and nothing else uses them.
    let (mut terminal, ready) = unsafe { (File::from_raw_fd(3), File::from_raw_fd(5)) };
    let mut file = match OpenOptions::new().create(true).append(true).open(&file) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    };
    drop(ready);
    // A full disk loses lines; it must not hold the terminal up.
    let mut bytes = [0; 16 << 10];
    while let Ok(length @ 1..) = std::io::Read::read(&mut terminal, &mut bytes) {
        let _ = std::io::Write::write_all(&mut file, &bytes[..length]);
    }
    ExitCode::SUCCESS
}
