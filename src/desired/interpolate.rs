//! Substitution over a tree: every scalar value, never a key, before anything else is made of the file.

use super::finding::Findings;
use super::node::{At, Node, Value};
use super::substitute::{Lookup, substitute};
use std::collections::BTreeSet;

/// Substitutes in all text values of a tree. Each name without a value is told once.
pub fn interpolate(node: &mut Node, lookup: &dyn Lookup, findings: &mut Findings) {
    let mut told = BTreeSet::new();
    walk(node, lookup, findings, &mut told);
}

fn walk(node: &mut Node, lookup: &dyn Lookup, findings: &mut Findings, told: &mut BTreeSet<String>) {
    match &mut node.value {
        Value::Text(text) if text.contains('$') => {
            let done = substitute(text, lookup);
            for (offset, name) in done.unset {
                if told.insert(name.clone()) {
                    let at = dollar(text, offset, node.at, findings);
                    findings
                        .warning(at, format!("the variable {name} is not set: it reads as nothing"))
                        .hint(format!("set {name} in the .env file, or give a default: `${{{name}:-...}}`"));
                }
            }
            for fault in done.faults {
                let at = dollar(text, fault.offset, node.at, findings);
                let complaint = findings.error(at, fault.message);
                if let Some(hint) = fault.hint {
                    complaint.hint(hint);
                }
            }
            *text = done.text;
        }
        Value::Seq(items) => items.iter_mut().for_each(|item| walk(item, lookup, findings, told)),
        Value::Map(map) => map.values_mut().for_each(|entry| walk(&mut entry.node, lookup, findings, told)),
        _ => {}
    }
}

/// Where in the file the dollar sign at a byte of a value stands: as many dollar signs come before it there as in the
/// value, counted from the value's beginning.
fn dollar(text: &str, offset: usize, at: At, findings: &Findings) -> At {
    let before = text[..offset].matches('$').count();
    let Some(source) = findings.files.source(at) else { return at };
    let mut seen = 0;
    // A block text goes over lines; two thousand are looked at.
    for number in at.line..at.line.saturating_add(2000) {
        let Some(line) = source.line(number) else { break };
        let skip = if number == at.line { (at.column as usize).saturating_sub(1) } else { 0 };
        for (column, _) in line.chars().enumerate().skip(skip).filter(|(_, c)| *c == '$') {
            if seen == before {
                return At { line: number, column: u32::try_from(column + 1).unwrap_or(u32::MAX), ..at };
            }
            seen += 1;
        }
    }
    at
}
