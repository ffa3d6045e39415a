//! What is wrong, and where: collected while a file is worked on, turned into [`Finding`]s at its end, and rendered.

use super::node::At;
use crate::model::{Finding, Note, Place, Severity};
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most findings that one app reports: a generated file with ten thousand faults is still a readable answer.
const FINDINGS_MAX: usize = 200;
/// The longest source line that is kept with a finding.
const QUOTED_MAX: usize = 4000;

/// A file that was read for an app.
#[derive(Debug)]
pub struct Source {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: Arc<str>,
    /// The place that pulled it in, and how ("included from here").
    pub via: Option<(At, &'static str)>,
    /// Where each line begins, once somebody has asked.
    starts: OnceCell<Vec<usize>>,
}

impl Source {
    /// A line, counted from 1, without its end.
    pub fn line(&self, number: u32) -> Option<&str> {
        let breaks = || self.text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = self.starts.get_or_init(|| std::iter::once(0).chain(breaks()).collect());
        let index = (number as usize).checked_sub(1)?;
        let end = starts.get(index + 1).copied().unwrap_or(self.text.len());
        Some(self.text.get(*starts.get(index)?..end)?.trim_end_matches(['\n', '\r']))
    }
}

/// The files that an app is made of.
#[derive(Debug, Default)]
pub struct Files {
    list: Vec<Source>,
}

impl Files {
    /// Adds a file; its number is what [`At::file`] holds.
    pub fn add(&mut self, path: &Path, text: Arc<str>, via: Option<(At, &'static str)>) -> u32 {
        self.list.push(Source { path: path.to_owned(), text, via, starts: OnceCell::new() });
        u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
    }

    /// The file of a place.
    pub fn source(&self, at: At) -> Option<&Source> {
        self.list.get(at.file as usize)
    }

    /// A place as the model has it.
    pub fn place(&self, at: At) -> Place {
        let file = self.source(at).map(|source| source.path.clone()).unwrap_or_default();
        Place { file, line: at.line, column: at.column }
    }

    /// The text of the line at a place.
    pub fn line(&self, at: At) -> Option<String> {
        let line = self.source(at)?.line(at.line)?;
        Some(line.chars().take(QUOTED_MAX).collect())
    }
}

/// One thing to say, before it is turned into a [`Finding`].
#[derive(Debug)]
pub struct Complaint {
    severity: Severity,
    at: At,
    message: String,
    hint: Option<String>,
    notes: Vec<(At, String)>,
    /// Only a node refuses it: the file is right, `config` still prints it.
    node_only: bool,
}

impl Complaint {
    /// Says what to do.
    pub fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names a further place.
    pub fn note(&mut self, at: At, message: impl Into<String>) -> &mut Self {
        self.notes.push((at, message.into()));
        self
    }
}

/// The one collector of an app's findings.
#[derive(Debug, Default)]
pub struct Findings {
    /// The files that places refer to.
    pub files: Files,
    list: Vec<Complaint>,
}

impl Findings {
    fn push(&mut self, severity: Severity, at: At, message: String, node_only: bool) -> &mut Complaint {
        let index = self.list.len();
        self.list.push(Complaint { severity, at, message, hint: None, notes: Vec::new(), node_only });
        &mut self.list[index]
    }

    /// The file is wrong.
    pub fn error(&mut self, at: At, message: impl Into<String>) -> &mut Complaint {
        self.push(Severity::Error, at, message.into(), false)
    }

    /// The file is right, but a node refuses it.
    pub fn refuse(&mut self, at: At, message: impl Into<String>) -> &mut Complaint {
        self.push(Severity::Error, at, message.into(), true)
    }

    /// Worth knowing.
    pub fn warning(&mut self, at: At, message: impl Into<String>) -> &mut Complaint {
        self.push(Severity::Warning, at, message.into(), false)
    }

    /// Said on demand only.
    pub fn remark(&mut self, at: At, message: impl Into<String>) -> &mut Complaint {
        self.push(Severity::Note, at, message.into(), false)
    }

    /// Whether the file is wrong.
    pub fn any_error(&self) -> bool {
        self.list.iter().any(|one| one.severity == Severity::Error && !one.node_only)
    }

    /// Everything that was said, in the order of the places, with the way that led to each file.
    ///
    /// With `node` false, what only a node refuses becomes a warning.
    pub fn finish(mut self, node: bool) -> Vec<Finding> {
        self.list.sort_by_key(|one| (one.at, one.severity));
        self.list.dedup_by(|a, b| a.at == b.at && a.message == b.message);
        let more = self.list.len().saturating_sub(FINDINGS_MAX);
        let mut findings: Vec<Finding> =
            self.list.iter().take(FINDINGS_MAX).map(|one| self.finding(one, node)).collect();
        if let (true, Some(last)) = (more > 0, findings.last_mut()) {
            last.notes.push(Note { place: last.place.clone(), message: format!("{more} more findings are not shown") });
        }
        findings
    }

    fn finding(&self, one: &Complaint, node: bool) -> Finding {
        let mut notes: Vec<Note> = one
            .notes
            .iter()
            .map(|(at, message)| Note { place: self.files.place(*at), message: message.clone() })
            .collect();
        let mut via = self.files.source(one.at).and_then(|source| source.via);
        // The chain is as long as the nesting of includes and extends, which is bounded where they are followed.
        while let Some((at, how)) = via {
            notes.push(Note { place: self.files.place(at), message: how.to_owned() });
            via = self.files.source(at).and_then(|source| source.via);
        }
        let severity = if one.node_only && !node { Severity::Warning } else { one.severity };
        Finding {
            severity,
            place: self.files.place(one.at),
            message: one.message.clone(),
            hint: one.hint.clone(),
            notes,
            source_line: self.files.line(one.at),
        }
    }
}

/// A finding about a file as a whole.
pub fn about_file(path: &Path, message: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Error,
        place: Place { file: path.to_owned(), line: 1, column: 1 },
        message: message.into(),
        hint: None,
        notes: Vec::new(),
        source_line: None,
    }
}

/// The nearest of the known names, if it is near enough to be what was meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + word.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// How many single edits (insert, delete, replace, swap of neighbours) lead from one word to the other, case ignored.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().take(64).flat_map(char::to_lowercase).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// The part of a line round a column, and where the column is in it. A tab stays one column wide in both lines, whatever
/// the terminal makes of it.
fn window(line: &str, column: usize) -> (String, usize) {
    const WIDTH: usize = 100;
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let length = line.chars().count();
    if length <= WIDTH + 20 {
        return (line.chars().map(clean).collect(), column.min(length));
    }
    let begin = column.saturating_sub(WIDTH / 2).min(length.saturating_sub(WIDTH));
    let part: String = line.chars().skip(begin).take(WIDTH).map(clean).collect();
    let (front, back) = (if begin > 0 { "..." } else { "" }, if begin + WIDTH < length { "..." } else { "" });
    (format!("{front}{part}{back}"), column.saturating_sub(begin) + front.len())
}

/// A finding as people read it: the place, the line with a caret, the way out, the further places.
pub fn render(finding: &Finding, colour: bool) -> String {
    let (word, paint) = match finding.severity {
        Severity::Error => ("error", "\x1b[1;31m"),
        Severity::Warning => ("warning", "\x1b[1;33m"),
        Severity::Note => ("note", "\x1b[1;36m"),
    };
    let (paint, bold, dim, plain) = if colour { (paint, "\x1b[1m", "\x1b[1;34m", "\x1b[0m") } else { ("", "", "", "") };
    let place = |place: &Place| match place.line {
        0 => place.file.display().to_string(),
        line => format!("{}:{line}:{}", place.file.display(), place.column.max(1)),
    };
    let mut text = format!("{}: {paint}{word}{plain}{bold}: {}{plain}\n", place(&finding.place), finding.message);
    let number = finding.place.line.to_string();
    let gutter = " ".repeat(number.len());
    if let Some(line) = finding.source_line.as_ref().filter(|line| !line.trim().is_empty()) {
        let (shown, column) = window(line, (finding.place.column as usize).saturating_sub(1));
        let _ = writeln!(text, "{dim}{gutter} |{plain}\n{dim}{number} |{plain} {shown}");
        let _ = writeln!(text, "{dim}{gutter} |{plain} {}{paint}^{plain}", " ".repeat(column));
    }
    if let Some(hint) = &finding.hint {
        let _ = writeln!(text, "{dim}{gutter} ={plain} {bold}help{plain}: {hint}");
    }
    for note in &finding.notes {
        let _ = writeln!(text, "{dim}{gutter} ={plain} {bold}note{plain}: {}: {}", place(&note.place), note.message);
    }
    text
}
