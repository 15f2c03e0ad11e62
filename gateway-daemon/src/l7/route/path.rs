//! Paths: one form to compare them in, and the table that finds the candidates for one.
//!
//! Rules are compared with the *canonical* form of a path, so that no way of writing it leads around a rule:
//! percent-encoded unreserved characters are decoded, other escapes are written in capitals, and repeated slashes
//! count as one (RFC 3986 §6.2.2; no rule can contain `//`). A path with a `.` or `..` segment, however encoded, is
//! refused: clients have to resolve those, and backends disagree on what they mean. `%2F` stays what it is, a
//! character of a segment. The backend gets the bytes that the client sent.

use std::{borrow::Cow, collections::HashMap};

use super::candidate::Candidate;

/// A path has a `.` or `..` segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DotSegment;

/// Brings a path into canonical form. Borrows, and allocates nothing, when it already is.
///
/// # Errors
/// [`DotSegment`].
pub(crate) fn canonical(path: &str) -> Result<Cow<'_, str>, DotSegment> {
    let bytes = path.as_bytes();
    let suspicious = bytes.contains(&b'%') || bytes.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
    if !suspicious {
        return Ok(Cow::Borrowed(path));
    }
    let written = write_canonical(bytes);
    // Parameters (`/..;x/`) are cut by some backends before they look at the segment.
    let dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if written.split('/').any(dots) {
        return Err(DotSegment);
    }
    Ok(if written == path { Cow::Borrowed(path) } else { Cow::Owned(written) })
}

fn write_canonical(bytes: &[u8]) -> String {
    let mut written = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (*first, escaped(tail)) {
            (b'%', Some(byte)) => {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    written.push(char::from(byte));
                } else {
                    written.push('%');
                    written.extend(tail[..2].iter().map(|digit| char::from(digit.to_ascii_uppercase())));
                }
                rest = &tail[2..];
            }
            (b'/', _) if written.ends_with('/') => {}
            // Only ASCII comes here: `http::Uri` takes nothing else without escaping, and rules are written likewise.
            (byte, _) => written.push(char::from(byte)),
        }
    }
    written
}

/// The byte that two hexadecimal digits at the beginning stand for.
pub(crate) fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    match digits {
        [high, low, ..] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// Candidates by path: exact ones, whole-segment prefixes, regular expressions.
///
/// The cost of a search grows with the number of segments of the path, not with the number of paths here.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    exact: HashMap<Box<str>, Vec<Candidate>>,
    prefixes: SegmentTree,
    patterns: Vec<(regex::Regex, Candidate)>,
}

impl PathTable {
    pub(crate) fn insert_exact(&mut self, path: &str, candidate: Candidate) {
        self.exact.entry(canonical_or_as_is(path)).or_default().push(candidate);
    }

    /// `prefix` is without trailing slash; `/` is the empty string.
    pub(crate) fn insert_prefix(&mut self, prefix: &str, candidate: Candidate) {
        self.prefixes.insert(&canonical_or_as_is(prefix), candidate);
    }

    pub(crate) fn insert_pattern(&mut self, pattern: regex::Regex, candidate: Candidate) {
        self.patterns.push((pattern, candidate));
    }

    /// Brings candidates of equal paths into the order of precedence.
    pub(crate) fn sort(&mut self) {
        for candidates in self.exact.values_mut() {
            candidates.sort_by_key(Candidate::precedence);
        }
        for node in &mut self.prefixes.nodes {
            node.candidates.sort_by_key(Candidate::precedence);
        }
        self.patterns.sort_by_key(|(_, candidate)| candidate.precedence());
    }

    /// The first candidate that `holds`, in the order of precedence, with the length of the prefix that matched.
    ///
    /// Exact paths come first, then prefixes from the longest, then regular expressions, then the prefix `/`. (The
    /// place of regular expressions is left to implementations. Behind `/`, which every rule without a path has,
    /// they would never be reached.)
    pub(crate) fn find(&self, path: &str, holds: impl Fn(&Candidate) -> bool) -> Option<(&Candidate, usize)> {
        if let Some(found) = self.exact.get(path).and_then(|all| all.iter().find(|one| holds(one))) {
            return Some((found, path.len()));
        }
        for node in self.prefixes.ancestors(path) {
            if let Some(found) = node.candidates.iter().find(|one| holds(one)) {
                return Some((found, node.prefix_len));
            }
        }
        let pattern = self.patterns.iter().find(|(pattern, one)| holds(one) && pattern.is_match(path));
        if let Some((_, found)) = pattern {
            return Some((found, path.len()));
        }
        let root = self.prefixes.root().filter(|_| path.starts_with('/'))?;
        root.candidates.iter().find(|one| holds(one)).map(|found| (found, 0))
    }
}

/// A rule that is itself written with dot segments can only be met by its own spelling: never.
fn canonical_or_as_is(path: &str) -> Box<str> {
    canonical(path).map_or_else(|DotSegment| path.into(), |path| path.as_ref().into())
}

#[derive(Debug)]
struct SegmentTree {
    /// The first is the root.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<str>, usize>,
    candidates: Vec<Candidate>,
    parent: usize,
    /// Bytes of the path from the root to here.
    prefix_len: usize,
}

impl Default for SegmentTree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl SegmentTree {
    fn insert(&mut self, prefix: &str, candidate: Candidate) {
        let mut at = 0;
        for segment in prefix.split('/').skip(1) {
            at = match self.nodes[at].children.get(segment) {
                Some(child) => *child,
                None => self.add_child(at, segment),
            };
        }
        self.nodes[at].candidates.push(candidate);
    }

    fn add_child(&mut self, parent: usize, segment: &str) -> usize {
        let index = self.nodes.len();
        let prefix_len = self.nodes[parent].prefix_len + 1 + segment.len();
        self.nodes.push(Node { parent, prefix_len, ..Node::default() });
        self.nodes[parent].children.insert(segment.into(), index);
        index
    }

    /// The nodes whose prefix `path` has, the longest first, without the root.
    fn ancestors(&self, path: &str) -> impl Iterator<Item = &Node> {
        let mut deepest = 0;
        if path.starts_with('/') && !self.nodes[0].children.is_empty() {
            for segment in path.split('/').skip(1) {
                match self.nodes[deepest].children.get(segment) {
                    Some(child) => deepest = *child,
                    None => break,
                }
            }
        }
        std::iter::successors(Some(deepest), |at| Some(self.nodes[*at].parent))
            .take_while(|at| *at != 0)
            .map(|at| &self.nodes[at])
    }

    fn root(&self) -> Option<&Node> {
        self.nodes.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_a_path_leads_around_a_rule() {
        let rows: [(&str, Result<&str, DotSegment>); 20] = [
            ("/", Ok("/")),
            ("/a/b", Ok("/a/b")),
            ("/a/", Ok("/a/")),
            ("//admin", Ok("/admin")),
            ("/a///b//", Ok("/a/b/")),
            ("/%61dmin", Ok("/admin")),
            ("/a%2fb", Ok("/a%2Fb")),
            ("/a%2Fb", Ok("/a%2Fb")),
            ("/a%20b", Ok("/a%20b")),
            ("/a%zz", Ok("/a%zz")),
            ("/a%2", Ok("/a%2")),
            ("/.well-known/x", Ok("/.well-known/x")),
            ("/a/...", Ok("/a/...")),
            ("/a/./b", Err(DotSegment)),
            ("/a/../admin", Err(DotSegment)),
            ("/a/..", Err(DotSegment)),
            ("/a/%2e%2E/admin", Err(DotSegment)),
            ("/a/.%2e/admin", Err(DotSegment)),
            ("/a/..;x=1/admin", Err(DotSegment)),
            ("/a//../admin", Err(DotSegment)),
        ];
        for (given, expected) in rows {
            assert_eq!(canonical(given).as_deref(), expected.as_ref().map(|path| *path), "{given}");
        }
    }
}
