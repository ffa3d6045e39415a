//! The `stead` binary: flags in, an exit code out.

use std::io::IsTerminal as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "the one look at the environment: whether colour is unwanted")]
    let colour = std::env::var("NO_COLOR").is_err() && std::io::stdout().is_terminal();
    stead::cli::main(std::env::args_os(), colour)
}
