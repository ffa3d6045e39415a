//! A mapping that keeps the order in which it was written: small ones are searched from end to end, large ones have an
//! index. Nearly all mappings of a Compose file are small, and hashing their keys would cost more than anything else.

use super::node::Entry;
use std::collections::HashMap;

/// Up to this many entries are searched without an index.
const SMALL: usize = 12;

/// The mapping.
#[derive(Debug, Clone, Default)]
pub struct Map {
    entries: Vec<(String, Entry)>,
    /// Where each key is; only there while there are more than [`SMALL`] entries.
    index: Option<Box<HashMap<String, usize>>>,
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Map {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one with room.
    pub fn with_capacity(count: usize) -> Self {
        Self { entries: Vec::with_capacity(count), index: None }
    }

    fn find(&self, key: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.entries.iter().position(|(known, _)| known == key),
        }
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.find(key).map(|at| &self.entries[at].1)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.find(key).map(|at| &mut self.entries[at].1)
    }

    /// Whether a key is there.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Sets the entry of a key: a known key keeps its position.
    pub fn insert(&mut self, key: String, entry: Entry) {
        match self.find(&key) {
            Some(at) => self.entries[at].1 = entry,
            None => self.push(key, entry),
        }
    }

    /// The entry of a key, made if it is not there.
    pub fn or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Entry) -> &mut Entry {
        let at = self.find(key).unwrap_or_else(|| {
            self.push(key.to_owned(), make());
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    fn push(&mut self, key: String, entry: Entry) {
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), self.entries.len());
        }
        self.entries.push((key, entry));
        if self.index.is_none() && self.entries.len() > SMALL {
            self.reindex();
        }
    }

    fn reindex(&mut self) {
        let positions = || self.entries.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
        self.index = (self.entries.len() > SMALL).then(|| Box::new(positions()));
    }

    /// Takes a key out; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.find(key)?;
        let (_, entry) = self.entries.remove(at);
        self.reindex();
        Some(entry)
    }

    /// Keeps what fits.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(key, entry)| keep(key, entry));
        if self.entries.len() != before {
            self.reindex();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.entries.iter().map(|(key, _)| key)
    }

    /// The entries, in order.
    pub fn values(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// The same, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// Both, the entries to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut Entry)> {
        self.entries.iter_mut().map(|(key, entry)| (&*key, entry))
    }

    /// Both, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter().map(|(key, entry)| (key, entry))
    }
}

/// The iterator over borrowed entries, as a type with a name.
pub type Iter<'a> =
    std::iter::Map<std::slice::Iter<'a, (String, Entry)>, fn(&'a (String, Entry)) -> (&'a String, &'a Entry)>;

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a String, &'a Entry);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.entries.iter().map(|(key, entry)| (key, entry))
    }
}

impl IntoIterator for Map {
    type Item = (String, Entry);
    type IntoIter = std::vec::IntoIter<(String, Entry)>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Extend<(String, Entry)> for Map {
    fn extend<I: IntoIterator<Item = (String, Entry)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, entry)| self.insert(key, entry));
    }
}

impl FromIterator<(String, Entry)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Entry)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::node::{At, Node};

    fn entry(text: &str) -> Entry {
        Entry { at: At::default(), node: Node::text(At::default(), text) }
    }

    #[test]
    fn small_and_large_ones_behave_alike() {
        for count in [3, SMALL, SMALL + 1, 200] {
            let mut map: Map = (0..count).map(|n| (format!("k{n}"), entry("a"))).collect();
            map.insert("k1".to_owned(), entry("b"));
            map.or_insert_with("k2", || entry("never"));
            map.or_insert_with("new", || entry("c"));
            assert_eq!(map.remove("k0").and_then(|entry| entry.node.scalar_text()).as_deref(), Some("a"));
            assert!(map.remove("k0").is_none() && !map.contains_key("k0"));
            assert_eq!(map.get("k1").and_then(|entry| entry.node.as_text()), Some("b"));
            assert_eq!(map.get("k2").and_then(|entry| entry.node.as_text()), Some("a"));
            let keys: Vec<&str> = map.keys().map(String::as_str).collect();
            assert_eq!((keys[0], keys[1], keys[keys.len() - 1], map.len()), ("k1", "k2", "new", count));
            map.retain(|key, _| key == "new");
            assert_eq!(map.get("new"), Some(&entry("c")));
            assert_eq!(map.len(), 1);
        }
    }
}
