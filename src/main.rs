//! The `stead` binary: flags in, an exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "the one look at the environment: whether colour is unwanted")]
    let plain = std::env::var("NO_COLOR").is_ok_and(|value| !value.is_empty());
    stead::cli::main(std::env::args_os(), !plain)
}
