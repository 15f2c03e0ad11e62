//! Carrying out a plan.

use gateway_common::{
    Backend, Be16, Service,
    maps::{BACKEND_STATS, BACKENDS, SERVICE_STATS, SERVICES},
    table,
};

use super::{
    Kernel,
    error::Error,
    maps::{Maps, backend_value, service_key},
};
use crate::plan::{HeldBackend, HeldService, Ledger, Plan, Step, entries};

/// A step failed; those before it are done, those after it are not.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct ApplyError {
    /// The step, in words.
    pub step: String,
    /// What happened.
    pub source: Error,
}

impl Kernel {
    /// Carries out a plan, step by step.
    ///
    /// # Errors
    /// At the first step that fails. The ledger is true to what was done, so that planning again continues.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        for step in &plan.steps {
            self.maps
                .carry_out(step, &self.ledger)
                .map_err(|source| ApplyError { step: step.to_string(), source })?;
            self.ledger.apply(step);
        }
        Ok(())
    }
}

impl Maps {
    fn carry_out(&mut self, step: &Step, ledger: &Ledger) -> Result<(), Error> {
        match step {
            Step::AddBackend { id, backend, .. } => {
                let zeroes = self.zeroes()?;
                self.backend_stats.set(*id, zeroes, 0).map_err(Error::map(BACKEND_STATS))?;
                self.write_backend(*id, &backend_value(backend))
            }
            Step::UpdateBackend { id, source, .. } => match ledger.backend(*id) {
                Some(held) => {
                    self.write_backend(*id, &backend_value(&HeldBackend { source: *source, ..held.clone() }))
                }
                None => Ok(()),
            },
            // Both are of the ledger alone: the table says who gets new flows.
            Step::ReviveBackend { .. } | Step::DrainBackend { .. } => Ok(()),
            Step::SetTable { service, shares, .. } => {
                self.set_table(*service, &table::build(&entries(shares)))
            }
            Step::AddService { frontend, service } => {
                let zeroes = self.zeroes()?;
                self.service_stats.set(service.id, zeroes, 0).map_err(Error::map(SERVICE_STATS))?;
                self.services.insert(service_key(frontend), value(service), 0).map_err(Error::map(SERVICES))
            }
            Step::UpdateService { frontend, service } => {
                self.services.insert(service_key(frontend), value(service), 0).map_err(Error::map(SERVICES))
            }
            Step::RemoveService { frontend, .. } => {
                self.services.remove(&service_key(frontend)).map_err(Error::map(SERVICES))
            }
            // Flows that there are have their backends; new ones find nobody.
            Step::DrainService { service, .. } | Step::RemoveTable { service, .. } => {
                self.clear_table(*service)
            }
            Step::RemoveBackend { id, .. } => {
                // The port says that there is no such backend; the incarnation is the one that the next use gets,
                // so that it outlives the daemon and no flow of the old use has it.
                let incarnation = Be16::new(ledger.next_incarnation(*id));
                self.write_backend(*id, &Backend { incarnation, ..Backend::default() })
            }
        }
    }

    fn write_backend(&mut self, id: u32, value: &Backend) -> Result<(), Error> {
        self.backends.set(id, value, 0).map_err(Error::map(BACKENDS))
    }
}

/// Value of a service.
fn value(service: &HeldService) -> Service {
    Service { id: service.id, idle_ticks: service.idle_ticks }
}
