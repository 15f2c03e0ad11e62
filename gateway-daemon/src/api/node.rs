//! A document as a tree that remembers where each part was written.
//!
//! `source` makes these from YAML; [`decode`](super::decode) turns them into objects. Objects keep their tree, so that
//! whoever finds fault with a field later can still say where it is.

use std::sync::Arc;

use super::Place;

/// A value and where it begins.
#[derive(Debug, PartialEq)]
pub struct Node {
    /// Where the value begins. Of a mapping in block style that is its first key.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// A line and a column, both counted from 1; columns in characters.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// A value, typed as the core schema of YAML 1.2 does.
#[derive(Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits 64 bits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Everything else.
    Text(String),
    /// A sequence. Nodes are shared by the aliases of an anchor.
    List(Vec<Arc<Node>>),
    /// A mapping, its keys unique and in the order as written.
    Map(Vec<Entry>),
}

/// A key of a mapping, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub at: Position,
    /// The value.
    pub value: Arc<Node>,
}

impl Node {
    /// The entry of a key that is there and not null; null and absent are the same in Kubernetes.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key && !entry.value.is_null()),
            _ => None,
        }
    }

    /// The value of a key that is there and not null.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &*entry.value)
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// What the value is, for messages.
    pub fn describe(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Where the field at `path` was written, or the part of the way to it that exists.
    ///
    /// A path is written as in messages: `spec.rules[0].backendRefs[1].name`. Of a field that holds a list or a
    /// mapping the place is its key, of everything else the value.
    pub fn find(&self, path: &str) -> Position {
        let mut node = self;
        let mut at = self.at;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match step.strip_suffix(']') {
                Some(index) => node.item(index).map(|item| (item, item.at)),
                None => node.entry(step).map(|entry| match entry.value.value {
                    Value::List(_) | Value::Map(_) => (&*entry.value, entry.at),
                    _ => (&*entry.value, entry.value.at),
                }),
            };
            let Some(next) = next else { break };
            (node, at) = next;
        }
        at
    }

    fn item(&self, index: &str) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(index.parse::<usize>().ok()?).map(|item| &**item),
            _ => None,
        }
    }

    /// The same value for serde, without nulls in mappings.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.as_str().into(),
            Value::List(items) => items.iter().map(|item| item.to_json()).collect(),
            Value::Map(entries) => entries
                .iter()
                .filter(|entry| !entry.value.is_null())
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect(),
        }
    }
}

/// Where an object was written: its file, and its tree to find single fields.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file, as the user's paths lead to it.
    pub file: Arc<str>,
    /// The object.
    pub root: Arc<Node>,
}

impl Origin {
    /// Where the field at `path` was written; see [`Node::find`].
    pub fn place(&self, path: &str) -> Place {
        self.at(self.root.find(path))
    }

    /// A position of this file.
    pub fn at(&self, position: Position) -> Place {
        Place { file: Arc::clone(&self.file), line: position.line, column: position.column }
    }
}
