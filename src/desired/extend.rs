//! `extends`: a service made from another one of the same file or of another file.

use super::finding::nearest;
use super::load::{Loader, Scope};
use super::node::{At, Node};
use super::shape::{clean, merge_service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How long a chain of `extends` may be.
const CHAIN_MAX: usize = 32;
/// How many values services may take over from others in one file: far above what people write.
const COPIES_MAX: usize = 400_000;

/// A service of this file, or of another one.
type Name = (Option<PathBuf>, String);

/// The work on one tree.
pub(super) struct Extend<'l, 'r> {
    loader: &'l mut Loader<'r>,
    /// This file under no path, others under theirs; nothing for one that could not be read.
    trees: BTreeMap<Option<PathBuf>, Option<Rc<Node>>>,
    scopes: BTreeMap<Option<PathBuf>, Scope>,
    /// Services that have been worked out.
    done: BTreeMap<Name, Option<Node>>,
    copies: usize,
}

impl<'l, 'r> Extend<'l, 'r> {
    pub fn new(loader: &'l mut Loader<'r>, scope: &Scope) -> Self {
        let scopes = BTreeMap::from([(None, scope.clone())]);
        Self { loader, trees: BTreeMap::new(), scopes, done: BTreeMap::new(), copies: 0 }
    }

    /// Works out all services of a tree.
    pub fn all(mut self, tree: &mut Node) {
        let services = tree.get("services").and_then(Node::as_map).into_iter().flatten();
        let extending = services.filter(|(_, entry)| entry.node.get("extends").is_some());
        let names: Vec<String> = extending.map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return;
        }
        self.trees.insert(None, Some(Rc::new(tree.clone())));
        for name in &names {
            self.service(&(None, name.clone()), &mut Vec::new());
        }
        let services = tree.as_map_mut().and_then(|map| map.get_mut("services"));
        let Some(services) = services.and_then(|entry| entry.node.as_map_mut()) else { return };
        for ((_, name), node) in self.done.into_iter().filter(|((file, _), _)| file.is_none()) {
            if let (Some(entry), Some(node)) = (services.get_mut(&name), node) {
                entry.node = node;
            }
        }
    }

    /// One service with what it extends worked in; nothing when that cannot be done.
    fn service(&mut self, name: &Name, chain: &mut Vec<Name>) -> Option<Node> {
        if let Some(known) = self.done.get(name).cloned() {
            self.count(known.as_ref()?)?;
            return known;
        }
        let tree = self.trees.get(&name.0)?.clone()?;
        let mut node = tree.get("services")?.get(&name.1)?.clone();
        self.count(&node)?;
        let Some(extends) = node.as_map_mut()?.remove("extends") else { return Some(node) };
        if chain.contains(name) || chain.len() >= CHAIN_MAX {
            let names: Vec<&str> = chain.iter().chain([name]).map(|(_, name)| name.as_str()).collect();
            let message = format!("`extends` leads round in a circle: {}", names.join(" -> "));
            self.loader.findings.error(extends.at, message);
            return None;
        }
        chain.push(name.clone());
        let base = self.base(&name.0, &extends.node).and_then(|base| self.service(&base, chain));
        chain.pop();
        // What is missing has been told; the rest of the service is looked at all the same.
        let whole = match base {
            Some(base) => merge_service(base, node),
            None => {
                // The key that stays tells that the service is not whole.
                node.as_map_mut()?.insert("extends".to_owned(), extends);
                node
            }
        };
        self.done.insert(name.clone(), Some(whole.clone()));
        Some(whole)
    }

    /// Which service is meant.
    fn base(&mut self, file: &Option<PathBuf>, extends: &Node) -> Option<Name> {
        let service = extends.get("service")?;
        let name = service.as_text()?.to_owned();
        let base = match extends.get("file") {
            Some(other) => {
                let path = clean(&self.scopes.get(file)?.dir.join(other.as_text()?));
                self.open(file, path, other.at)
            }
            None => file.clone(),
        };
        let tree = self.trees.get(&base)?.clone()?;
        let services = tree.get("services").and_then(Node::as_map);
        if services.is_some_and(|services| services.contains_key(&name)) {
            return Some((base, name));
        }
        let names = services.into_iter().flatten().map(|(name, _)| name.as_str());
        let near = nearest(&name, names).map(|near| format!("did you mean `{near}`?"));
        let complaint = self.loader.findings.error(service.at, format!("there is no service `{name}` to extend"));
        if let Some(near) = near {
            complaint.hint(near);
        }
        None
    }

    /// Reads another file, once; the file that names itself is this one.
    fn open(&mut self, from: &Option<PathBuf>, path: PathBuf, at: At) -> Option<PathBuf> {
        let scope = self.scopes.get(from)?.clone();
        let own = self.scopes.get(&None).and_then(|scope| scope.chain.last()).cloned();
        if own.is_some_and(|own| std::path::absolute(own).ok() == std::path::absolute(&path).ok()) {
            return None;
        }
        let key = Some(path.clone());
        if !self.trees.contains_key(&key) {
            let mut chain = scope.chain;
            chain.push(path.clone());
            let dir = path.parent().map(Path::to_owned).unwrap_or_default();
            let via = Some((at, "extended from here"));
            let scope = Scope { dir, env: scope.env, via, chain, extend: false };
            let tree = self.loader.file(&path, &scope).map(Rc::new);
            self.trees.insert(key.clone(), tree);
            self.scopes.insert(key.clone(), scope);
        }
        key
    }

    fn count(&mut self, node: &Node) -> Option<()> {
        self.copies += node.size();
        if self.copies > COPIES_MAX {
            let message = format!("services take over more than {COPIES_MAX} values from others");
            self.loader.findings.error(node.at, message);
            return None;
        }
        Some(())
    }
}
