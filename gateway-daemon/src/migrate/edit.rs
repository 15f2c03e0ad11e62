//! Changes to a text: each names the bytes it replaces, and no other byte is touched.

use std::ops::Range;

use super::tree::{Entry, Shape, Tree};

/// The changes to one text.
#[derive(Debug)]
pub(super) struct Edits<'t> {
    text: &'t str,
    changes: Vec<(Range<usize>, String)>,
}

impl<'t> Edits<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, changes: Vec::new() }
    }

    /// The text with every change made.
    pub(super) fn apply(mut self) -> String {
        // Of two changes at one place, what is put in comes before what is taken away.
        self.changes.sort_by_key(|(range, _)| (range.start, range.end));
        let mut out = String::with_capacity(self.text.len());
        let mut at = 0;
        for (range, new) in &self.changes {
            if range.start < at {
                // Inside of what is gone already.
                continue;
            }
            out.push_str(&self.text[at..range.start]);
            out.push_str(new);
            at = range.end;
        }
        out.push_str(&self.text[at..]);
        out
    }

    /// Replaces a scalar, in the quotes that it has.
    pub(super) fn replace(&mut self, scalar: &Tree, new: &str) {
        let new = self.quoted_like(scalar, new);
        self.put(scalar.range.clone(), new);
    }

    /// Replaces a scalar by text as it is to be written.
    pub(super) fn replace_plain(&mut self, scalar: &Tree, new: &str) {
        self.put(scalar.range.clone(), new.to_owned());
    }

    /// Gives an entry another key.
    pub(super) fn rename(&mut self, entry: &Entry, key: &str) {
        self.replace(&entry.key, key);
    }

    /// Takes an entry of `map` away. Comments beside it become lines of their own.
    pub(super) fn remove(&mut self, map: &Tree, entry: &Entry) {
        let entries = map.entries();
        let Some(index) = entries.iter().position(|other| std::ptr::eq(other, entry)) else { return };
        let (start, end) = (entry.key.range.start, self.end(entry));
        if map.is_flow() {
            let range = match (entries.get(index + 1), index.checked_sub(1)) {
                (Some(next), _) => start..next.key.range.start,
                (None, Some(before)) => self.end(&entries[before])..end,
                (None, None) => start..end,
            };
            return self.put(range, String::new());
        }
        let comments = self.comments(entry);
        let line_end = self.line_end(end);
        if entries.len() == 1 {
            let comments = around(&comments, " ", "");
            return self.put(start..line_end, format!("{{}}{comments}"));
        }
        let indent = spaces(self.column(start));
        let line = self.line_start(start);
        if self.text[line..start].trim().is_empty() {
            let kept = around(&comments, &indent, "\n");
            let rest = &self.text[line_end..];
            let newline = rest.find('\n').map_or(rest.len(), |at| at + 1);
            return self.put(line..line_end + newline, kept);
        }
        // Behind the dash of a list: what comes next moves there.
        let next = entries.get(index + 1).map_or(line_end, |next| next.key.range.start);
        let kept = around(&comments, "", &format!("\n{indent}"));
        self.put(start..next, kept);
    }

    /// Lifts what is in an entry's mapping into `map`, which holds the entry.
    pub(super) fn unwrap(&mut self, map: &Tree, entry: &Entry) {
        let inner = &entry.value;
        let (Some(first), Some(last)) = (inner.entries().first(), inner.entries().last()) else {
            return self.remove(map, entry);
        };
        let start = entry.key.range.start;
        let indent = self.column(start);
        let newline = format!("\n{}", spaces(indent));
        match (map.is_flow(), inner.is_flow()) {
            (false, false) => {
                let comments = self.gap_comments(entry.key.range.end..inner.range.start);
                let kept = around(&comments, "", &newline);
                self.put(start..inner.range.start, kept);
                let deeper = self.column(inner.range.start).saturating_sub(indent);
                self.outdent(inner, deeper);
            }
            (true, _) => {
                self.put(start..first.key.range.start, String::new());
                self.put(self.end(last)..inner.range.end, String::new());
            }
            (false, true) => {
                self.put(start..first.key.range.start, String::new());
                for pair in inner.entries().windows(2) {
                    self.put(self.end(&pair[0])..pair[1].key.range.start, newline.clone());
                }
                self.put(self.end(last)..inner.range.end, String::new());
            }
        }
    }

    /// Puts a mapping's entries under a new key of it.
    pub(super) fn nest(&mut self, map: &Tree, key: &str) {
        let key = self.quoted_like_keys_of(map, key);
        if map.is_flow() {
            self.put(map.range.start..map.range.start, format!("{{{key}: "));
            return self.put(map.range.end..map.range.end, "}".to_owned());
        }
        let indent = self.column(map.range.start) + 2;
        self.put(map.range.start..map.range.start, format!("{key}:\n{}", spaces(indent)));
        self.indent(map);
    }

    /// Makes a value the one item of a list.
    pub(super) fn wrap_in_list(&mut self, value: &Tree) {
        let (start, end) = (value.range.start, value.range.end);
        if value.is_flow() || value.entries().is_empty() {
            self.put(start..start, "[".to_owned());
            return self.put(end..end, "]".to_owned());
        }
        self.put(start..start, "- ".to_owned());
        self.indent(value);
    }

    /// Makes a mapping of free keys a list of `name` and `value`, each item with `more` between them.
    pub(super) fn map_to_list(&mut self, map: &Tree, more: Option<(&str, &str)>) {
        self.list_at(map, more, self.column(map.range.start));
    }

    /// Makes a list of a mapping that has free keys under `values`, and beside them what is in `more`.
    pub(super) fn values_to_list(&mut self, map: &Tree, more: Option<(&str, &str)>) {
        let Some(values) = map.entry("values") else { return };
        let (start, inner) = (values.key.range.start, &values.value.range);
        if map.is_flow() {
            self.put(map.range.start..inner.start, String::new());
            self.put(inner.end..map.range.end, String::new());
        } else {
            if let Some(kind) = map.entry("type") {
                self.remove(map, kind);
            }
            self.put(start..inner.start, String::new());
            let deeper = self.column(inner.start).saturating_sub(self.column(start));
            if !values.value.is_flow() {
                self.outdent(&values.value, deeper);
            }
        }
        self.list_at(&values.value, more, self.column(start));
    }

    fn list_at(&mut self, map: &Tree, more: Option<(&str, &str)>, column: usize) {
        let Shape::Map { flow, entries } = &map.shape else { return };
        let word = |word: &str| self.quoted_like_keys_of(map, word);
        let (name, value) = (word("name"), word("value"));
        let more = more.map(|(key, value)| format!("{}: {}", word(key), word(value)));
        let newline = format!("\n{}", spaces(column + 2));
        let (open, between, close) = if *flow {
            let more = more.map_or_else(String::new, |more| format!("{more}, "));
            (format!("{{{name}: "), format!(", {more}{value}: "), "}")
        } else {
            let more = more.map_or_else(String::new, |more| format!("{newline}{more}"));
            (format!("- {name}: "), format!("{more}{newline}{value}: "), "")
        };
        if *flow {
            self.put(map.range.start..map.range.start + 1, "[".to_owned());
            self.put(map.range.end - 1..map.range.end, "]".to_owned());
        }
        for entry in entries {
            let (key, end) = (&entry.key.range, self.end(entry));
            self.put(key.start..key.start, open.clone());
            self.put(key.end..entry.value.range.start.max(key.end), between.clone());
            self.put(end..end, close.to_owned());
        }
    }

    /// Puts lines before the first entry of a mapping in block style, or their words into one in flow style.
    pub(super) fn insert_first(&mut self, map: &Tree, block: &[String], flow: &str) {
        let start = map.range.start;
        if map.is_flow() {
            let comma = if map.entries().is_empty() { "" } else { ", " };
            return self.put(start + 1..start + 1, format!("{flow}{comma}"));
        }
        let newline = format!("\n{}", spaces(self.column(start)));
        self.put(start..start, around(block, "", &newline));
    }

    /// Replaces an entry by lines in block style, or by words in flow style. Its comments come before it.
    pub(super) fn replace_entry(&mut self, map: &Tree, entry: &Entry, block: &[String], flow: &str) {
        let (start, end) = (entry.key.range.start, self.end(entry));
        if map.is_flow() {
            return self.put(start..end, flow.to_owned());
        }
        let newline = format!("\n{}", spaces(self.column(start)));
        let mut lines = self.gap_comments_of(entry, end);
        lines.extend_from_slice(block);
        self.put(start..end, lines.join(&newline));
    }

    /// A word in the quotes that the keys of a mapping have: in JSON, words without quotes are none.
    pub(super) fn quoted_like_keys_of(&self, map: &Tree, word: &str) -> String {
        map.entries().first().map_or_else(|| word.to_owned(), |first| self.quoted_like(&first.key, word))
    }

    fn quoted_like(&self, scalar: &Tree, word: &str) -> String {
        match self.text[scalar.range.clone()].chars().next() {
            Some(quote @ ('"' | '\'')) => format!("{quote}{word}{quote}"),
            _ => word.to_owned(),
        }
    }

    fn put(&mut self, range: Range<usize>, new: String) {
        // One node may be reached twice, by its anchor's aliases.
        if !self.changes.contains(&(range.clone(), new.clone())) {
            self.changes.push((range, new));
        }
    }

    /// Where an entry ends: of one without a value that is behind the colon.
    fn end(&self, entry: &Entry) -> usize {
        let key = entry.key.range.end;
        let colon = self.text[key..].find(':').map_or(key, |colon| key + colon + 1);
        entry.value.range.end.max(colon)
    }

    /// Moves all lines of a value but the first to the right.
    fn indent(&mut self, value: &Tree) {
        for line in self.lines_after_the_first(value) {
            if !self.text[line..].starts_with(['\n', '\r']) {
                self.put(line..line, "  ".to_owned());
            }
        }
    }

    /// Moves all lines of a value but the first to the left.
    fn outdent(&mut self, value: &Tree, by: usize) {
        for line in self.lines_after_the_first(value) {
            let there = self.text[line..].bytes().take(by).take_while(|byte| *byte == b' ').count();
            if there > 0 {
                self.put(line..line + there, String::new());
            }
        }
    }

    fn lines_after_the_first(&self, value: &Tree) -> Vec<usize> {
        let inside = &self.text[value.range.clone()];
        inside.match_indices('\n').map(|(at, _)| value.range.start + at + 1).collect()
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The end of a line, its break not included.
    fn line_end(&self, at: usize) -> usize {
        let end = self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline);
        end - usize::from(self.text[at..end].ends_with('\r'))
    }

    /// How far a place is from the beginning of its line, in characters.
    fn column(&self, at: usize) -> usize {
        self.text[self.line_start(at)..at].chars().count()
    }

    /// Comments in and beside an entry.
    fn comments(&self, entry: &Entry) -> Vec<String> {
        self.gap_comments_of(entry, self.line_end(self.end(entry)))
    }

    /// Comments from an entry's key to `end`, wherever no scalar is.
    fn gap_comments_of(&self, entry: &Entry, end: usize) -> Vec<String> {
        let mut at = entry.key.range.end;
        let mut comments = Vec::new();
        entry.value.scalars(&mut |scalar| {
            comments.extend(self.gap_comments(at..scalar.range.start.max(at)));
            at = scalar.range.end.max(at);
        });
        comments.extend(self.gap_comments(at..end.max(at)));
        comments
    }

    /// Comments where no scalar is.
    fn gap_comments(&self, gap: Range<usize>) -> Vec<String> {
        self.text[gap]
            .lines()
            .filter_map(|line| line.find('#').map(|at| line[at..].trim_end().to_owned()))
            .collect()
    }
}

fn spaces(count: usize) -> String {
    " ".repeat(count)
}

/// Texts one after the other, each between these two.
fn around(texts: &[String], before: &str, after: &str) -> String {
    texts.iter().flat_map(|text| [before, text, after]).collect()
}
