//! The conditions of a match beside its path.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{Facts, path::escaped};
use crate::model::l7::{Match, Pattern, RuleKind, TextMatch};

/// One match of one rule, found by its path; whether it is met is decided by the rest of its conditions.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The rule, as an index into those of its listener.
    pub(crate) rule: usize,
    grpc_only: bool,
    method: Option<Method>,
    headers: Box<[(HeaderName, Text)]>,
    query: Box<[(Box<str>, Text)]>,
}

impl Candidate {
    /// # Errors
    /// A regular expression does not compile.
    pub(crate) fn compile(rule: usize, kind: RuleKind, conditions: &Match) -> Result<Self, regex::Error> {
        let headers = conditions.headers.iter();
        let query = conditions.query.iter();
        Ok(Self {
            rule,
            grpc_only: kind == RuleKind::Grpc,
            method: conditions.method.clone(),
            headers: headers
                .map(|one| Ok((one.name.clone(), Text::compile(&one.value)?)))
                .collect::<Result<_, _>>()?,
            query: query
                .map(|one| Ok((one.name.as_str().into(), Text::compile(&one.value)?)))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Sorts the candidates of one path: a method first, then most headers, then most query parameters, then the
    /// order of the rules (gateway.networking.k8s.io/v1, HTTPRouteRule.matches).
    pub(crate) fn precedence(&self) -> impl Ord + use<> {
        (self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len()), self.rule)
    }

    /// Whether all conditions hold for the request.
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        (facts.grpc || !self.grpc_only)
            && self.method.as_ref().is_none_or(|method| method == facts.method)
            && self.headers.iter().all(|(name, text)| header_holds(facts.headers, name, text))
            && self.query.iter().all(|(name, text)| query_holds(facts.query, name, text))
    }
}

/// A condition on a text.
#[derive(Debug)]
pub(crate) enum Text {
    Exact(Box<str>),
    Pattern(regex::Regex),
}

impl Text {
    /// # Errors
    /// The regular expression does not compile.
    pub(crate) fn compile(text: &TextMatch) -> Result<Self, regex::Error> {
        Ok(match text {
            TextMatch::Exact(text) => Self::Exact(text.as_str().into()),
            TextMatch::Regex(pattern) => Self::Pattern(whole(pattern)?),
        })
    }

    pub(crate) fn holds(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

/// Compiles a pattern so that it matches whole texts only.
///
/// A search whose match happens to span the text is not the same: leftmost-first alternation lets `a|ab` fail on `ab`.
///
/// # Errors
/// The regular expression does not compile.
pub(crate) fn whole(Pattern(pattern): &Pattern) -> Result<regex::Regex, regex::Error> {
    // A pattern in verbose mode may end in a comment, which the end of a line ends.
    regex::Regex::new(&format!("^(?:{pattern})$"))
        .or_else(|error| regex::Regex::new(&format!("^(?:{pattern}\n)$")).map_err(|_same| error))
}

fn header_holds(headers: &HeaderMap, name: &HeaderName, text: &Text) -> bool {
    let mut lines = headers.get_all(name).iter();
    let Some(first) = lines.next() else { return false };
    let Some(second) = lines.next() else {
        return std::str::from_utf8(first.as_bytes()).is_ok_and(|value| text.holds(value));
    };
    // Several lines are rare enough to build the value that they stand for.
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.push(b',');
        joined.extend_from_slice(HeaderValue::as_bytes(line));
    }
    std::str::from_utf8(&joined).is_ok_and(|value| text.holds(value))
}

/// Names and values are percent-decoded; `+` is a plus. Of several with the same name the first counts.
fn query_holds(query: Option<&str>, name: &str, text: &Text) -> bool {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let Some((_, value)) = { pairs }.find(|(key, _)| decoded(key).eq(name.bytes())) else { return false };
    match text {
        Text::Exact(exact) => decoded(value).eq(exact.bytes()),
        Text::Pattern(pattern) if !value.contains('%') => pattern.is_match(value),
        Text::Pattern(pattern) => {
            String::from_utf8(decoded(value).collect()).is_ok_and(|value| pattern.is_match(&value))
        }
    }
}

/// The bytes of a percent-encoded text.
fn decoded(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (first, tail) = rest.split_first()?;
        match (*first, escaped(tail)) {
            (b'%', Some(byte)) => {
                rest = &tail[2..];
                Some(byte)
            }
            (byte, _) => {
                rest = tail;
                Some(byte)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        let matches = |pattern: &str, text| whole(&Pattern(pattern.into())).unwrap().is_match(text);
        assert!(matches("/a|/ab", "/ab"));
        assert!(matches("/a|/ab", "/a"));
        assert!(!matches("/a|/ab", "/abc"));
        assert!(!matches("a", "ba"));
        assert!(matches("(?x) a b # both", "ab"));
        assert!(!matches("a", "a\n"));
    }

    #[test]
    fn first_query_parameter_of_a_name_counts_and_is_decoded() {
        let text = Text::Exact("a b".into());
        assert!(query_holds(Some("x=1&q=a%20b&q=c"), "q", &text));
        assert!(query_holds(Some("%71=a%20b"), "q", &text));
        assert!(!query_holds(Some("q=c&q=a%20b"), "q", &text));
        assert!(!query_holds(Some("Q=a%20b"), "q", &text));
        assert!(!query_holds(Some("q=a+b"), "q", &text));
        assert!(!query_holds(None, "q", &text));
        assert!(query_holds(Some("q"), "q", &Text::Exact("".into())));
        let pattern = Text::Pattern(whole(&Pattern("[a-c ]+".into())).unwrap());
        assert!(query_holds(Some("q=a%20b"), "q", &pattern));
        assert!(!query_holds(Some("q=a%20d"), "q", &pattern));
    }

    #[test]
    fn several_lines_of_a_header_count_as_one() {
        let mut headers = HeaderMap::new();
        headers.append("x", HeaderValue::from_static("a"));
        headers.append("x", HeaderValue::from_static("b"));
        let name = HeaderName::from_static("x");
        assert!(header_holds(&headers, &name, &Text::Exact("a,b".into())));
        assert!(!header_holds(&headers, &name, &Text::Exact("a".into())));
        assert!(!header_holds(&headers, &HeaderName::from_static("y"), &Text::Exact("a".into())));
    }
}
