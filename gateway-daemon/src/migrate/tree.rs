//! A document as it was written: where each part begins and ends.
//!
//! [`api::node`](crate::api::node) knows where a part begins, which is enough to point at it. To change a part and
//! nothing else one must know where it ends as well, and how it was written.

use std::ops::Range;

use saphyr_parser::{Event, Parser, Span};

/// A value, and the bytes that it was written in. An empty value has an empty range.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) range: Range<usize>,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// The text that is meant, without quotes and escapes.
    Scalar(String),
    /// `flow` is the style with brackets.
    List { flow: bool, items: Vec<Tree> },
    /// `flow` is the style with braces.
    Map { flow: bool, entries: Vec<Entry> },
    /// What it stands for is changed where its anchor is.
    Alias,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Tree,
    pub(super) value: Tree,
}

impl Tree {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.shape {
            Shape::Scalar(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        match &self.shape {
            Shape::Map { entries, .. } => entries,
            _ => &[],
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.shape {
            Shape::List { items, .. } => items,
            _ => &[],
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key.text() == Some(key))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The text of a key.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    pub(super) fn is_flow(&self) -> bool {
        matches!(self.shape, Shape::List { flow: true, .. } | Shape::Map { flow: true, .. })
    }

    /// Calls `visit` with every scalar below, keys included.
    pub(super) fn scalars(&self, visit: &mut impl FnMut(&Self)) {
        match &self.shape {
            Shape::Scalar(_) => visit(self),
            Shape::List { items, .. } => items.iter().for_each(|item| item.scalars(visit)),
            Shape::Map { entries, .. } => {
                for entry in entries {
                    entry.key.scalars(visit);
                    entry.value.scalars(visit);
                }
            }
            Shape::Alias => {}
        }
    }
}

/// The documents of a text that `source::yaml` finds no fault with; reading stops where it would.
pub(super) fn parse(text: &str) -> Vec<Tree> {
    let mut builder = Builder { text, bytes: byte_offsets(text), open: Vec::new(), documents: Vec::new() };
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        builder.event(event, span);
    }
    builder.documents
}

/// The byte at which each character begins, since the parser counts characters.
fn byte_offsets(text: &str) -> Vec<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).collect()
}

struct Builder<'t> {
    text: &'t str,
    bytes: Vec<usize>,
    open: Vec<Open>,
    documents: Vec<Tree>,
}

struct Open {
    start: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Tree>),
    Map(Vec<Entry>, Option<Tree>),
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) {
        let range = self.byte(span.start.index())..self.byte(span.end.index());
        match event {
            Event::Scalar(text, ..) => {
                let length = self.text[range.clone()].trim_end().len();
                let range = range.start..range.start + length;
                self.finish(Tree { range, shape: Shape::Scalar(text.into_owned()) });
            }
            Event::Alias(_) => self.finish(Tree { range, shape: Shape::Alias }),
            Event::SequenceStart(..) => {
                self.open.push(Open { start: range.start, inside: Inside::List(Vec::new()) });
            }
            Event::MappingStart(..) => {
                self.open.push(Open { start: range.start, inside: Inside::Map(Vec::new(), None) });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(range.end),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }

    fn byte(&self, character: usize) -> usize {
        self.bytes.get(character).copied().unwrap_or(self.text.len())
    }

    fn close(&mut self, end: usize) {
        let Some(Open { start, inside }) = self.open.pop() else { return };
        let flow = self.text[start..].starts_with(['[', '{']);
        // In block style the end is where the next token is: what is inside knows better.
        let last = match &inside {
            Inside::List(items) => items.last().map(|item| item.range.end),
            Inside::Map(entries, _) => {
                entries.last().map(|entry| entry.value.range.end.max(entry.key.range.end))
            }
        };
        let end = if flow { end } else { last.unwrap_or(start) };
        let shape = match inside {
            Inside::List(items) => Shape::List { flow, items },
            Inside::Map(entries, _) => Shape::Map { flow, entries },
        };
        self.finish(Tree { range: start..end, shape });
    }

    fn finish(&mut self, tree: Tree) {
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.documents.push(tree),
            Some(Inside::List(items)) => items.push(tree),
            Some(Inside::Map(entries, key)) => match key.take() {
                None => *key = Some(tree),
                Some(key) => entries.push(Entry { key, value: tree }),
            },
        }
    }
}
