//! Cross serving: of an HTTPRoute and a GRPCRoute that would serve the same host of a listener, the later is refused.
//!
//! A client of gRPC must not get answers that were meant for browsers, and the reverse. Which route is later is told by
//! the usual order of precedence, so a route that was refused is accepted once the earlier one is gone.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Context,
    attach::{Attachment, Parent, covers},
    status::{HOSTNAME_CONFLICT, Problem},
};
use crate::{
    api::{Kind, Object},
    model::l7::Hostname,
};

/// Who serves which hosts, by Gateway and listener, then by kind of route.
#[derive(Debug, Default)]
pub(super) struct CrossServing {
    listeners: BTreeMap<(usize, usize), BTreeMap<&'static str, Hosts>>,
}

/// The hosts of the routes of one kind, each with the route that was first.
#[derive(Debug, Default)]
struct Hosts {
    /// A route for all hosts of the listener.
    all: Option<Arc<str>>,
    some: BTreeMap<Hostname, Arc<str>>,
}

impl CrossServing {
    /// Refuses a route where one of the other kind has a host of it; elsewhere it takes its hosts.
    pub(super) fn admit<S: Kind>(&mut self, cx: &mut Context<'_>, route: &Object<S>, parents: &mut [Parent]) {
        let title: Arc<str> = route.title().into();
        for (index, parent) in parents.iter_mut().enumerate() {
            let Ok(attachments) = &parent.outcome else { continue };
            if let Some(rival) = attachments.iter().find_map(|at| self.rival::<S>(at)) {
                let message = format!(
                    "{rival} is older or first by name and serves a hostname of this route: give one of them another \
                     hostname, or write both as HTTPRoutes"
                );
                let problem = Problem::new(HOSTNAME_CONFLICT, message);
                cx.error(route, &format!("spec.parentRefs[{index}]"), &problem);
                parent.outcome = Err(problem);
                continue;
            }
            for at in attachments {
                let kinds = self.listeners.entry((at.gateway, at.listener)).or_default();
                kinds.entry(S::KIND).or_default().take(&at.hostnames, &title);
            }
        }
    }

    fn rival<S: Kind>(&self, at: &Attachment) -> Option<&str> {
        let kinds = self.listeners.get(&(at.gateway, at.listener))?;
        kinds
            .iter()
            .filter(|(kind, _)| **kind != S::KIND)
            .find_map(|(_, hosts)| hosts.in_common(&at.hostnames))
    }
}

impl Hosts {
    fn take(&mut self, hostnames: &[Hostname], route: &Arc<str>) {
        if hostnames.is_empty() {
            self.all.get_or_insert_with(|| Arc::clone(route));
        }
        for hostname in hostnames {
            self.some.entry(hostname.clone()).or_insert_with(|| Arc::clone(route));
        }
    }

    /// The route that has one of these hosts; of none, any host.
    fn in_common(&self, hostnames: &[Hostname]) -> Option<&str> {
        let found = self.all.as_ref().or_else(|| {
            if hostnames.is_empty() {
                return self.some.values().next();
            }
            hostnames.iter().find_map(|hostname| self.overlapping(hostname))
        });
        found.map(|route| &**route)
    }

    fn overlapping(&self, hostname: &Hostname) -> Option<&Arc<str>> {
        match hostname {
            // By lookups, since there may be thousands of names.
            Hostname::Exact(name) => self.some.get(hostname).or_else(|| {
                let suffixes = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
                suffixes
                    .map(|suffix| Hostname::Wildcard(suffix.to_owned()))
                    .find_map(|wildcard| self.some.get(&wildcard))
            }),
            Hostname::Wildcard(_) => self
                .some
                .iter()
                .find(|(other, _)| covers(hostname, other) || covers(other, hostname))
                .map(|(_, route)| route),
        }
    }
}
