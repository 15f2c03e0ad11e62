//! gRPC methods: candidates by service and method.

use std::collections::HashMap;

use super::candidate::{Candidate, Text};

/// Candidates of GRPCRoutes, in the order of precedence: service and method exact; service exact; service by regular
/// expression; method only. Among equal services a method that is given goes first, exact before pattern.
#[derive(Debug, Default)]
pub(crate) struct GrpcTable {
    /// By the whole path.
    exact: HashMap<Box<str>, Vec<Candidate>>,
    by_service: HashMap<Box<str>, Vec<(Option<Text>, Candidate)>>,
    /// Where the service is a pattern.
    patterns: Vec<(Text, Option<Text>, Candidate)>,
    /// Where no service is given.
    by_method: HashMap<Box<str>, Vec<Candidate>>,
    method_patterns: Vec<(Text, Candidate)>,
    /// Those that match everything.
    any: Vec<Candidate>,
}

impl GrpcTable {
    pub(crate) fn insert_exact(&mut self, path: &str, candidate: Candidate) {
        self.exact.entry(path.into()).or_default().push(candidate);
    }

    pub(crate) fn insert(&mut self, service: Option<Text>, method: Option<Text>, candidate: Candidate) {
        match (service, method) {
            (Some(Text::Exact(service)), method) => {
                self.by_service.entry(service).or_default().push((method, candidate));
            }
            (Some(pattern), method) => self.patterns.push((pattern, method, candidate)),
            (None, Some(Text::Exact(method))) => {
                self.by_method.entry(method).or_default().push(candidate);
            }
            (None, Some(pattern)) => self.method_patterns.push((pattern, candidate)),
            (None, None) => self.any.push(candidate),
        }
    }

    /// Brings candidates of equal services and methods into the order of precedence.
    pub(crate) fn sort(&mut self) {
        for candidates in self.exact.values_mut().chain(self.by_method.values_mut()) {
            candidates.sort_by_key(Candidate::precedence);
        }
        for candidates in self.by_service.values_mut() {
            candidates.sort_by_key(|(method, one)| (rank(method.as_ref()), one.precedence()));
        }
        self.patterns.sort_by_key(|(_, method, one)| (rank(method.as_ref()), one.precedence()));
        self.method_patterns.sort_by_key(|(_, one)| one.precedence());
        self.any.sort_by_key(Candidate::precedence);
    }

    /// The first candidate that `holds`, in the order of precedence.
    pub(crate) fn find(&self, path: &str, holds: impl Fn(&Candidate) -> bool) -> Option<&Candidate> {
        if let Some(found) = self.exact.get(path).and_then(|all| all.iter().find(|one| holds(one))) {
            return Some(found);
        }
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let fits = |text: &Option<Text>| text.as_ref().is_none_or(|text| text.holds(method));
        if let Some(candidates) = self.by_service.get(service) {
            let found = candidates.iter().find(|(text, one)| fits(text) && holds(one));
            if let Some((_, found)) = found {
                return Some(found);
            }
        }
        let found = self
            .patterns
            .iter()
            .find(|(pattern, text, one)| pattern.holds(service) && fits(text) && holds(one));
        if let Some((_, _, found)) = found {
            return Some(found);
        }
        if let Some(found) = self.by_method.get(method).and_then(|all| all.iter().find(|one| holds(one))) {
            return Some(found);
        }
        let found = self.method_patterns.iter().find(|(pattern, one)| pattern.holds(method) && holds(one));
        found.map(|(_, found)| found).or_else(|| self.any.iter().find(|one| holds(one)))
    }
}

/// Exact before pattern before none.
fn rank(text: Option<&Text>) -> u8 {
    match text {
        Some(Text::Exact(_)) => 0,
        Some(Text::Pattern(_)) => 1,
        None => 2,
    }
}
