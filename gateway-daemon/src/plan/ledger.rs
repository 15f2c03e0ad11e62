//! What the kernel holds, as far as the daemon has brought it there or adopted it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use gateway_common::seconds_to_ticks;

use super::step::{Step, TableShare};
use crate::model::{
    ListenerName,
    l4::{Frontend, Service},
};

/// Services, tables and backends in the kernel's maps, by the ids they have there.
///
/// Only [`apply`](Self::apply) changes it, one step done at a time, so that it stays true when a plan breaks off.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ledger {
    services: BTreeMap<Frontend, HeldService>,
    /// Ids in `services`.
    service_ids: BTreeSet<u32>,
    /// What each table was built from; a table that was adopted is not here.
    tables: BTreeMap<u32, Vec<TableShare>>,
    backends: BTreeMap<u32, HeldBackend>,
    /// The incarnation that the next use of an id gets, for ids that were used before.
    incarnations: BTreeMap<u32, u16>,
}

/// One entry of `gw_services`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldService {
    /// Service id.
    pub id: u32,
    /// Its name; none while no route is attached, or after adoption until the first plan.
    pub name: Option<String>,
    /// Its listener; none after adoption until the first plan.
    pub listener: Option<ListenerName>,
    /// Idle timeout in the kernel's ticks.
    pub idle_ticks: u32,
    /// Whether a listener still asks for it. Not in the kernel: an adopted service is active until planned.
    pub state: State,
}

impl HeldService {
    pub(super) fn new(id: u32, service: &Service) -> Self {
        let seconds = service.idle_timeout.as_millis().div_ceil(1_000);
        Self {
            id,
            name: service.name.clone(),
            listener: Some(service.listener.clone()),
            // A timeout of more than a century may as well be one of a century.
            idle_ticks: seconds_to_ticks(u32::try_from(seconds).unwrap_or(u32::MAX)),
            state: State::Active,
        }
    }
}

/// One entry of `gw_backends`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldBackend {
    /// Id of the one service it belongs to.
    pub service: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// This node's address towards it; none while there is no route.
    pub source: Option<IpAddr>,
    /// Which use of its id this is, from 1.
    pub incarnation: u16,
    /// Whether its service still asks for it. Not in the kernel: an adopted backend is active until planned.
    pub state: State,
}

/// Whether the model asks for a service, or a service for its backend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It does, if with no weight.
    Active,
    /// It does not, and old flows have until then, on the clock that [`super::plan()`] is told the time of.
    Draining {
        /// End of the drain timeout.
        until: Duration,
    },
}

impl State {
    /// End of the drain timeout, while it drains.
    pub fn until(self) -> Option<Duration> {
        match self {
            Self::Active => None,
            Self::Draining { until } => Some(until),
        }
    }
}

impl Ledger {
    /// The ledger of adopted maps. `incarnations` are those that the next uses of unused ids get.
    pub fn adopt(
        services: impl IntoIterator<Item = (Frontend, HeldService)>,
        backends: impl IntoIterator<Item = (u32, HeldBackend)>,
        incarnations: impl IntoIterator<Item = (u32, u16)>,
    ) -> Self {
        let services: BTreeMap<_, _> = services.into_iter().collect();
        Self {
            service_ids: services.values().map(|service| service.id).collect(),
            services,
            tables: BTreeMap::new(),
            backends: backends.into_iter().collect(),
            incarnations: incarnations.into_iter().collect(),
        }
    }

    /// Notes that a step has been done.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::AddBackend { id, backend, .. } => {
                self.incarnations.remove(id);
                self.backends.insert(*id, backend.clone());
            }
            Step::UpdateBackend { id, source, .. } => self.change(*id, |backend| backend.source = *source),
            Step::ReviveBackend { id, .. } => self.change(*id, |backend| backend.state = State::Active),
            Step::SetTable { service, shares, .. } => {
                self.tables.insert(*service, shares.clone());
            }
            Step::AddService { frontend, service } | Step::UpdateService { frontend, service } => {
                self.service_ids.insert(service.id);
                self.services.insert(*frontend, service.clone());
            }
            Step::DrainService { frontend, service, until } => {
                self.tables.remove(service);
                if let Some(held) = self.services.get_mut(frontend) {
                    held.state = State::Draining { until: *until };
                }
            }
            Step::RemoveService { frontend, .. } => {
                if let Some(service) = self.services.remove(frontend) {
                    self.service_ids.remove(&service.id);
                }
            }
            Step::RemoveTable { service, .. } => {
                self.tables.remove(service);
            }
            Step::DrainBackend { id, until, .. } => {
                self.change(*id, |backend| backend.state = State::Draining { until: *until });
            }
            Step::RemoveBackend { id, .. } => {
                if let Some(backend) = self.backends.remove(id) {
                    self.incarnations.insert(*id, following(backend.incarnation));
                }
            }
        }
    }

    /// Services by frontend.
    pub fn services(&self) -> impl Iterator<Item = (&Frontend, &HeldService)> {
        self.services.iter()
    }

    /// Backends by id, those draining included.
    pub fn backends(&self) -> impl Iterator<Item = (u32, &HeldBackend)> {
        self.backends.iter().map(|(id, backend)| (*id, backend))
    }

    /// The service of a frontend.
    pub fn service(&self, frontend: &Frontend) -> Option<&HeldService> {
        self.services.get(frontend)
    }

    /// The backend with an id.
    pub fn backend(&self, id: u32) -> Option<&HeldBackend> {
        self.backends.get(&id)
    }

    /// What the table of a service was built from; none when it was adopted.
    pub fn table(&self, service: u32) -> Option<&Vec<TableShare>> {
        self.tables.get(&service)
    }

    /// The incarnation that the next backend with this id gets; where the id is in use, the one after its own.
    pub fn next_incarnation(&self, id: u32) -> u16 {
        match self.backends.get(&id) {
            Some(backend) => following(backend.incarnation),
            None => self.incarnations.get(&id).copied().unwrap_or(1),
        }
    }

    /// When the next drain timeout ends and the model should be planned again.
    pub fn next_deadline(&self) -> Option<Duration> {
        let states = self.services.values().map(|service| service.state);
        let states = states.chain(self.backends.values().map(|backend| backend.state));
        states.filter_map(State::until).min()
    }

    pub(super) fn has_service_id(&self, id: u32) -> bool {
        self.service_ids.contains(&id)
    }

    fn change(&mut self, id: u32, change: impl FnOnce(&mut HeldBackend)) {
        if let Some(backend) = self.backends.get_mut(&id) {
            change(backend);
        }
    }
}

/// Counts on from an incarnation; zero, which no flow has, is left out.
fn following(incarnation: u16) -> u16 {
    incarnation.checked_add(1).unwrap_or(1)
}
