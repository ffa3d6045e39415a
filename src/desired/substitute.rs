//! `${...}` in one text: every form that Compose has, no more.
//!
//! Time is bounded: nesting has a limit, and each level is scanned once.

/// How deep defaults may hold references.
const NESTING_MAX: usize = 24;
/// The longest text that substitution may make of one value: references to references double at each step.
const LENGTH_MAX: usize = 1 << 20;

/// What is wrong with a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The byte in the text where the reference begins.
    pub offset: usize,
    /// One sentence.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

/// Where values come from.
pub trait Lookup {
    /// The value of a variable, if it has one.
    fn get(&self, name: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String>> Lookup for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// What came of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Substituted {
    /// The new text; meaningless when there are faults.
    pub text: String,
    /// Variables without value and default, with the byte where they are named: each reads as nothing.
    pub unset: Vec<(usize, String)>,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// Substitutes all references of a text.
pub fn substitute(text: &str, lookup: &dyn Lookup) -> Substituted {
    let mut work = Work { lookup, done: Substituted::default() };
    let mut out = String::with_capacity(text.len());
    work.text(text, 0, 0, &mut out);
    work.done.text = out;
    work.done
}

struct Work<'a> {
    lookup: &'a dyn Lookup,
    done: Substituted,
}

/// The operator after a name: what it does with an empty value, and which it is.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Default,
    Require,
    Alternative,
}

impl Work<'_> {
    fn fault(&mut self, offset: usize, message: impl Into<String>, hint: Option<&str>) {
        self.done.faults.push(Fault { offset, message: message.into(), hint: hint.map(str::to_owned) });
    }

    /// `base` is where `text` begins in the whole.
    fn text(&mut self, text: &str, base: usize, depth: usize, out: &mut String) {
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let here = base + (text.len() - rest.len()) + at;
            let after = &rest[at + 1..];
            if let Some(tail) = after.strip_prefix('$') {
                out.push('$');
                rest = tail;
            } else if after.starts_with('{') {
                match closing(after) {
                    Some(end) => {
                        self.braced(&after[1..end], here, depth, out);
                        rest = &after[end + 1..];
                    }
                    None => {
                        self.fault(
                            here,
                            "the brace after `${` is never closed",
                            Some("a plain dollar sign is written `$$`"),
                        );
                        return;
                    }
                }
            } else {
                let name = &after[..name_length(after)];
                if name.is_empty() {
                    out.push('$');
                } else {
                    let value = self.lookup.get(name);
                    self.push(value, name, here, out);
                }
                rest = &after[name.len()..];
            }
            if out.len() > LENGTH_MAX {
                self.fault(here, "substitution makes this value longer than 1 MiB", None);
                return;
            }
        }
        out.push_str(rest);
    }

    fn push(&mut self, value: Option<String>, name: &str, here: usize, out: &mut String) {
        match value {
            Some(value) => out.push_str(&value),
            None => self.done.unset.push((here, name.to_owned())),
        }
    }

    /// The inside of `${...}`.
    fn braced(&mut self, inside: &str, here: usize, depth: usize, out: &mut String) {
        let name = &inside[..name_length(inside)];
        let rest = &inside[name.len()..];
        if name.is_empty() {
            return self.bad_name(inside, here);
        }
        if rest.is_empty() {
            let value = self.lookup.get(name);
            return self.push(value, name, here, out);
        }
        let (strict, tail) = match rest.strip_prefix(':') {
            Some(tail) => (true, tail),
            None => (false, rest),
        };
        let operator = match tail.chars().next() {
            Some('-') => Operator::Default,
            Some('?') => Operator::Require,
            Some('+') => Operator::Alternative,
            _ => return self.bad_operator(inside, rest, here),
        };
        let word = &tail[1..];
        if word.contains('\n') {
            return self.fault(
                here,
                format!("the default of `{name}` holds a line break"),
                Some("keep `${...}` on one line"),
            );
        }
        if depth >= NESTING_MAX {
            return self.fault(here, format!("references are nested more than {NESTING_MAX} deep"), None);
        }
        let value = self.lookup.get(name).filter(|value| !strict || !value.is_empty());
        let base = here + 2 + (inside.len() - word.len());
        match (operator, value) {
            (Operator::Default | Operator::Require, Some(value)) => out.push_str(&value),
            (Operator::Default, None) | (Operator::Alternative, Some(_)) => self.text(word, base, depth + 1, out),
            (Operator::Alternative, None) => {}
            (Operator::Require, None) => {
                let mut reason = String::new();
                self.text(word, base, depth + 1, &mut reason);
                let said = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let hint = format!("set {name} in the .env file beside this file");
                self.fault(here, format!("the variable {name} is required and has no value{said}"), Some(&hint));
            }
        }
    }

    fn bad_name(&mut self, inside: &str, here: usize) {
        let trimmed = inside.trim();
        let message = if inside.is_empty() {
            "`${}` names no variable".to_owned()
        } else if trimmed != inside && name_length(trimmed) > 0 {
            "a variable name inside braces may not have spaces round it".to_owned()
        } else {
            format!("`${{{}}}` is not a variable reference", clip(inside))
        };
        let hint = "a name is letters, digits and _, not beginning with a digit; a plain dollar sign is written `$$`";
        self.fault(here, message, Some(hint));
    }

    fn bad_operator(&mut self, inside: &str, rest: &str, here: usize) {
        if rest.starts_with(":=") || rest.starts_with('=') {
            return self.fault(
                here,
                "`:=` is a shell operator that Compose does not have",
                Some("use `:-` for a default"),
            );
        }
        if rest.trim().is_empty() {
            return self.fault(
                here,
                "a variable name inside braces may not have spaces round it",
                Some("write `${NAME}`"),
            );
        }
        let hint = "after the name come `:-`, `-`, `:?`, `?`, `:+` or `+`; a plain dollar sign is written `$$`";
        self.fault(here, format!("`${{{}}}` is not a variable reference", clip(inside)), Some(hint));
    }
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

/// How many bytes at the beginning are a variable name.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

/// Where the brace that `text` begins with is closed; braces inside are balanced.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "A" => Some("a".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn good(text: &str) -> String {
        let done = substitute(text, &lookup);
        assert_eq!(done.faults, [], "{text}");
        done.text
    }

    #[test]
    fn every_form_reads_as_in_compose() {
        for (text, want) in [
            ("$A ${A} $$A $${A}", "a a $A ${A}"),
            ("${X:-d} ${EMPTY:-d} ${EMPTY-d} ${X-d}", "d d  d"),
            ("${A:+y} ${EMPTY:+y} ${EMPTY+y} ${X+y}", "y  y "),
            ("${X:-${Y:-${A}}}", "a"),
            ("${X:-{a}}", "{a}"),
            ("${X-b:-c} ${EMPTY:-b?c}", "b:-c b?c"),
            ("$ $1 $(cmd) $-x a$", "$ $1 $(cmd) $-x a$"),
            ("${A:-${Z:?never looked at}}", "a"),
            ("é${A}é", "éaé"),
        ] {
            assert_eq!(good(text), want, "{text}");
        }
    }

    #[test]
    fn faults_name_the_byte_where_the_reference_begins() {
        for (text, offset) in [
            ("ab ${1X}", 3),
            ("${}", 0),
            ("${ A }", 0),
            ("${A.b}", 0),
            ("${A:=x}", 0),
            ("${A%x}", 0),
            ("x${A", 1),
            ("${X:?gone}", 0),
            ("${X:-a${Y?}}", 6),
            ("${X:-a\nb}", 0),
        ] {
            let done = substitute(text, &lookup);
            assert_eq!(done.faults.iter().map(|fault| fault.offset).collect::<Vec<_>>(), [offset], "{text}");
        }
    }

    #[test]
    fn all_faults_and_all_unset_names_are_told() {
        let done = substitute("$X ${Y} ${1} ${2}", &lookup);
        assert_eq!(done.unset, [(0, "X".to_owned()), (3, "Y".to_owned())]);
        assert_eq!(done.faults.len(), 2);
    }
}
