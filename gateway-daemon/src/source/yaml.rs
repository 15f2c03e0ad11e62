//! YAML (and so JSON) to trees that remember where each part was written.
//!
//! Not here: what the documents mean.

use std::{collections::BTreeMap, sync::Arc};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use crate::api::node::{Entry, Node, Position, Value};

/// A fault of the text itself.
#[derive(Debug, PartialEq)]
pub struct SyntaxFault {
    /// Where it is.
    pub at: Position,
    /// Its code, as in diagnostics.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// The documents of a text that could be read, and everything that is wrong with it.
#[derive(Debug, Default)]
pub struct Documents {
    /// Documents in the order as written; empty ones are left out.
    pub documents: Vec<Arc<Node>>,
    /// Faults in the order as found. With any fault, the documents are not to be trusted.
    pub faults: Vec<SyntaxFault>,
}

/// Reads a text of zero or more documents.
pub fn parse(text: &str) -> Documents {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    loop {
        match parser.next_event() {
            None => break,
            Some(Ok((event, span))) => {
                if builder.event(event, span).is_err() {
                    break;
                }
            }
            Some(Err(error)) => {
                let message = format!("the YAML cannot be read from here on: {}", error.info());
                builder.fault(position(*error.marker()), "yaml-syntax", message);
                break;
            }
        }
    }
    builder.output
}

/// Mappings and sequences nested deeper than this are refused: the Gateway API needs 11, with room for core kinds.
const MAX_DEPTH: usize = 64;

/// A file's aliases may stand for this many nodes altogether, so that few lines cannot become gigabytes.
const MAX_ALIASED_NODES: usize = 100_000;

/// Reading cannot go on; the fault is recorded.
struct Stop;

#[derive(Default)]
struct Builder {
    output: Documents,
    open: Vec<Open>,
    /// Finished nodes by anchor, with the number of nodes each stands for.
    anchors: BTreeMap<usize, (Arc<Node>, usize)>,
    aliased: usize,
}

/// A sequence or mapping whose end has not come yet.
struct Open {
    at: Position,
    anchor: usize,
    size: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Arc<Node>>),
    /// `merged` come from merge keys: they hold unless the mapping has the key itself, before or after.
    Map {
        entries: Vec<Entry>,
        merged: Vec<Entry>,
        key: Option<(String, Position, bool)>,
    },
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = position(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = self.scalar(&text, style, tag.as_deref(), at);
                let plain = style == ScalarStyle::Plain;
                self.finish(Arc::new(Node { at, value }), anchor, 1, Some((&text, plain)));
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(at, anchor, tag.as_deref(), Inside::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                let inside = Inside::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                self.open(at, anchor, tag.as_deref(), inside)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at)?,
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, tag: Option<&Tag>, inside: Inside) -> Result<(), Stop> {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            self.fault(at, "yaml-tag", format!("the tag `{tag}` means nothing here: remove it"));
        }
        if self.open.len() == MAX_DEPTH {
            self.fault(at, "yaml-depth", format!("values are nested deeper than {MAX_DEPTH} levels"));
            return Err(Stop);
        }
        self.open.push(Open { at, anchor, size: 1, inside });
        Ok(())
    }

    fn close(&mut self) {
        let Some(Open { at, anchor, size, inside }) = self.open.pop() else { return };
        let value = match inside {
            Inside::List(items) => Value::List(items),
            Inside::Map { mut entries, merged, .. } => {
                for entry in merged {
                    if entries.iter().all(|own| own.key != entry.key) {
                        entries.push(entry);
                    }
                }
                Value::Map(entries)
            }
        };
        self.finish(Arc::new(Node { at, value }), anchor, size, None);
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Stop> {
        let Some((node, size)) = self.anchors.get(&anchor).map(|(node, size)| (Arc::clone(node), *size))
        else {
            self.fault(at, "yaml-alias", "an alias cannot stand inside of its own anchor".into());
            return Err(Stop);
        };
        self.aliased += size;
        if self.aliased > MAX_ALIASED_NODES {
            let message = format!("the aliases of this file stand for more than {MAX_ALIASED_NODES} values");
            self.fault(at, "yaml-alias", message);
            return Err(Stop);
        }
        let text = match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.finish(node, 0, size, text.as_deref().map(|text| (text, false)));
        Ok(())
    }

    /// Puts a finished node where it belongs. `key` is its text and whether it was written without quotes, if it
    /// could be a key.
    fn finish(&mut self, node: Arc<Node>, anchor: usize, size: usize, key: Option<(&str, bool)>) {
        if anchor != 0 {
            self.anchors.insert(anchor, (Arc::clone(&node), size));
        }
        let Some(open) = self.open.last_mut() else {
            if !node.is_null() {
                self.output.documents.push(node);
            }
            return;
        };
        open.size += size;
        match &mut open.inside {
            Inside::List(items) => items.push(node),
            Inside::Map { entries, merged, key: pending } => {
                if let Some((name, at, plain)) = pending.take() {
                    let merges = plain && name == "<<";
                    let fault = if merges { merge(merged, &node) } else { insert(entries, name, at, node) };
                    self.output.faults.extend(fault);
                } else {
                    let at = node.at;
                    let (name, plain) = key.unwrap_or(("", false));
                    *pending = Some((name.to_owned(), at, plain));
                    if key.is_none() {
                        self.fault(at, "yaml-key", "a key must be a text".into());
                    }
                }
            }
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Value {
        match tag {
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => {
                return Value::Text(text.to_owned());
            }
            Some(tag) if !tag.is_yaml_core_schema() => {
                self.fault(at, "yaml-tag", format!("the tag `{tag}` means nothing here: remove it"));
            }
            _ => {}
        }
        if style == ScalarStyle::Plain { plain(text) } else { Value::Text(text.to_owned()) }
    }

    fn fault(&mut self, at: Position, code: &'static str, message: String) {
        self.output.faults.push(SyntaxFault { at, code, message });
    }
}

fn insert(entries: &mut Vec<Entry>, key: String, at: Position, value: Arc<Node>) -> Option<SyntaxFault> {
    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
        let message = format!("the key `{key}` is already in line {}: keep one of them", first.at.line);
        return Some(SyntaxFault { at, code: "duplicate-key", message });
    }
    entries.push(Entry { key, at, value });
    None
}

/// The merge key `<<`: takes the entries of one or several mappings; the first mapping that has a key wins.
fn merge(merged: &mut Vec<Entry>, from: &Node) -> Option<SyntaxFault> {
    let sources: Vec<&Node> = match &from.value {
        Value::List(items) => items.iter().map(|item| &**item).collect(),
        _ => vec![from],
    };
    for source in sources {
        let Value::Map(more) = &source.value else {
            let message = "`<<` takes a mapping or a list of mappings".to_owned();
            return Some(SyntaxFault { at: from.at, code: "yaml-merge", message });
        };
        for Entry { key, at, value } in more {
            merged.push(Entry { key: key.clone(), at: *at, value: Arc::clone(value) });
        }
    }
    None
}

/// Types a scalar without quotes by the core schema of YAML 1.2, section 10.3.2.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let radix =
        |prefix, radix| text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok());
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Value::Int(number);
    }
    // Rust's parser also takes words such as `inf`, which are texts here.
    if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        if let Ok(number) = text.parse::<i64>() {
            return Value::Int(number);
        }
        if let Ok(number) = text.parse::<f64>() {
            return Value::Float(number);
        }
    }
    Value::Text(text.to_owned())
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Arc<Node> {
        let read = parse(text);
        assert_eq!(read.faults, []);
        Arc::clone(&read.documents[0])
    }

    fn fault(text: &str) -> (usize, usize, &'static str) {
        let faults = parse(text).faults;
        assert_eq!(faults.len(), 1, "{faults:?}");
        (faults[0].at.line, faults[0].at.column, faults[0].code)
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        for (text, value) in [
            ("a: ~", Value::Null),
            ("a:", Value::Null),
            ("a: true", Value::Bool(true)),
            ("a: yes", Value::Text("yes".into())),
            ("a: -12", Value::Int(-12)),
            ("a: 0x1f", Value::Int(31)),
            ("a: 1e3", Value::Float(1000.0)),
            ("a: .5", Value::Float(0.5)),
            ("a: inf", Value::Text("inf".into())),
            ("a: '1'", Value::Text("1".into())),
            ("a: !!str 1", Value::Text("1".into())),
            ("a: 1.2.3.4", Value::Text("1.2.3.4".into())),
            ("a: |\n  x\n  y\n", Value::Text("x\ny\n".into())),
        ] {
            let Value::Map(entries) = &one(text).value else { panic!("{text}") };
            assert_eq!(entries[0].value.value, value, "{text}");
        }
    }

    #[test]
    fn places_are_found_by_path() {
        let node = one("a:\n  b:\n  - c: 1\n  - c: 2\n    d: {e: 3}\n");
        for (path, line, column) in [
            ("a", 1, 1),
            ("a.b", 2, 3),
            ("a.b[1]", 4, 5),
            ("a.b[1].c", 4, 8),
            ("a.b[1].d.e", 5, 12),
            ("a.b[0].x.y", 3, 5),
        ] {
            assert_eq!(node.find(path), Position { line, column }, "{path}");
        }
    }

    #[test]
    fn json_with_tabs_is_read() {
        let node = one("{\n\t\"a\": [1,\n\t2]\n}\n");
        assert_eq!(node.to_json(), serde_json::json!({ "a": [1, 2] }));
    }

    #[test]
    fn several_documents_are_read_and_empty_ones_are_not_there() {
        assert_eq!(parse("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n").documents.len(), 2);
        assert_eq!(parse("").documents.len(), 0);
        assert_eq!(parse("\u{feff}a: 1").documents.len(), 1);
    }

    #[test]
    fn anchors_and_merge_keys_are_followed() {
        let node = one("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b\n");
        assert_eq!(node.get("use").unwrap().to_json(), serde_json::json!({ "x": 1, "y": 3 }));
        assert_eq!(node.get("again").unwrap().to_json(), serde_json::json!({ "x": 1, "y": 2 }));
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
        for n in 1..10 {
            let aliases = format!("*a{},", n - 1).repeat(10);
            lines.push(format!("a{n}: &a{n} [{aliases}]"));
        }
        let (_, _, code) = fault(&lines.join("\n"));
        assert_eq!(code, "yaml-alias");
    }

    #[test]
    fn what_cannot_be_understood_has_a_place() {
        assert_eq!(fault("a: 1\nb: 2\na: 3\n"), (3, 1, "duplicate-key"));
        assert_eq!(fault("a: *nobody\n"), (1, 4, "yaml-syntax"));
        assert_eq!(fault("a: &x [*x]\n").2, "yaml-alias");
        assert_eq!(fault("? [a]\n: b\n").2, "yaml-key");
        assert_eq!(fault("a: !secret b\n"), (1, 4, "yaml-tag"));
        assert_eq!(fault("a:\n  <<: 1\n").2, "yaml-merge");
        assert_eq!(fault(&"[".repeat(100)).2, "yaml-depth");
    }
}
