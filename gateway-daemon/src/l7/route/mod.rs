//! Routing: which rule answers a request.
//!
//! Compiled once, when a snapshot is published. A search goes listener by hostname, then route hostname, then path,
//! then the remaining conditions in the order of precedence; it allocates nothing for paths in canonical form.
//!
//! A request belongs to the one listener whose hostname fits most specifically, and never falls through to another.
//! Within the listener, rules of the most specific route hostname are tried first; when none of them matches, those
//! of less specific hostnames follow: the specification gives *precedence* to the former, it does not hide the latter.
//!
//! Not here: what a rule then does.

mod candidate;
mod grpc;
mod host;
mod path;

use http::{HeaderMap, Method};

use self::{
    candidate::{Candidate, Text, whole},
    grpc::GrpcTable,
    path::PathTable,
};
pub(crate) use self::{
    host::{Host, HostMap},
    path::canonical,
};
use crate::model::l7::{Hostname, Match, PathMatch, Rule, RuleKind};

/// What routing looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// As [`Host::as_str`] gives it.
    pub(crate) host: &'a str,
    /// In canonical form.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    /// Whether it is a gRPC request; only those meet rules of GRPCRoutes.
    pub(crate) grpc: bool,
}

/// A rule that matched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    /// The rule, as an index into those of the listener.
    pub(crate) rule: usize,
    /// Bytes of the canonical path that a prefix match took; all of them for other matches.
    pub(crate) prefix_len: usize,
}

/// The rules of a listener, ready to be searched.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    hosts: HostMap<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    http: PathTable,
    grpc: GrpcTable,
}

impl RouteTable {
    /// Compiles the rules of a listener. A match whose regular expression does not compile is left out and said.
    pub(crate) fn compile(rules: &[Rule]) -> Self {
        let mut table = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            for conditions in &rule.matches {
                let hosts = rule.hostnames.iter().map(Some).chain(rule.hostnames.is_empty().then_some(None));
                for host in hosts {
                    if let Err(error) = table.insert(index, rule.kind, host, conditions) {
                        tracing::error!(rule = %rule.name, %error, "match left out");
                    }
                }
            }
        }
        for rules in table.hosts.values_mut() {
            rules.http.sort();
            rules.grpc.sort();
        }
        table
    }

    fn insert(
        &mut self,
        rule: usize,
        kind: RuleKind,
        host: Option<&Hostname>,
        conditions: &Match,
    ) -> Result<(), regex::Error> {
        let candidate = Candidate::compile(rule, kind, conditions)?;
        let rules = self.hosts.entry(host);
        match (&conditions.path, kind) {
            (PathMatch::Exact(path), RuleKind::Grpc) => rules.grpc.insert_exact(path, candidate),
            (PathMatch::Exact(path), RuleKind::Http) => rules.http.insert_exact(path, candidate),
            (PathMatch::Grpc { service, method }, _) => {
                let compile = |text: &Option<_>| text.as_ref().map(Text::compile).transpose();
                rules.grpc.insert(compile(service)?, compile(method)?, candidate);
            }
            (PathMatch::Prefix(prefix), RuleKind::Grpc) if prefix.is_empty() => {
                rules.grpc.insert(None, None, candidate);
            }
            (PathMatch::Prefix(prefix), _) => rules.http.insert_prefix(prefix, candidate),
            (PathMatch::Regex(pattern), _) => rules.http.insert_pattern(whole(pattern)?, candidate),
        }
        Ok(())
    }

    /// The rule that answers, if any. gRPC requests meet the rules of GRPCRoutes before those of HTTPRoutes with the
    /// same hostname.
    pub(crate) fn find(&self, facts: &Facts<'_>) -> Option<Found> {
        self.hosts.fitting(facts.host).find_map(|rules| {
            if facts.grpc
                && let Some(found) = rules.grpc.find(facts.path, |one| one.holds(facts))
            {
                return Some(Found { rule: found.rule, prefix_len: facts.path.len() });
            }
            let found = rules.http.find(facts.path, |one| one.holds(facts));
            found.map(|(one, prefix_len)| Found { rule: one.rule, prefix_len })
        })
    }
}

#[cfg(test)]
mod tests;
