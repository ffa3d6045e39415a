//! How a command fails: one sentence, the causes after it, a way out where there is one.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Why a command ended without success.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// A failure of its own, with exit code 1.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: None, code: 1 }
    }

    /// With a way out.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With another exit code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Prints it and answers its exit code.
    pub fn say(&self) -> ExitCode {
        eprintln!("error: {}", self.sentence);
        if let Some(hint) = &self.hint {
            eprintln!("help: {hint}");
        }
        ExitCode::from(self.code)
    }
}

/// A failure with a cause and the causes of that.
pub fn fail(what: impl Into<String>, error: &dyn Error) -> Failure {
    let mut sentence = what.into();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let _ = write!(sentence, ": {error}");
        cause = error.source();
    }
    Failure::new(sentence)
}
