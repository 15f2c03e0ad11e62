//! The difference between what the kernel holds and what a model asks for, as ordered steps.
//!
//! [`Ledger`] + model services -> [`plan`] -> [`Plan`]; `l4` carries a plan out and notes each step done in the
//! ledger with [`Ledger::apply`]. A step leaves the kernel whole, so a packet between two steps sees either the old
//! or the new: backends come before the table that names them, and a table before its service; they go in the
//! opposite order.
//!
//! A backend that leaves a service gets no new flow from the moment its service's table is swapped; its entry
//! stays for the drain timeout, so that its old flows live on, and then goes, so that what is left of them is reset.
//! A service that leaves refuses new flows in the same way, and goes with its backends.
//!
//! Not here: maps and system calls (`l4`), clocks (the caller says what time it is), routes (`net` finds [`Sources`]).

mod ledger;
mod sources;
mod step;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use gateway_common::maps::{MAX_BACKENDS, MAX_SERVICES};

pub use self::{
    ledger::{HeldBackend, HeldService, Ledger, State},
    sources::Sources,
    step::{Plan, Step, TableShare, entries},
};
use crate::model::l4::{Protocol, Service};

/// Why a model cannot be brought into the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// `gw_services` and `gw_tables` have no room.
    #[error("more than {} TCP and UDP listeners: the kernel's tables hold no more", MAX_SERVICES - 1)]
    TooManyServices,
    /// `gw_backends` has no room.
    #[error(
        "more than {} backends of TCP and UDP listeners, those draining included: the kernel's tables hold no more",
        MAX_BACKENDS - 1
    )]
    TooManyBackends,
}

/// Plans the way from `ledger` to `services`.
///
/// `now` is any clock that does not jump, the same at every call; services and backends that leave drain until
/// `now + drain_timeout`. A service whose socket is one of `proxied`, those of the proxy, leaves at once.
///
/// # Errors
/// When the kernel has no room for the model; nothing of it is planned then.
pub fn plan(
    ledger: &Ledger,
    services: &[Service],
    sources: &Sources,
    proxied: &BTreeSet<SocketAddr>,
    now: Duration,
    drain_timeout: Duration,
) -> Result<Plan, Error> {
    let mut draft = Draft::new(ledger, sources);
    for service in services {
        draft.place(service)?;
    }
    let removed = draft.retire_services(proxied, now, now + drain_timeout);
    draft.retire_backends(&removed, now, now + drain_timeout);
    Ok(Plan { steps: draft.steps.into_iter().flatten().collect() })
}

/// The stages of a plan, in the order in which they are carried out.
#[derive(Clone, Copy)]
enum Stage {
    Backends,
    Tables,
    Services,
    ServiceRemovals,
    TableRemovals,
    BackendRemovals,
}

/// A plan in the making.
struct Draft<'a> {
    ledger: &'a Ledger,
    sources: &'a Sources,
    steps: [Vec<Step>; 6],
    /// Ledger's backends by service id and address.
    held: BTreeMap<(u32, SocketAddr), u32>,
    /// Ids of services and backends that the model asks for.
    services: BTreeSet<u32>,
    backends: BTreeSet<u32>,
    free_services: FreeIds,
    free_backends: FreeIds,
}

impl<'a> Draft<'a> {
    fn new(ledger: &'a Ledger, sources: &'a Sources) -> Self {
        Self {
            ledger,
            sources,
            steps: Default::default(),
            held: ledger.backends().map(|(id, backend)| ((backend.service, backend.address), id)).collect(),
            services: BTreeSet::new(),
            backends: BTreeSet::new(),
            free_services: FreeIds::new(MAX_SERVICES),
            free_backends: FreeIds::new(MAX_BACKENDS),
        }
    }

    fn push(&mut self, stage: Stage, step: Step) {
        self.steps[stage as usize].push(step);
    }

    /// Makes one service as the model wants it.
    fn place(&mut self, service: &Service) -> Result<(), Error> {
        let held = self.ledger.service(&service.frontend);
        let id = match held {
            Some(held) => held.id,
            None => {
                self.free_services.take(|id| self.ledger.has_service_id(id)).ok_or(Error::TooManyServices)?
            }
        };
        self.services.insert(id);

        let shares = self.place_backends(id, service)?;
        // The shares behind an adopted table, or one left by a service that is gone, are not known.
        let known = held.and_then(|held| self.ledger.table(held.id));
        if known != Some(&shares) {
            self.push(Stage::Tables, Step::SetTable { frontend: service.frontend, service: id, shares });
        }

        let wanted = HeldService::new(id, service);
        if held.is_none() {
            self.push(Stage::Services, Step::AddService { frontend: service.frontend, service: wanted });
        } else if held != Some(&wanted) {
            self.push(Stage::Services, Step::UpdateService { frontend: service.frontend, service: wanted });
        }
        Ok(())
    }

    /// Makes the backends of one service; what comes back is its table's content, refused shares merged.
    fn place_backends(&mut self, service: u32, model: &Service) -> Result<Vec<TableShare>, Error> {
        let mut shares = Vec::with_capacity(model.shares.len());
        let mut refused = 0_u64;
        for share in &model.shares {
            if let Some(address) = share.backend {
                let id = self.place_backend(service, model, address)?;
                shares.push(TableShare { backend: Some((id, address)), weight: share.weight });
            } else {
                refused = refused.saturating_add(share.weight);
            }
        }
        if refused > 0 {
            shares.push(TableShare { backend: None, weight: refused });
        }
        Ok(shares)
    }

    fn place_backend(&mut self, service: u32, model: &Service, address: SocketAddr) -> Result<u32, Error> {
        let Some(id) = self.held.get(&(service, address)).copied() else {
            let taken = |id| self.ledger.backend(id).is_some();
            let id = self.free_backends.take(taken).ok_or(Error::TooManyBackends)?;
            let backend = HeldBackend {
                service,
                address,
                source: self.sources.choose(address.ip(), None),
                incarnation: self.ledger.next_incarnation(id),
                state: State::Active,
            };
            self.backends.insert(id);
            self.push(Stage::Backends, Step::AddBackend { frontend: model.frontend, id, backend });
            return Ok(id);
        };
        self.backends.insert(id);
        // The index was made from the ledger, which is borrowed for as long.
        if let Some(held) = self.ledger.backend(id) {
            let source = self.sources.choose(address.ip(), held.source);
            if source != held.source {
                self.push(Stage::Backends, Step::UpdateBackend { id, address, source });
            }
            if held.state != State::Active {
                self.push(Stage::Backends, Step::ReviveBackend { id, address });
            }
        }
        Ok(id)
    }

    /// Takes away the services that the model does not ask for; those that do not drain are given back.
    fn retire_services(
        &mut self,
        proxied: &BTreeSet<SocketAddr>,
        now: Duration,
        drain_until: Duration,
    ) -> BTreeSet<u32> {
        let with_backends: BTreeSet<u32> = self.held.keys().map(|(service, _)| *service).collect();
        let mut removed = BTreeSet::new();
        for (frontend, held) in self.ledger.services() {
            if self.services.contains(&held.id) {
                continue;
            }
            let is_proxied = frontend.protocol == Protocol::Tcp
                && proxied.contains(&SocketAddr::new(frontend.address, frontend.port));
            let (frontend, service) = (*frontend, held.id);
            match held.state {
                State::Draining { until } if until > now && !is_proxied => {}
                State::Active if with_backends.contains(&service) && !is_proxied => {
                    self.push(Stage::Tables, Step::DrainService { frontend, service, until: drain_until });
                }
                _ => {
                    let name = held.name.clone();
                    self.push(Stage::ServiceRemovals, Step::RemoveService { frontend, name });
                    self.push(Stage::TableRemovals, Step::RemoveTable { frontend, service });
                    removed.insert(service);
                }
            }
        }
        removed
    }

    /// Takes away the backends that the model does not ask for, at once those of services that are removed.
    fn retire_backends(&mut self, removed: &BTreeSet<u32>, now: Duration, drain_until: Duration) {
        for (id, held) in self.ledger.backends() {
            if self.backends.contains(&id) {
                continue;
            }
            let address = held.address;
            let step = match held.state {
                _ if removed.contains(&held.service) => Step::RemoveBackend { id, address },
                State::Active => Step::DrainBackend { id, address, until: drain_until },
                State::Draining { until } if until <= now => Step::RemoveBackend { id, address },
                State::Draining { .. } => continue,
            };
            self.push(Stage::BackendRemovals, step);
        }
    }
}

/// Hands out the lowest ids that are not taken, from 1.
struct FreeIds {
    next: u32,
    end: u32,
}

impl FreeIds {
    fn new(end: u32) -> Self {
        Self { next: 1, end }
    }

    fn take(&mut self, taken: impl Fn(u32) -> bool) -> Option<u32> {
        let id = (self.next..self.end).find(|id| !taken(*id))?;
        self.next = id + 1;
        Some(id)
    }
}
