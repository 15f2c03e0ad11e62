//! The maps that the daemon reads and writes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use aya::{
    Ebpf, Pod,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues},
    util::nr_cpus,
};
use gateway_common::{
    Addr, Backend, Be16, Config, Count, Device, REFUSE, Service, ServiceCount, ServiceKey, TABLE_SLOTS, TCP,
    UDP,
    maps::{
        BACKEND_STATS, BACKENDS, CONFIG, COUNTERS, DEVICES, MAX_BACKENDS, SERVICE_STATS, SERVICES, TABLES,
    },
};

use super::error::Error;
use crate::{
    model::l4::{Frontend, Protocol},
    plan::{HeldBackend, HeldService, Ledger, State},
};

/// A table as the one value of its inner map.
type Slots = [u32; TABLE_SLOTS as usize];
/// The map of one table.
type Table = Array<MapData, Slots>;

/// Handles of the maps.
pub(super) struct Maps {
    pub(super) services: HashMap<MapData, ServiceKey, Service>,
    tables: ArrayOfMaps<MapData, Table>,
    pub(super) backends: Array<MapData, Backend>,
    devices: HashMap<MapData, u32, Device>,
    config: Array<MapData, Config>,
    pub(super) counters: PerCpuArray<MapData, Count>,
    pub(super) service_stats: PerCpuArray<MapData, ServiceCount>,
    pub(super) backend_stats: PerCpuArray<MapData, ServiceCount>,
    /// The table of services that have none, made when it is needed.
    refusing: Option<Table>,
    cpus: usize,
}

impl Maps {
    /// Takes them from the loaded object.
    pub(super) fn take(object: &mut Ebpf) -> Result<Self, Error> {
        Ok(Self {
            services: take(object, SERVICES)?,
            tables: take(object, TABLES)?,
            backends: take(object, BACKENDS)?,
            devices: take(object, DEVICES)?,
            config: take(object, CONFIG)?,
            counters: take(object, COUNTERS)?,
            service_stats: take(object, SERVICE_STATS)?,
            backend_stats: take(object, BACKEND_STATS)?,
            refusing: None,
            cpus: nr_cpus().map_err(|(_, error)| Error::Cpus(error))?,
        })
    }

    pub(super) fn config(&self) -> Result<Config, Error> {
        self.config.get(&0, 0).map_err(Error::map(CONFIG))
    }

    pub(super) fn set_config(&mut self, config: &Config) -> Result<(), Error> {
        self.config.set(0, config, 0).map_err(Error::map(CONFIG))
    }

    /// Makes the map hold these devices and no others.
    pub(super) fn set_devices(&mut self, devices: &BTreeMap<u32, Device>) -> Result<(), Error> {
        let held: BTreeMap<u32, Device> =
            self.devices.iter().collect::<Result<_, _>>().map_err(Error::map(DEVICES))?;
        for index in held.keys().filter(|index| !devices.contains_key(index)) {
            self.devices.remove(index).map_err(Error::map(DEVICES))?;
        }
        for (index, device) in devices {
            if held.get(index) != Some(device) {
                self.devices.insert(index, device, 0).map_err(Error::map(DEVICES))?;
            }
        }
        Ok(())
    }

    /// A zero for every CPU.
    pub(super) fn zeroes<V: Pod + Default>(&self) -> Result<PerCpuValues<V>, Error> {
        PerCpuValues::try_from(vec![V::default(); self.cpus]).map_err(Error::Cpus)
    }

    /// What adopted maps hold. Names, listeners and shares are not in them.
    pub(super) fn read_ledger(&self) -> Result<Ledger, Error> {
        let mut services = Vec::new();
        for entry in &self.services {
            let (key, service) = entry.map_err(Error::map(SERVICES))?;
            if let Some(frontend) = frontend(key) {
                let held = HeldService {
                    id: service.id,
                    name: None,
                    listener: None,
                    idle_ticks: service.idle_ticks,
                    state: State::Active,
                };
                services.push((frontend, held));
            }
        }
        let mut backends = Vec::new();
        let mut incarnations = Vec::new();
        for id in 1..MAX_BACKENDS {
            let value = self.backends.get(&id, 0).map_err(Error::map(BACKENDS))?;
            if value.port.host() != 0 {
                backends.push((id, held_backend(&value)));
            } else if value.incarnation.host() != 0 {
                incarnations.push((id, value.incarnation.host()));
            }
        }
        Ok(Ledger::adopt(services, backends, incarnations))
    }

    /// Publishes a whole table by one update.
    ///
    /// When it returns, no program is still looking at the table before: the kernel waits for them when an inner
    /// map is replaced (`maybe_wait_bpf_programs` in its kernel/bpf/syscall.c).
    pub(super) fn set_table(&mut self, service: u32, slots: &[u32]) -> Result<(), Error> {
        let table = new_table(slots)?;
        self.tables.set(service, &table, 0).map_err(Error::map(TABLES))
    }

    /// Gives a service id the one table that refuses everything, which frees the table that it had.
    pub(super) fn clear_table(&mut self, service: u32) -> Result<(), Error> {
        let refusing = match self.refusing.take() {
            Some(table) => table,
            None => new_table(&vec![REFUSE; TABLE_SLOTS as usize])?,
        };
        let refusing = self.refusing.insert(refusing);
        self.tables.set(service, refusing, 0).map_err(Error::map(TABLES))
    }
}

/// A table of its own, not yet seen by any program.
fn new_table(slots: &[u32]) -> Result<Table, Error> {
    let mut table = Table::create(1, 0).map_err(Error::map(TABLES))?;
    let slots: &Slots =
        slots.try_into().map_err(|_wrong_length| Error::TableLength { slots: slots.len() })?;
    table.set(0, slots, 0).map_err(Error::map(TABLES))?;
    Ok(table)
}

/// Key of a frontend.
pub(super) fn service_key(frontend: &Frontend) -> ServiceKey {
    ServiceKey {
        address: Addr::from(frontend.address),
        port: Be16::new(frontend.port),
        protocol: match frontend.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
        },
        pad: 0,
    }
}

/// Value of a backend.
pub(super) fn backend_value(backend: &HeldBackend) -> Backend {
    let unspecified = match backend.address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Backend {
        address: Addr::from(backend.address.ip()),
        source: Addr::from(backend.source.unwrap_or(unspecified)),
        port: Be16::new(backend.address.port()),
        incarnation: Be16::new(backend.incarnation),
        service: backend.service,
    }
}

fn held_backend(value: &Backend) -> HeldBackend {
    let source = IpAddr::from(value.source);
    HeldBackend {
        service: value.service,
        address: SocketAddr::new(value.address.into(), value.port.host()),
        source: (!source.is_unspecified()).then_some(source),
        incarnation: value.incarnation.host(),
        state: State::Active,
    }
}

fn frontend(key: ServiceKey) -> Option<Frontend> {
    let protocol = match key.protocol {
        TCP => Protocol::Tcp,
        UDP => Protocol::Udp,
        _ => return None,
    };
    Some(Frontend { address: key.address.into(), port: key.port.host(), protocol })
}

fn take<M: TryFrom<Map, Error = MapError>>(object: &mut Ebpf, name: &'static str) -> Result<M, Error> {
    let map = object.take_map(name).ok_or(Error::MissingMap { map: name })?;
    M::try_from(map).map_err(Error::map(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_go_there_and_back() {
        for (address, backend, source) in [
            ("198.18.0.1", "198.18.1.1:80", Some("198.18.1.254")),
            ("2001:db8::1", "[2001:db8::2]:443", Some("2001:db8::3")),
            ("198.18.0.1", "198.18.1.1:80", None),
            ("2001:db8::1", "[2001:db8::2]:443", None),
        ] {
            let key = Frontend { address: address.parse().unwrap(), port: 53, protocol: Protocol::Udp };
            assert_eq!(frontend(service_key(&key)), Some(key));

            let held = HeldBackend {
                service: 7,
                address: backend.parse().unwrap(),
                source: source.map(|source| source.parse().unwrap()),
                incarnation: 65_535,
                state: State::Active,
            };
            assert_eq!(held_backend(&backend_value(&held)), held);
        }
    }
}
