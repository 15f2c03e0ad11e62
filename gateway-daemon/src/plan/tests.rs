use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use gateway_common::{REFUSE, TABLE_SLOTS, table};
use proptest::prelude::*;

use super::*;
use crate::model::{
    ListenerName,
    l4::{Frontend, Protocol, Share},
};

const DRAIN: Duration = Duration::from_secs(300);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn frontend(port: u16) -> Frontend {
    Frontend { address: "198.18.0.1".parse().unwrap(), port, protocol: Protocol::Tcp }
}

/// A service on a port; backends are `198.18.1.N:80`, 0 is a refused share.
fn service(port: u16, shares: &[(u8, u64)]) -> Service {
    let mut shares: Vec<_> = shares
        .iter()
        .map(|(host, weight)| Share {
            backend: (*host > 0).then(|| address(&format!("198.18.1.{host}:80"))),
            weight: *weight,
        })
        .collect();
    shares.sort_by_key(|share| share.backend);
    Service {
        frontend: frontend(port),
        listener: ListenerName {
            namespace: "default".into(),
            gateway: "gateway".into(),
            listener: port.to_string(),
        },
        name: (!shares.is_empty()).then(|| format!("tcproute.default.{port}.0")),
        idle_timeout: Duration::from_secs(60),
        shares,
    }
}

fn sources() -> Sources {
    let node: IpAddr = "198.18.1.254".parse().unwrap();
    Sources {
        preferred: (1..=20).map(|host| (IpAddr::from([198, 18, 1, host]), node)).collect(),
        local: [node].into(),
    }
}

/// Plans and carries out, checking the kernel after each step.
fn carry_out(ledger: &mut Ledger, kernel: &mut FakeKernel, model: &[Service], now: u64) -> Plan {
    let plan = plan(ledger, model, &sources(), &BTreeSet::new(), Duration::from_secs(now), DRAIN).unwrap();
    for step in &plan.steps {
        kernel.carry_out(step);
        kernel.check(step);
        ledger.apply(step);
    }
    plan
}

/// What a packet would find.
#[derive(Default)]
struct FakeKernel {
    services: BTreeMap<Frontend, u32>,
    tables: BTreeMap<u32, BTreeSet<u32>>,
    backends: BTreeMap<u32, (SocketAddr, u16)>,
    /// The last incarnation of every id ever used.
    incarnations: BTreeMap<u32, u16>,
}

impl FakeKernel {
    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::AddBackend { id, backend, .. } => {
                assert!((1..MAX_BACKENDS).contains(id));
                let before = self.backends.insert(*id, (backend.address, backend.incarnation));
                assert_eq!(before, None, "{step}: the id is in use");
                let last = self.incarnations.insert(*id, backend.incarnation);
                assert_ne!(
                    last,
                    Some(backend.incarnation),
                    "{step}: a flow of the id's last use would be taken on"
                );
            }
            Step::UpdateBackend { id, .. }
            | Step::ReviveBackend { id, .. }
            | Step::DrainBackend { id, .. } => {
                assert!(self.backends.contains_key(id), "{step}");
            }
            Step::SetTable { service, shares, .. } => {
                let owners = entries(shares).iter().map(|entry| entry.backend).collect();
                self.tables.insert(*service, owners);
            }
            Step::AddService { frontend, service } => {
                assert!((1..MAX_SERVICES).contains(&service.id));
                assert!(!self.services.values().any(|id| *id == service.id), "{step}: the id is in use");
                assert_eq!(self.services.insert(*frontend, service.id), None);
            }
            Step::UpdateService { frontend, service } => {
                assert_eq!(self.services.get(frontend), Some(&service.id));
            }
            Step::DrainService { frontend, service, .. } => {
                assert_eq!(self.services.get(frontend), Some(service));
                self.tables.insert(*service, [REFUSE].into());
            }
            Step::RemoveService { frontend, .. } => assert!(self.services.remove(frontend).is_some()),
            Step::RemoveTable { service, .. } => assert!(self.tables.remove(service).is_some()),
            Step::RemoveBackend { id, .. } => assert!(self.backends.remove(id).is_some(), "{step}"),
        }
    }

    fn check(&self, step: &Step) {
        for (frontend, id) in &self.services {
            let table = self.tables.get(id);
            let table = table.unwrap_or_else(|| panic!("after `{step}` {frontend} has no table"));
            for backend in table.iter().filter(|backend| **backend != REFUSE) {
                assert!(self.backends.contains_key(backend), "after `{step}` {frontend} leads to no backend");
            }
        }
    }

    /// What adoption would make of it.
    fn adopt(&self, ledger: &Ledger) -> Ledger {
        let services = ledger.services().map(|(frontend, held)| {
            (*frontend, HeldService { name: None, listener: None, state: State::Active, ..held.clone() })
        });
        let backends =
            ledger.backends().map(|(id, held)| (id, HeldBackend { state: State::Active, ..held.clone() }));
        let unused = self.incarnations.keys().filter(|id| !self.backends.contains_key(id));
        Ledger::adopt(services, backends, unused.map(|id| (*id, ledger.next_incarnation(*id))))
    }
}

/// The model's backends, as the kernel must have them.
fn wanted(model: &[Service]) -> BTreeSet<(Frontend, SocketAddr)> {
    model
        .iter()
        .flat_map(|service| service.shares.iter().map(|share| (service.frontend, share.backend)))
        .filter_map(|(frontend, backend)| Some((frontend, backend?)))
        .collect()
}

fn active(ledger: &Ledger) -> BTreeSet<(Frontend, SocketAddr)> {
    let frontend = |id| ledger.services().find(|(_, held)| held.id == id).map(|(frontend, _)| *frontend);
    ledger
        .backends()
        .filter(|(_, backend)| backend.state == State::Active)
        .map(|(_, backend)| (frontend(backend.service).unwrap(), backend.address))
        .collect()
}

#[test]
fn the_order_on_the_way_in_and_on_the_way_out() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    let plan = carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 3), (2, 1), (0, 1)])], 0);
    assert_eq!(
        plan.to_string(),
        "add backend 1: 198.18.1.1:80 for tcp 198.18.0.1:80, from 198.18.1.254\n\
         add backend 2: 198.18.1.2:80 for tcp 198.18.0.1:80, from 198.18.1.254\n\
         set table 1: tcp 198.18.0.1:80 to 1 (198.18.1.1:80) x 3, 2 (198.18.1.2:80) x 1, refuse x 1\n\
         add service 1: tcp 198.18.0.1:80, tcproute.default.80.0\n"
    );
    let plan = carry_out(&mut ledger, &mut kernel, &[], 1);
    assert_eq!(
        plan.to_string(),
        "drain service 1: tcp 198.18.0.1:80\n\
         drain backend 1: 198.18.1.1:80\n\
         drain backend 2: 198.18.1.2:80\n"
    );
    let plan = carry_out(&mut ledger, &mut kernel, &[], 300);
    assert!(plan.is_empty(), "{plan}");
    let plan = carry_out(&mut ledger, &mut kernel, &[], 301);
    assert_eq!(
        plan.to_string(),
        "remove service: tcp 198.18.0.1:80, tcproute.default.80.0\n\
         remove table 1: tcp 198.18.0.1:80\n\
         remove backend 1: 198.18.1.1:80\n\
         remove backend 2: 198.18.1.2:80\n"
    );
    assert_eq!(kernel.backends, BTreeMap::new());
}

#[test]
fn a_backend_that_leaves_drains_and_may_come_back() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1), (2, 1)])], 0);
    let incarnation = |ledger: &Ledger| ledger.backend(2).map(|backend| backend.incarnation);
    assert_eq!(incarnation(&ledger), Some(1));

    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 10);
    assert_eq!(kernel.tables[&1], [1].into());
    assert_eq!(ledger.next_deadline(), Some(Duration::from_secs(310)));
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1), (2, 1)])], 309);
    assert_eq!(incarnation(&ledger), Some(1), "back within the timeout: its flows are unharmed");
    assert_eq!(ledger.next_deadline(), None);

    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 400);
    let plan = carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 699);
    assert!(plan.is_empty(), "{plan}");
    let plan = carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 700);
    assert_eq!(plan.to_string(), "remove backend 2: 198.18.1.2:80\n");
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1), (2, 1)])], 800);
    assert_eq!(incarnation(&ledger), Some(2), "its flows were reset, and none may be taken on");
}

#[test]
fn no_weight_is_no_slot_and_no_draining() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1), (2, 0)])], 0);
    assert_eq!(ledger.backend(2).unwrap().state, State::Active);
    let slots = table::build(&entries(ledger.table(1).unwrap()));
    assert!(slots.iter().all(|id| *id == 1));
}

#[test]
fn a_route_that_goes_leaves_a_service_that_refuses() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 0);
    let plan = carry_out(&mut ledger, &mut kernel, &[service(80, &[])], 1);
    assert_eq!(
        plan.to_string(),
        "set table 1: tcp 198.18.0.1:80 to nobody: refuse\n\
         update service 1: tcp 198.18.0.1:80, no route attached\n\
         drain backend 1: 198.18.1.1:80\n"
    );
}

#[test]
fn the_same_address_in_two_services_has_two_ids() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)]), service(81, &[(1, 1)])], 0);
    assert_eq!(ledger.backends().count(), 2);
    carry_out(&mut ledger, &mut kernel, &[service(81, &[(1, 1)])], 1);
    assert_eq!(ledger.backend(2).unwrap().service, 2);
    assert_eq!(active(&ledger).len(), 1);
}

#[test]
fn a_service_that_leaves_drains_and_may_come_back() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    let model = [service(80, &[(1, 1)])];
    carry_out(&mut ledger, &mut kernel, &model, 0);
    carry_out(&mut ledger, &mut kernel, &[], 10);
    assert_eq!(kernel.tables[&1], [REFUSE].into(), "no new flows");
    assert_eq!(ledger.next_deadline(), Some(Duration::from_secs(310)));
    let plan = carry_out(&mut ledger, &mut kernel, &model, 309);
    assert_eq!(
        plan.to_string(),
        "take back backend 1: 198.18.1.1:80\n\
         set table 1: tcp 198.18.0.1:80 to 1 (198.18.1.1:80) x 1\n\
         update service 1: tcp 198.18.0.1:80, tcproute.default.80.0\n"
    );
    assert_eq!(ledger.next_deadline(), None);
}

#[test]
fn a_service_gives_way_to_the_proxy_at_once() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[(1, 1)])], 0);
    let proxied = [address("198.18.0.1:80")].into();
    for before in [0, 1] {
        let plan = plan(&ledger, &[], &sources(), &proxied, Duration::from_secs(before), DRAIN).unwrap();
        assert_eq!(
            plan.to_string(),
            "remove service: tcp 198.18.0.1:80, tcproute.default.80.0\n\
             remove table 1: tcp 198.18.0.1:80\n\
             remove backend 1: 198.18.1.1:80\n",
            "whether it serves or drains"
        );
        carry_out(&mut ledger, &mut kernel, &[], 0);
    }
}

#[test]
fn a_service_without_backends_leaves_at_once() {
    let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
    carry_out(&mut ledger, &mut kernel, &[service(80, &[])], 0);
    carry_out(&mut ledger, &mut kernel, &[], 1);
    assert_eq!(ledger.services().count(), 0);
}

#[test]
fn a_source_address_stays_while_the_node_has_it() {
    let backend: IpAddr = "198.18.1.1".parse().unwrap();
    let (old, new): (IpAddr, IpAddr) = ("198.18.1.254".parse().unwrap(), "198.18.2.254".parse().unwrap());
    let sources = |preferred: Option<IpAddr>, local: &[IpAddr]| Sources {
        preferred: preferred.map(|source| (backend, source)).into_iter().collect(),
        local: local.iter().copied().collect(),
    };
    for (sources, current, chosen) in [
        (sources(Some(new), &[old, new]), None, Some(new)),
        (sources(Some(new), &[old, new]), Some(old), Some(old)),
        (sources(Some(new), &[new]), Some(old), Some(new)),
        (sources(None, &[]), Some(old), Some(old)),
        (sources(None, &[new]), None, None),
    ] {
        assert_eq!(sources.choose(backend, current), chosen, "{sources:?}");
    }

    let mut ledger = Ledger::default();
    let model = [service(80, &[(1, 1)])];
    for (sources, step) in [
        (sources(Some(old), &[old]), "add backend 1: 198.18.1.1:80 for tcp 198.18.0.1:80, from 198.18.1.254"),
        (sources(Some(new), &[new]), "update backend 1: 198.18.1.1:80, from 198.18.2.254"),
    ] {
        let plan = plan(&ledger, &model, &sources, &BTreeSet::new(), Duration::ZERO, DRAIN).unwrap();
        assert_eq!(plan.steps[0].to_string(), step);
        plan.steps.iter().for_each(|step| ledger.apply(step));
    }
}

#[test]
fn an_incarnation_wraps_past_zero() {
    let held = HeldBackend {
        service: 1,
        address: address("198.18.1.1:80"),
        source: None,
        incarnation: u16::MAX,
        state: State::Active,
    };
    let ledger = Ledger::adopt([], [(1, held)], [(2, 7)]);
    assert_eq!(ledger.next_incarnation(1), 1);
    assert_eq!(ledger.next_incarnation(2), 7);
    assert_eq!(ledger.next_incarnation(3), 1);
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let many: Vec<_> = (1..=u16::try_from(MAX_SERVICES).unwrap()).map(|port| service(port, &[])).collect();
    let proxied = BTreeSet::new();
    let plan =
        |model: &[Service]| plan(&Ledger::default(), model, &sources(), &proxied, Duration::ZERO, DRAIN);
    assert!(plan(&many[1..]).is_ok());
    assert_eq!(plan(&many), Err(Error::TooManyServices));
}

#[test]
fn tables_are_equal_on_nodes_with_other_ids() {
    let share =
        |id, host| TableShare { backend: Some((id, address(&format!("198.18.1.{host}:80")))), weight: 5 };
    let here = table::build(&entries(&[share(1, 1), share(2, 2), TableShare { backend: None, weight: 1 }]));
    let there = table::build(&entries(&[share(9, 1), share(4, 2), TableShare { backend: None, weight: 1 }]));
    let translated: Vec<u32> = here.iter().map(|id| [REFUSE, 9, 4][*id as usize]).collect();
    assert_eq!(translated, *there);
    let (refused, share) = (here.iter().filter(|id| **id == REFUSE).count(), TABLE_SLOTS as usize / 11);
    // The bound that `table::build` promises, and one for the rounding.
    assert!(refused.abs_diff(share) <= share.isqrt() / 2 + 1, "{refused} slots");
}

fn models() -> impl Strategy<Value = Vec<(Vec<Service>, u64, bool)>> {
    let shares = proptest::collection::btree_map(0_u8..6, prop_oneof![Just(0), 1_u64..9], 0..5);
    let services = proptest::collection::btree_map(80_u16..84, shares, 0..4).prop_map(|services| {
        services
            .into_iter()
            .map(|(port, shares)| service(port, &shares.into_iter().collect::<Vec<_>>()))
            .collect()
    });
    proptest::collection::vec((services, 0_u64..200, proptest::bool::weighted(0.2)), 1..12)
}

proptest! {
    #[test]
    fn any_way_leads_to_the_model(models in models()) {
        let (mut ledger, mut kernel) = (Ledger::default(), FakeKernel::default());
        let mut now = 0;
        for (model, pause, restart) in models {
            now += pause;
            if restart {
                ledger = kernel.adopt(&ledger);
            }
            let before = ledger.clone();
            carry_out(&mut ledger, &mut kernel, &model, now);

            prop_assert_eq!(active(&ledger), wanted(&model));
            let asked = ledger.services().filter(|(_, held)| held.state == State::Active);
            let frontends: BTreeSet<_> = asked.map(|(frontend, _)| *frontend).collect();
            prop_assert_eq!(frontends, model.iter().map(|service| service.frontend).collect());
            for service in &model {
                let held = ledger.service(&service.frontend).unwrap();
                prop_assert_eq!(held, &HeldService::new(held.id, service));
                let owners: BTreeSet<_> = kernel.tables[&held.id].iter().copied().collect();
                prop_assert_eq!(owners, ledger.table(held.id).unwrap().iter().map(|share| {
                    share.backend.map_or(REFUSE, |(id, _)| id)
                }).collect());
            }
            for (id, backend) in before.backends() {
                if let Some(kept) = ledger.backend(id) {
                    let same = (kept.service, kept.address, kept.incarnation)
                        == (backend.service, backend.address, backend.incarnation);
                    prop_assert!(same, "backend {} changed under its flows", id);
                }
            }
            let held: BTreeMap<_, _> =
                ledger.backends().map(|(id, held)| (id, (held.address, held.incarnation))).collect();
            prop_assert_eq!(held, kernel.backends.clone());
            for (frontend, held) in before.services() {
                let kept = ledger.service(frontend).map(|kept| kept.id);
                let over = held.state.until().is_some_and(|until| until.as_secs() <= now);
                let empty = before.backends().all(|(_, backend)| backend.service != held.id);
                prop_assert!(over || empty || kept == Some(held.id), "{} left before its flows", frontend);
            }
            let again = plan(&ledger, &model, &sources(), &BTreeSet::new(), Duration::from_secs(now), DRAIN).unwrap();
            prop_assert!(again.is_empty(), "{}", again);
        }
    }
}
