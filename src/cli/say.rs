//! What a command prints, and how it fails: one sentence, the causes after it, a way out where there is one.

use super::table::{Colour, paint};
use crate::desired::render;
use crate::model::{Finding, Severity};
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Stdout, Write as _};
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
        if !self.sentence.is_empty() {
            complain(&format!("error: {}", self.sentence));
        }
        if let Some(hint) = &self.hint {
            complain(&format!("help: {hint}"));
        }
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
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

/// A line on stderr. Where that has gone there is nobody to tell.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What a command prints to: stdout, and stderr for what is said beside it.
///
/// A reader of stdout that has gone (`stead status | head -1`) ends the command in silence and with success.
#[derive(Debug)]
pub struct Out {
    to: BufWriter<Stdout>,
    colour: bool,
    colour_beside: bool,
}

impl Out {
    /// The output of this process; coloured where `colour` is wanted and a terminal shows it.
    pub fn new(colour: bool) -> Self {
        let stdout = std::io::stdout();
        let (shown, beside) = (stdout.is_terminal(), std::io::stderr().is_terminal());
        Self { to: BufWriter::new(stdout), colour: colour && shown, colour_beside: colour && beside }
    }

    /// Whether stdout is coloured.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Text for stdout in a colour, where colours are wanted.
    pub fn paint(&self, text: &str, colour: Colour) -> String {
        paint(text, colour, self.colour)
    }

    /// Prints a line.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.put(|to| writeln!(to, "{line}"))
    }

    /// Prints a text as it is.
    pub fn text(&mut self, text: impl Display) -> Result<(), Failure> {
        self.put(|to| write!(to, "{text}"))
    }

    /// Prints bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.put(|to| to.write_all(bytes))
    }

    /// Prints a document.
    pub fn json(&mut self, document: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document).map_err(|error| fail("cannot print", &error))?;
        self.line(text)
    }

    /// Brings what was printed so far to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.put(std::io::Write::flush)
    }

    /// Says something on stderr, after what was printed so far.
    pub fn beside(&mut self, line: impl Display) -> Result<(), Failure> {
        self.flush()?;
        complain(&line.to_string());
        Ok(())
    }

    /// Tells on stderr what was found in files; what has no meaning on a node is for `validate -v` alone.
    pub fn findings<'a>(&mut self, findings: impl IntoIterator<Item = &'a Finding>) -> Result<(), Failure> {
        self.flush()?;
        for finding in findings.into_iter().filter(|finding| finding.severity != Severity::Note) {
            let _ = std::io::stderr().write_all(render(finding, self.colour_beside).as_bytes());
        }
        Ok(())
    }

    fn put(&mut self, print: impl FnOnce(&mut BufWriter<Stdout>) -> std::io::Result<()>) -> Result<(), Failure> {
        print(&mut self.to).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Failure::new("").code(0),
            _ => fail("cannot print", &error),
        })
    }
}
