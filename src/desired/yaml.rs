//! YAML text to a [`Node`] tree, with aliases and merge keys worked in.
//!
//! Time and memory are bounded whatever the text: depth, and the number of nodes that aliases may add, have limits.

use super::finding::Findings;
use super::node::{At, Entry, Map, Node, Tag, Value};
use super::scalar;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag as YamlTag};
use std::borrow::Cow;
use std::collections::HashMap;

/// How deep collections may nest. Compose needs about ten; the limit keeps every walk of the tree off the stack's end.
const DEPTH_MAX: usize = 96;
/// How many nodes aliases and merge keys may add to a file: far above what people write, far below what hurts.
const COPIES_MAX: u64 = 200_000;

/// Parses all documents of a text. Every fault found is told to `findings`; a document with a fault is still given, as
/// far as it could be read.
pub fn parse(text: &str, file: u32, findings: &mut Findings) -> Parsed {
    // A byte order mark is not part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        file,
        findings,
        open: Vec::new(),
        anchors: HashMap::new(),
        copies: 0,
        largest: None,
        documents: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => {
                if builder.event(event, span).is_err() {
                    break;
                }
            }
            Err(error) => {
                builder.scan_error(&error, text);
                break;
            }
        }
    }
    if let Some((_, at)) = builder.largest {
        let message = format!("aliases add more than {COPIES_MAX} values to this file");
        builder.findings.error(at, message).hint("anchors that hold aliases multiply; write the values out");
    }
    let cut = builder.cut();
    Parsed { documents: builder.documents, cut }
}

/// What came of a text.
pub struct Parsed {
    /// The documents that are whole.
    pub documents: Vec<Node>,
    /// What could be read of the one in which a fault ended the reading: its name may be in it.
    pub cut: Option<Node>,
}

/// A limit was hit or the tree cannot go on: the fault has been told.
struct Stop;

/// A collection that is not closed yet.
struct Open {
    anchor: usize,
    node: Node,
    /// In a mapping: the key that waits for its value.
    key: Option<Key>,
    /// In a mapping: the sources of `<<`, to be worked in at its end.
    merges: Option<(At, Vec<Map>)>,
    /// How many nodes there would be in it with all aliases written out.
    size: u64,
}

enum Key {
    Name(At, String),
    /// `<<`.
    Merge(At),
    /// A key that was refused; its value is read and dropped.
    Bad,
}

struct Builder<'a> {
    file: u32,
    findings: &'a mut Findings,
    open: Vec<Open>,
    /// Finished anchors by number, with their size.
    anchors: HashMap<usize, (Node, u64)>,
    /// How many nodes aliases have added.
    copies: u64,
    /// The largest alias that was left out since the limit is reached.
    largest: Option<(u64, At)>,
    documents: Vec<Node>,
}

impl Builder<'_> {
    fn at(&self, span: Span) -> At {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        At { file: self.file, line: number(span.start.line()), column: number(span.start.col() + 1) }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = self.at(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if plain && tag.is_none() && text == "<<" && self.wants_key() {
                    return self.merge_key(at);
                }
                let node = self.scalar(at, text, plain, tag);
                self.finish(node, 1, anchor)
            }
            Event::SequenceStart(anchor, tag) => self.begin(at, Value::Seq(Vec::new()), anchor, tag),
            Event::MappingStart(anchor, tag) => self.begin(at, Value::Map(Map::new()), anchor, tag),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(at, anchor),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        self.open.last().is_some_and(|open| matches!(open.node.value, Value::Map(_)) && open.key.is_none())
    }

    fn merge_key(&mut self, at: At) -> Result<(), Stop> {
        let Some(open) = self.open.last_mut() else { return Err(Stop) };
        open.key = Some(match &open.merges {
            Some((first, _)) => {
                self.findings
                    .error(at, "the merge key `<<` is given twice in one mapping")
                    .hint("list the sources: `<<: [*a, *b]`")
                    .note(*first, "first given here");
                Key::Bad
            }
            None => Key::Merge(at),
        });
        Ok(())
    }

    fn scalar(&mut self, at: At, text: Cow<'_, str>, plain: bool, tag: Option<Cow<'_, YamlTag>>) -> Node {
        let (merge, core) = self.tag(at, tag.as_deref());
        let value = match core.as_deref() {
            Some("str") => Value::Text(text.into_owned()),
            None if !plain => Value::Text(text.into_owned()),
            _ => scalar::resolve(&text),
        };
        Node { at, tag: merge, value }
    }

    /// Compose's tags, and the name of a core schema tag.
    fn tag(&mut self, at: At, tag: Option<&YamlTag>) -> (Tag, Option<String>) {
        match tag {
            None => (Tag::None, None),
            Some(tag) if tag.is_yaml_core_schema() => (Tag::None, Some(tag.suffix.clone())),
            Some(tag) => match tag.suffix.as_str() {
                "reset" => (Tag::Reset, None),
                "override" => (Tag::Override, None),
                other => {
                    self.findings
                        .error(at, format!("the tag `!{other}` has no meaning in a Compose file"))
                        .hint("the two tags there are: `!reset` and `!override`");
                    (Tag::None, None)
                }
            },
        }
    }

    fn begin(&mut self, at: At, value: Value, anchor: usize, tag: Option<Cow<'_, YamlTag>>) -> Result<(), Stop> {
        if self.open.len() >= DEPTH_MAX {
            self.findings.error(at, format!("collections are nested more than {DEPTH_MAX} deep"));
            return Err(Stop);
        }
        let (tag, _) = self.tag(at, tag.as_deref());
        self.open.push(Open { anchor, node: Node { at, tag, value }, key: None, merges: None, size: 1 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        let Some(mut open) = self.open.pop() else { return Err(Stop) };
        if let (Value::Map(map), Some((_, sources))) = (&mut open.node.value, open.merges.take()) {
            for (key, entry) in sources.into_iter().flatten() {
                map.or_insert_with(&key, || entry);
            }
        }
        self.finish(open.node, open.size, open.anchor)
    }

    fn alias(&mut self, at: At, anchor: usize) -> Result<(), Stop> {
        if let Some(open) = self.open.iter().find(|open| open.anchor == anchor && anchor != 0) {
            let begun = open.node.at;
            self.findings.error(at, "an alias inside its own anchor would never end").note(begun, "the anchor is here");
            return Err(Stop);
        }
        let Some((node, size)) = self.anchors.get(&anchor) else {
            self.findings.error(at, "the alias refers to no anchor in this document");
            return Err(Stop);
        };
        let size = *size;
        // Beyond the limit nothing is copied any more, but sizes are still counted: the largest alias is the one to name.
        if self.copies.saturating_add(size) > COPIES_MAX {
            if self.largest.is_none_or(|(largest, _)| size > largest) {
                self.largest = Some((size, at));
            }
            return self.finish(Node::new(at, Value::Null), size, 0);
        }
        self.copies += size;
        let node = node.clone();
        self.finish(node, size, 0)
    }

    /// Puts a finished node where it belongs.
    fn finish(&mut self, node: Node, size: u64, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        if let Some(open) = self.open.last_mut() {
            open.size = open.size.saturating_add(size);
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.value, open.key.take()) {
            (Value::Seq(items), _) => items.push(node),
            (Value::Map(_), None) => {
                let key = self.key(node);
                if let Some(open) = self.open.last_mut() {
                    open.key = Some(key);
                }
            }
            (Value::Map(map), Some(Key::Name(at, name))) => {
                map.insert(name, Entry { at, node });
            }
            (Value::Map(_), Some(Key::Merge(at))) => {
                let sources = merge_sources(node, self.findings);
                open.merges = Some((at, sources));
            }
            _ => {}
        }
        Ok(())
    }

    fn key(&mut self, node: Node) -> Key {
        let Value::Text(name) = node.value else {
            let message = format!("a key must be text: this one is {}", node.kind());
            self.findings.error(node.at, message).hint("put it in quotes");
            return Key::Bad;
        };
        let first = self.open.last().and_then(|open| open.node.as_map()).and_then(|map| map.get(&name)).map(|e| e.at);
        if let Some(first) = first {
            self.findings
                .error(node.at, format!("the key `{name}` is given twice in one mapping"))
                .note(first, "first given here");
            return Key::Bad;
        }
        Key::Name(node.at, name)
    }

    /// What is open when a fault ends the reading, as far as it goes.
    fn cut(&mut self) -> Option<Node> {
        let mut node: Option<Node> = None;
        while let Some(mut open) = self.open.pop() {
            if let (Some(inner), Value::Map(map), Some(Key::Name(at, name))) = (node, &mut open.node.value, open.key) {
                map.insert(name, Entry { at, node: inner });
            }
            node = Some(open.node);
        }
        node
    }

    /// Tells a fault of the scanner's. What people do most often is named by what stands at the place.
    fn scan_error(&mut self, error: &ScanError, text: &str) {
        let mark = error.marker();
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let at = At { file: self.file, line: number(mark.line()), column: number(mark.col() + 1) };
        let line = text.lines().nth(mark.line().saturating_sub(1)).unwrap_or("");
        let before: String = line.chars().take(mark.col()).collect();
        let here = line.chars().nth(mark.col());
        if let Some(flow) = self.open.iter().map(|open| open.node.at).find(|begin| is_flow(text, *begin))
            && (at.line > flow.line || here.is_none())
        {
            let message = "the bracket opened here is never closed";
            self.findings.error(flow, message).note(at, "this cannot stand inside it");
            return;
        }
        let (message, hint) = if line[..line.len() - line.trim_start().len()].contains('\t') {
            ("a tab is used for indentation", "indent with spaces")
        } else if matches!(here, Some('"' | '\'')) {
            ("the quotation mark opened here is never closed", "close it on the same line")
        } else if here == Some('*') {
            ("the alias refers to no anchor in this document", "an anchor is set by `&name` before it is used")
        } else if here == Some(':') && before.contains(": ") {
            ("a value that holds `: ` must be quoted", "put the whole value in quotes")
        } else if here == Some(':') {
            ("this key is not indented like the keys beside it", "give keys of one mapping the same indentation")
        } else {
            self.findings.error(at, format!("this is not YAML: {}", error.info()));
            return;
        };
        self.findings.error(at, message).hint(hint);
    }
}

/// Whether a collection begins with a bracket.
fn is_flow(text: &str, at: At) -> bool {
    let line = text.lines().nth((at.line as usize).saturating_sub(1));
    let first = line.and_then(|line| line.chars().nth((at.column as usize).saturating_sub(1)));
    matches!(first, Some('[' | '{'))
}

/// The mappings that a merge key names: one, or a list of them where the first wins.
fn merge_sources(node: Node, findings: &mut Findings) -> Vec<Map> {
    let nodes = match node.value {
        Value::Seq(items) => items,
        _ => vec![node],
    };
    let mut sources = Vec::new();
    for node in nodes {
        match node.value {
            Value::Map(map) => sources.push(map),
            _ => {
                let message = format!("a merge key takes a mapping or a list of mappings, not {}", node.kind());
                findings.error(node.at, message);
            }
        }
    }
    sources
}
