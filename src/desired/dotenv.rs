//! Files of `NAME=value` lines: the project's `.env`, and what `env_file` names.

use super::substitute::{Lookup, substitute};
use std::collections::BTreeMap;

/// What is wrong with such a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// One sentence.
    pub message: String,
}

/// The names of a file in order; a name without a value (`NAME` alone) takes it from elsewhere.
pub type Pairs = Vec<(String, Option<String>)>;

/// Parses a text. References in values look in `outer` first, then among the names before them.
pub fn parse(text: &str, outer: &dyn Lookup) -> (Pairs, Vec<Fault>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, at: 0, outer, pairs: Vec::new(), known: BTreeMap::new(), faults: Vec::new() };
    while reader.statement() {}
    (reader.pairs, reader.faults)
}

/// Parses a text in which nothing has a meaning but the first `=` of a line (`format: raw`).
pub fn parse_raw(text: &str) -> (Pairs, Vec<Fault>) {
    let mut pairs = Vec::new();
    let mut faults = Vec::new();
    for (number, line) in (1u32..).zip(text.lines()) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line, None),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            faults.push(Fault { line: number, column: 1, message: format!("`{name}` is not a variable name") });
        } else {
            pairs.push((name.to_owned(), value));
        }
    }
    (pairs, faults)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    outer: &'a dyn Lookup,
    pairs: Pairs,
    known: BTreeMap<String, String>,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fault(&mut self, offset: usize, message: String) {
        let before = &self.text[..offset];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.faults.push(Fault { line: number(line), column: number(column), message });
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
    }

    /// One line, or one value over several lines; false at the end.
    fn statement(&mut self) -> bool {
        self.at += self.rest().len() - self.rest().trim_start().len();
        if self.rest().is_empty() {
            return false;
        }
        if self.rest().starts_with('#') {
            self.skip_line();
            return true;
        }
        let begin = self.at;
        if let Some(after) = self.rest().strip_prefix("export").filter(|after| after.starts_with([' ', '\t'])) {
            self.at += "export".len() + (after.len() - after.trim_start_matches([' ', '\t']).len());
        }
        let line = self.rest().split('\n').next().unwrap_or("");
        let (name, has_value) = match line.find(['=', ':']) {
            Some(end) => (&line[..end], true),
            None => (line.split(" #").next().unwrap_or(line), false),
        };
        let skipped = name.len() + usize::from(has_value);
        let name = name.trim_end();
        if !good_name(name) {
            let what = if name.contains(char::is_whitespace) { " (it holds a space)" } else { "" };
            self.fault(begin, format!("`{name}` is not a variable name{what}"));
            self.skip_line();
            return true;
        }
        self.at += skipped;
        if !has_value {
            self.skip_line();
            self.pairs.push((name.to_owned(), None));
            return true;
        }
        if let Some(value) = self.value() {
            self.known.insert(name.to_owned(), value.clone());
            self.pairs.push((name.to_owned(), Some(value)));
        }
        true
    }

    fn value(&mut self) -> Option<String> {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote),
            _ => {
                let begin = self.at;
                let line = self.rest().split('\n').next().unwrap_or("");
                let line = match line.strip_prefix('#') {
                    Some(_) => "",
                    None => line.split(" #").next().unwrap_or(line),
                };
                self.skip_line();
                self.expand(&line.trim_end().replace("\\$", "$$"), begin)
            }
        }
    }

    /// A value in quotes, which may go over several lines.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let begin = self.at;
        let inside = &self.rest()[1..];
        let mut escaped = false;
        let end = inside.char_indices().find(|(_, c)| {
            let closes = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            closes
        });
        let Some((end, _)) = end else {
            self.fault(begin, "the quotation mark is never closed".to_owned());
            self.at = self.text.len();
            return None;
        };
        let inside = &inside[..end];
        self.at += end + 2;
        let tail = self.rest().split('\n').next().unwrap_or("").trim();
        if !tail.is_empty() && !tail.starts_with('#') {
            let message = format!("`{}` follows the closing quotation mark", tail.chars().take(20).collect::<String>());
            self.fault(self.at, message);
        }
        self.skip_line();
        if quote == '\'' { Some(inside.to_owned()) } else { self.expand(&unescape(inside), begin) }
    }

    fn expand(&mut self, text: &str, begin: usize) -> Option<String> {
        let (outer, known) = (self.outer, &self.known);
        let lookup = |name: &str| outer.get(name).or_else(|| known.get(name).cloned());
        let done = substitute(text, &lookup);
        let good = done.faults.is_empty();
        for fault in done.faults {
            self.fault(begin, fault.message);
        }
        good.then_some(done.text)
    }
}

fn good_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.-[]".contains(c))
}

/// The escapes of a double-quoted value; `\$` becomes the `$$` that substitution reads as a dollar.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('v') => out.push('\u{b}'),
            Some('$') => out.push_str("$$"),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        let (pairs, faults) = parse(text, &nothing);
        assert_eq!(faults, [], "{text}");
        pairs.into_iter().map(|(name, value)| (name, value.unwrap_or_else(|| "<elsewhere>".to_owned()))).collect()
    }

    #[test]
    fn values_are_read_with_quotes_comments_and_references() {
        for (line, value) in [
            ("A=plain value   ", "plain value"),
            ("A=value # comment", "value"),
            ("A=value#part", "value#part"),
            ("A=\"tab\\t\\$A\" # comment", "tab\t$A"),
            ("A='$A \\n'", "$A \\n"),
            ("export A=x", "x"),
            ("A : y", "y"),
            ("A='one\ntwo'", "one\ntwo"),
            ("A=", ""),
            ("A", "<elsewhere>"),
            ("\u{feff}B=1\nA=${B}2", "12"),
            ("A=$$x", "$x"),
        ] {
            let all = pairs(line);
            assert_eq!(all.last().map(|(name, value)| (name.as_str(), value.as_str())), Some(("A", value)), "{line}");
        }
    }

    #[test]
    fn faults_have_lines_and_raw_values_are_left_alone() {
        let (_, faults) = parse("A=1\nB C=2\nD='never closed\n", &nothing);
        assert_eq!(faults.iter().map(|fault| (fault.line, fault.column)).collect::<Vec<_>>(), [(2, 1), (3, 3)]);
        let (pairs, _) = parse_raw("A='$x' # y\n# no\nB\n");
        assert_eq!(pairs, [("A".to_owned(), Some("'$x' # y".to_owned())), ("B".to_owned(), None)]);
    }
}
