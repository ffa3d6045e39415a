//! The tree that all work before lowering is done on: every key and every value knows its place.

pub use super::map::Map;

/// A place in a file of the [`Files`](super::finding::Files) table; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct At {
    /// Index into the table of files.
    pub file: u32,
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// What Compose's two tags ask of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tag {
    /// No tag of ours.
    #[default]
    None,
    /// `!reset`: the earlier value goes, and so does this one.
    Reset,
    /// `!override`: this value takes the earlier one's place instead of being merged into it.
    Override,
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub at: At,
    /// Its merge tag.
    pub tag: Tag,
    /// What it is.
    pub value: Value,
}

/// What a node is, after YAML's own rules for plain scalars.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: an empty value, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A plain scalar of a kind that no key takes, as it reads when it is used as text: a date, a number beyond 63 bits.
    Odd(String),
    /// Text.
    Text(String),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping, in the order written.
    Map(Map),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where the key is.
    pub at: At,
    /// The value.
    pub node: Node,
}

impl Node {
    /// A node without a tag.
    pub fn new(at: At, value: Value) -> Self {
        Self { at, tag: Tag::None, value }
    }

    /// A text node.
    pub fn text(at: At, text: impl Into<String>) -> Self {
        Self::new(at, Value::Text(text.into()))
    }

    /// A mapping node of entries that all stand at one place.
    pub fn map<K: Into<String>>(at: At, entries: impl IntoIterator<Item = (K, Node)>) -> Self {
        let entries = entries.into_iter().map(|(key, node)| (key.into(), Entry { at: node.at, node }));
        Self::new(at, Value::Map(entries.collect()))
    }

    /// What it is, for a message: "the number 5", "a list".
    pub fn kind(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the word {value}"),
            Value::Int(_) | Value::Float(_) => format!("the number {}", self.scalar_text().unwrap_or_default()),
            Value::Odd(_) => "a date or an enormous number".to_owned(),
            Value::Text(_) => "text".to_owned(),
            Value::Seq(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// The text of a text node.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The mapping of a mapping node.
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The same, to change.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match &mut self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The items of a list node.
    pub fn as_seq(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// The value under a key of a mapping node.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.get(key).map(|entry| &entry.node)
    }

    /// The text under a key of a mapping node.
    pub fn get_text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text()
    }

    /// A whole number.
    pub fn as_int(&self) -> Option<i128> {
        match self.value {
            Value::Int(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A scalar as text, the way it reads in an environment or a label; nothing for null and for collections.
    pub fn scalar_text(&self) -> Option<String> {
        match &self.value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Int(value) => Some(value.to_string()),
            Value::Float(value) => Some(float_text(*value)),
            Value::Odd(text) | Value::Text(text) => Some(text.clone()),
            Value::Null | Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// How many nodes there are in it, itself included.
    pub fn size(&self) -> usize {
        match &self.value {
            Value::Seq(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Value::Map(map) => 1 + map.values().map(|entry| entry.node.size()).sum::<usize>(),
            _ => 1,
        }
    }
}

/// The shortest decimal form, with an exponent from six digits on (`1e+06`) as the reference prints it.
fn float_text(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
