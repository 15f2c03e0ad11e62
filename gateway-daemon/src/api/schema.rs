//! What the API server checks before it takes an object: fields, types, ranges, formats. Said of a whole document at
//! once, each fault with its place.
//!
//! The schemas stand next to the types they are of. Rules between fields (CEL in the CRDs) are not here: they are the
//! `rules` of each kind.

use super::{
    format::Format,
    node::{Node, Position, Value},
};

/// What a value must be.
#[derive(Debug)]
pub(super) enum Schema {
    /// Anything; a part of Kubernetes that gatewayd does not read.
    Any,
    /// A boolean.
    Bool,
    /// A whole number from the first to the second.
    Int(i64, i64),
    /// One of these numbers.
    IntOf(&'static [i64]),
    /// A text of so many characters, of a format.
    Text(usize, usize, Format),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number or a text.
    IntOrText,
    /// A sequence.
    List(&'static List),
    /// A mapping with at most so many keys that are free.
    Map(usize, &'static Self),
    /// A mapping with these fields.
    Object(&'static Object),
}

/// A sequence of `min` to `max` values.
#[derive(Debug)]
pub(super) struct List {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) of: Schema,
    /// No two items are equal in all of these fields.
    pub(super) unique: &'static [&'static str],
}

/// A mapping with named fields.
#[derive(Debug)]
pub struct Object {
    pub(super) required: &'static [(&'static str, Schema)],
    pub(super) optional: &'static [(&'static str, Schema)],
    /// Fields of versions before v1, with what to write today.
    pub(super) gone: &'static [(&'static str, &'static str)],
}

impl Object {
    /// An object without fields of the past.
    pub(super) const fn new(
        required: &'static [(&'static str, Schema)],
        optional: &'static [(&'static str, Schema)],
    ) -> Self {
        Self { required, optional, gone: &[] }
    }
}

impl List {
    /// A list without a rule of uniqueness.
    pub(super) const fn new(min: usize, max: usize, of: Schema) -> Self {
        Self { min, max, of, unique: &[] }
    }
}

/// Something that a schema does not allow.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Violation {
    pub(super) at: Position,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// Finds everything in `node` that `schema` does not allow. `key` is where its key was written, `path` its own path.
pub(super) fn check(node: &Node, key: Position, schema: &Schema, path: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    walk(node, key, schema, path, &mut violations);
    violations
}

fn walk(node: &Node, key: Position, schema: &Schema, path: &str, out: &mut Vec<Violation>) {
    let wrong = match (schema, &node.value) {
        (Schema::Any, _)
        | (Schema::Bool, Value::Bool(_))
        | (Schema::IntOrText, Value::Int(_) | Value::Text(_)) => None,
        (Schema::Int(min, max), Value::Int(value)) => (!(min..=max).contains(&value))
            .then(|| ("out-of-range", format!("{path} is {value}: it must be from {min} to {max}"))),
        (Schema::IntOf(known), Value::Int(value)) => (!known.contains(value))
            .then(|| ("unknown-value", format!("{path} is {value}: it must be {}", or(known)))),
        (Schema::Text(min, max, format), Value::Text(text)) => text_fault(text, *min, *max, *format, path),
        (Schema::OneOf(known), Value::Text(text)) => (!known.contains(&text.as_str()))
            .then(|| ("unknown-value", format!("{path} is `{text}`: it must be {}", or(known)))),
        (Schema::List(list), Value::List(items)) => {
            if !(list.min..=list.max).contains(&items.len()) {
                let message =
                    format!("{path} has {} items: {} to {} are allowed", items.len(), list.min, list.max);
                out.push(Violation { at: key, code: "item-count", message });
            }
            for (index, item) in items.iter().enumerate() {
                walk(item, item.at, &list.of, &format!("{path}[{index}]"), out);
            }
            repeated(items, list, path, out);
            None
        }
        (Schema::Map(max, of), Value::Map(entries)) => {
            for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
                walk(&entry.value, entry.at, of, &format!("{path}.{}", entry.key), out);
            }
            (entries.len() > *max).then(|| {
                ("item-count", format!("{path} has {} keys: at most {max} are allowed", entries.len()))
            })
        }
        (Schema::Object(object), Value::Map(_)) => {
            fields(node, key, object, path, out);
            None
        }
        (Schema::Text(..) | Schema::OneOf(_), Value::Int(_) | Value::Float(_) | Value::Bool(_)) => {
            Some(("wrong-type", format!("{path} must be a text: put the value in quotes")))
        }
        (expected, _) => {
            Some(("wrong-type", format!("{path} must be {}, not {}", expected.describe(), node.describe())))
        }
    };
    if let Some((code, message)) = wrong {
        out.push(Violation { at: node.at, code, message });
    }
}

impl Schema {
    fn describe(&self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Bool => "`true` or `false`",
            Self::Int(..) | Self::IntOf(_) => "a whole number",
            Self::Text(..) | Self::OneOf(_) => "a text",
            Self::IntOrText => "a whole number or a text",
            Self::List(_) => "a list",
            Self::Map(..) | Self::Object(_) => "a mapping",
        }
    }
}

/// The texts themselves are not repeated: some of them are secrets.
fn text_fault(
    text: &str,
    min: usize,
    max: usize,
    format: Format,
    path: &str,
) -> Option<(&'static str, String)> {
    let length = text.chars().count();
    if length < min {
        return Some(("too-short", format!("{path} must not be empty")));
    }
    if length > max {
        return Some(("too-long", format!("{path} has {length} characters: at most {max} are allowed")));
    }
    format.fault(text).map(|wrong| ("bad-format", format!("{path} {wrong}")))
}

fn fields(node: &Node, key: Position, object: &Object, path: &str, out: &mut Vec<Violation>) {
    let Value::Map(entries) = &node.value else { return };
    let known = || object.required.iter().chain(object.optional);
    let inside = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    for entry in entries {
        if let Some((_, schema)) = known().find(|(name, _)| *name == entry.key) {
            if !entry.value.is_null() {
                let at = entry.at;
                walk(&entry.value, at, schema, &inside(&entry.key), out);
            }
        } else if let Some((_, instead)) = object.gone.iter().find(|(name, _)| *name == entry.key) {
            let message = format!("{} is a field of versions before v1: {instead}", inside(&entry.key));
            out.push(Violation { at: entry.at, code: "removed-field", message });
        } else {
            // What is there already was not misspelt.
            let names: Vec<&str> =
                known().map(|(name, _)| *name).filter(|name| node.entry(name).is_none()).collect();
            let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
            let hint = suggestion(&entry.key, &names);
            let message = format!("there is no field `{}`{place}: {hint}", entry.key);
            out.push(Violation { at: entry.at, code: "unknown-field", message });
        }
    }
    for (name, _) in object.required {
        if node.entry(name).is_none() {
            // A list item begins at its first key; a nested mapping is better known by its own key.
            let message = format!("{} is missing: it is required", inside(name));
            out.push(Violation { at: key, code: "missing-field", message });
        }
    }
}

fn repeated(items: &[std::sync::Arc<Node>], list: &List, path: &str, out: &mut Vec<Violation>) {
    if list.unique.is_empty() {
        return;
    }
    let same = |a: &Node, b: &Node| {
        list.unique
            .iter()
            .all(|field| a.get(field).map(|node| &node.value) == b.get(field).map(|node| &node.value))
    };
    for (index, item) in items.iter().enumerate() {
        if let Some(first) = items[..index].iter().position(|other| same(other, item)) {
            let fields = list.unique.join(", ");
            let message =
                format!("{path}[{index}] has the same {fields} as {path}[{first}]: one must differ");
            let at = list.unique.first().and_then(|field| item.get(field)).map_or(item.at, |node| node.at);
            out.push(Violation { at, code: "not-unique", message });
        }
    }
}

/// What the writer of an unknown name may have meant.
pub(super) fn suggestion(unknown: &str, known: &[&str]) -> String {
    let near = |name: &&&str| {
        let (a, b) = (unknown.to_ascii_lowercase(), name.to_ascii_lowercase());
        distance(&a, &b) <= 2 || (a.len() > 2 && b.starts_with(&a[..3]))
    };
    let best = known.iter().filter(near).min_by_key(|name| distance(unknown, name));
    match best {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("it must be {}", or(known)),
    }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn or<T: ToString>(values: &[T]) -> String {
    let mut words: Vec<String> = values.iter().map(ToString::to_string).collect();
    match words.pop() {
        None => "nothing".to_owned(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
    }
}
