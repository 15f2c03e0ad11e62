//! Hosts: what a request names, and a map from hostnames to what serves them.

use std::{collections::HashMap, fmt};

use crate::model::l7::Hostname;

/// Longest host that DNS can name.
const MAX_HOST: usize = 253;

/// The host of a request as routing compares it: lower case, without port and without the dot of the root.
///
/// Lives on the stack, since one is made for every request.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    bytes: [u8; MAX_HOST],
    len: u8,
}

impl Host {
    /// No host at all: HTTP/1.0 without a Host line. Only listeners and routes without hostnames serve it.
    pub(crate) const NONE: Self = Self { bytes: [0; MAX_HOST], len: 0 };

    /// Reads the value of a Host line or of `:authority`; none when it is not `host [":" port]` (RFC 9110 §7.2).
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let host = without_port(value)?;
        let host = host.strip_suffix(b".").unwrap_or(host);
        let mut parsed = Self::NONE;
        let target = parsed.bytes.get_mut(..host.len())?;
        for (to, from) in target.iter_mut().zip(host) {
            if !is_host_byte(*from) {
                return None;
            }
            *to = from.to_ascii_lowercase();
        }
        parsed.len = u8::try_from(host.len()).ok()?;
        Some(parsed)
    }

    pub(crate) fn as_str(&self) -> &str {
        // Only ASCII is let in, so there is no other case.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Cuts `:port`, also behind an IPv6 literal.
fn without_port(value: &[u8]) -> Option<&[u8]> {
    let colon = if value.first() == Some(&b'[') {
        let end = value.iter().position(|byte| *byte == b']')? + 1;
        match value.get(end) {
            None => return Some(value),
            Some(b':') => end,
            Some(_) => return None,
        }
    } else {
        match value.iter().position(|byte| *byte == b':') {
            None => return Some(value),
            Some(colon) => colon,
        }
    };
    value[colon + 1..].iter().all(u8::is_ascii_digit).then_some(&value[..colon])
}

/// Bytes of names, of addresses, and of the other registered names that are seen in practice (`_`, `*` never).
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':')
}

/// Values by hostname: exact names, wildcards, and one for every host.
#[derive(Debug)]
pub(crate) struct HostMap<T> {
    exact: HashMap<Box<str>, T>,
    /// By what follows `*.`.
    wildcard: HashMap<Box<str>, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), any: None }
    }
}

impl<T> HostMap<T> {
    /// The value of exactly this hostname, made by default when it is new.
    pub(crate) fn entry(&mut self, hostname: Option<&Hostname>) -> &mut T
    where
        T: Default,
    {
        match hostname {
            Some(Hostname::Exact(name)) => self.exact.entry(name.as_str().into()).or_default(),
            Some(Hostname::Wildcard(suffix)) => self.wildcard.entry(suffix.as_str().into()).or_default(),
            None => self.any.get_or_insert_default(),
        }
    }

    /// The values whose hostname fits `host`, the most specific first: the exact name, then wildcards from the
    /// longest to the shortest, then the one for every host. Allocates nothing.
    pub(crate) fn fitting<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a T> {
        let wildcards = (!self.wildcard.is_empty()).then_some(&self.wildcard);
        let suffixes = wildcards.into_iter().flat_map(move |map| {
            host.match_indices('.')
                .filter(|(dot, _)| *dot > 0)
                .filter_map(move |(dot, _)| map.get(&host[dot + 1..]))
        });
        self.exact.get(host).into_iter().chain(suffixes).chain(self.any.as_ref())
    }

    /// Every value, in no order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.exact.values_mut().chain(self.wildcard.values_mut()).chain(self.any.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_read_without_port_case_and_root_dot() {
        let rows: [(&str, Option<&str>); 14] = [
            ("example.com", Some("example.com")),
            ("EXAMPLE.com:8080", Some("example.com")),
            ("example.com.", Some("example.com")),
            ("example.com.:80", Some("example.com")),
            ("example.com:", Some("example.com")),
            ("198.18.0.1:80", Some("198.18.0.1")),
            ("[2001:DB8::1]:80", Some("[2001:db8::1]")),
            ("[2001:db8::1]", Some("[2001:db8::1]")),
            ("", Some("")),
            ("example.com:80x", None),
            ("user@example.com", None),
            ("exa mple.com", None),
            ("[::1", None),
            ("a/b", None),
        ];
        for (given, expected) in rows {
            let host = Host::parse(given.as_bytes());
            assert_eq!(host.as_ref().map(Host::as_str), expected, "{given}");
        }
        assert!(Host::parse(&[b'a'; 254]).is_none());
        assert!(Host::parse(&[b'a'; 253]).is_some());
    }

    #[test]
    fn fitting_goes_from_exact_over_longest_wildcard_to_any() {
        let mut map = HostMap::<&str>::default();
        *map.entry(None) = "any";
        *map.entry(Some(&Hostname::Wildcard("example.com".into()))) = "*.example.com";
        *map.entry(Some(&Hostname::Wildcard("b.example.com".into()))) = "*.b.example.com";
        *map.entry(Some(&Hostname::Exact("a.b.example.com".into()))) = "exact";
        let all = |host| map.fitting(host).copied().collect::<Vec<_>>();
        assert_eq!(all("a.b.example.com"), ["exact", "*.b.example.com", "*.example.com", "any"]);
        assert_eq!(all("x.y.b.example.com"), ["*.b.example.com", "*.example.com", "any"]);
        assert_eq!(all("b.example.com"), ["*.example.com", "any"]);
        assert_eq!(all("example.com"), ["any"]);
        assert_eq!(all(".example.com"), ["any"]);
        assert_eq!(all(""), ["any"]);
    }
}
