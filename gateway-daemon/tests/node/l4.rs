//! The kernel side on a real kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use aya::{
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, PerCpuValues},
    programs::{SchedClassifier, TcAttachType, links::PinnedLink},
    util::nr_cpus,
};
use gateway_common::{Backend, Be16, Be32, Device, Flow, FlowKey4, REFUSE, ServiceCount, TABLE_SLOTS, maps};
use gateway_daemon::{
    l4::{self, Kernel, Mode, Way},
    model::{
        ListenerName,
        l4::{Frontend, Protocol, Service, Share},
    },
    net,
    plan::{Plan, Sources, plan},
};

use crate::node::{Node, device, eventually, on_node};

const DRAIN: Duration = Duration::from_secs(300);

fn service(port: u16, shares: &[(&str, u64)]) -> Service {
    let share = |(backend, weight): &(&str, u64)| Share {
        backend: (!backend.is_empty()).then(|| backend.parse::<SocketAddr>().unwrap()),
        weight: *weight,
    };
    Service {
        frontend: Frontend { address: "198.18.0.1".parse().unwrap(), port, protocol: Protocol::Tcp },
        listener: ListenerName { namespace: "default".into(), gateway: "web".into(), listener: "tcp".into() },
        name: Some(format!("tcproute.default.web.{port}")),
        idle_timeout: Duration::from_secs(60),
        shares: shares.iter().map(share).collect(),
    }
}

fn apply(kernel: &mut Kernel, model: &[Service], now: u64) -> Plan {
    let plan =
        plan(kernel.ledger(), model, &Sources::default(), &BTreeSet::new(), Duration::from_secs(now), DRAIN)
            .unwrap();
    kernel.apply(&plan).unwrap_or_else(|error| panic!("{}", crate::node::with_causes(&error)));
    plan
}

fn pinned<M: TryFrom<Map>>(node: &Node, name: &str, variant: fn(MapData) -> Map) -> M {
    let data = MapData::from_pin(node.pin_dir().join(name)).unwrap();
    M::try_from(variant(data)).unwrap_or_else(|_| panic!("{name} is of another type"))
}

/// How many slots each backend id has in a service's table.
fn slots(node: &Node, service: u32) -> BTreeMap<u32, u32> {
    let tables: ArrayOfMaps<MapData, Array<MapData, [u32; TABLE_SLOTS as usize]>> =
        pinned(node, maps::TABLES, Map::ArrayOfMaps);
    let mut owned = BTreeMap::new();
    for backend in tables.get(&service, 0).unwrap().get(&0, 0).unwrap() {
        *owned.entry(backend).or_default() += 1;
    }
    owned
}

fn backend(node: &Node, id: u32) -> Backend {
    pinned::<Array<MapData, Backend>>(node, maps::BACKENDS, Map::Array).get(&id, 0).unwrap()
}

/// Numbers of the link and of its program.
fn link(node: &Node, name: &str) -> (u32, u32) {
    let link = PinnedLink::from_pin(node.pin_dir().join(name)).unwrap();
    let info = aya::programs::links::FdLink::from(link).info().unwrap();
    (info.id(), info.program_id())
}

fn tc_programs(interface: &str) -> usize {
    SchedClassifier::query_tcx(interface, TcAttachType::Ingress).unwrap().1.len()
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_restart_keeps_flows_ids_and_links() {
    on_node(|node| async move {
        let model = [
            service(80, &[("198.18.1.1:80", 3), ("198.18.1.2:80", 1)]),
            service(81, &[("198.18.1.1:80", 1)]),
        ];
        let key = FlowKey4 { client: Be32::new(0xc612_0909), service: 1, port: Be16::new(4_000), pad: 0 };
        let flow = Flow { backend: 1, incarnation: Be16::new(1), ..Flow::default() };
        let near = node.device("near").await;
        let names = [format!("link_tc_{}", near.index), format!("link_xdp_native_{}", near.index)];

        let mut first = node.open_kernel();
        assert!(!first.adopted());
        apply(&mut first, &model, 0);
        let way = first.attach(&[(near.clone(), Mode::Xdp)]).unwrap()[0].way;
        assert_eq!(way, Way::XdpNative);
        let mut flows: HashMap<MapData, FlowKey4, Flow> = pinned(&node, maps::FLOWS4, Map::LruHashMap);
        flows.insert(key, flow, 0).unwrap();
        let links = names.clone().map(|name| link(&node, &name));
        let before = first.ledger().clone();
        // Nothing of the first daemon outlives it but what is pinned.
        drop(first);
        assert_eq!(names.clone().map(|name| link(&node, &name)), links);

        let mut second = node.open_kernel();
        assert!(second.adopted());
        let ids = |kernel: &Kernel| -> Vec<_> {
            kernel.ledger().services().map(|(frontend, held)| (*frontend, held.id, held.idle_ticks)).collect()
        };
        let held: Vec<_> =
            second.ledger().backends().map(|(id, held)| (id, held.address, held.incarnation)).collect();
        assert_eq!(ids(&second).len(), 2);
        let expected: Vec<_> =
            before.backends().map(|(id, held)| (id, held.address, held.incarnation)).collect();
        assert_eq!(held, expected);
        let plan = apply(&mut second, &model, 0);
        let steps = plan.to_string();
        assert!(
            steps.lines().all(|step| step.starts_with("set table") || step.starts_with("update service")),
            "{steps}"
        );
        assert_eq!(second.ledger(), &before);
        second.attach(&[(near, Mode::Xdp)]).unwrap();
        assert_eq!(flows.get(&key, 0).unwrap(), flow);
        for (name, (id, program)) in names.iter().zip(links) {
            let now = link(&node, name);
            assert_eq!(now.0, id, "{name} was attached anew");
            assert_ne!(now.1, program, "{name} still has the old program");
        }
    });
}

#[test]
fn a_table_is_swapped_whole_and_refuses_its_refused_share() {
    on_node(|node| async move {
        let mut kernel = node.open_kernel();
        apply(&mut kernel, &[service(80, &[("", 1), ("198.18.1.1:80", 2), ("198.18.1.2:80", 1)])], 0);
        let owned = slots(&node, 1);
        assert_eq!(owned.values().sum::<u32>(), TABLE_SLOTS);
        for (id, share) in [(REFUSE, TABLE_SLOTS / 4), (1, TABLE_SLOTS / 2), (2, TABLE_SLOTS / 4)] {
            // The bound that `table::build` promises, and one for the rounding.
            assert!(owned[&id].abs_diff(share) <= share.isqrt() / 2 + 1, "{owned:?}");
        }

        apply(&mut kernel, &[service(80, &[("198.18.1.1:80", 1), ("198.18.1.2:80", 0)])], 1);
        assert_eq!(slots(&node, 1), [(1, TABLE_SLOTS)].into());
        assert_eq!(backend(&node, 2).port.host(), 80, "no weight, but its flows live on");

        apply(&mut kernel, &[], 2);
        assert_eq!(slots(&node, 1), [(REFUSE, TABLE_SLOTS)].into());
        assert_eq!(backend(&node, 1).port.host(), 80, "it drains");
        apply(&mut kernel, &[], 2 + DRAIN.as_secs());
        let gone = backend(&node, 1);
        assert_eq!((gone.port.host(), gone.incarnation.host()), (0, 2), "an old flow must not find it");
    });
}

#[test]
fn a_new_use_of_an_id_counts_from_zero_and_is_another_incarnation_even_after_a_restart() {
    on_node(|node| async move {
        let mut kernel = node.open_kernel();
        apply(&mut kernel, &[service(80, &[("198.18.1.1:80", 1)])], 0);
        for name in [maps::BACKEND_STATS, maps::SERVICE_STATS] {
            let mut stats: PerCpuArray<MapData, ServiceCount> = pinned(&node, name, Map::PerCpuArray);
            let some = ServiceCount { flows: 3, bytes_out: 7, ..ServiceCount::default() };
            stats.set(1, PerCpuValues::try_from(vec![some; nr_cpus().unwrap()]).unwrap(), 0).unwrap();
        }
        let cpus = nr_cpus().unwrap() as u64;
        let counters = kernel.counters().unwrap();
        assert_eq!((counters.backends[&1].flows, counters.services[&1].bytes_out), (3 * cpus, 7 * cpus));
        apply(&mut kernel, &[], 1);
        apply(&mut kernel, &[], 1 + DRAIN.as_secs());
        drop(kernel);

        let mut kernel = node.open_kernel();
        apply(&mut kernel, &[service(82, &[("198.18.1.9:80", 1)])], 0);
        assert_eq!(kernel.ledger().backend(1).unwrap().incarnation, 2);
        let counters = kernel.counters().unwrap();
        assert_eq!(counters.backends[&1], ServiceCount::default());
        assert_eq!(counters.services[&1], ServiceCount::default());
    });
}

#[test]
fn cleanup_leaves_nothing() {
    on_node(|node| async move {
        let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = |mounts: &str| mounts.contains(node.pin_dir().to_str().unwrap());
        let near = node.device("near").await;
        let mut kernel = node.open_kernel();
        apply(&mut kernel, &[service(80, &[("198.18.1.1:80", 1)])], 0);
        kernel.attach(&[(near.clone(), Mode::Xdp)]).unwrap();
        drop(kernel);
        assert_eq!(tc_programs("near"), 1);
        assert!(ours(&mounts()));

        let left = l4::cleanup(Path::new("/nowhere"), &mut node.record()).unwrap();
        assert_eq!(left, l4::Left::default());
        assert!(!ours(&mounts()));
        assert!(!node.pin_dir().exists());
        assert_eq!(node.record().changes(), &gateway_daemon::record::Changes::default());
        assert_eq!(tc_programs("near"), 0);
        assert_eq!(node.device("near").await.xdp_features, near.xdp_features);
    });
}

#[test]
fn refused_xdp_falls_back_to_tc_and_says_so() {
    on_node(|node| async move {
        let plain = node.device("plain").await;
        let mut kernel = node.open_kernel();
        let attachment = kernel.attach(&[(plain, Mode::Xdp)]).unwrap()[0].clone();
        assert_eq!(attachment.way, Way::Tc);
        assert!(attachment.reason.starts_with("xdp native was refused: "), "{}", attachment.reason);
        assert_eq!(tc_programs("plain"), 1);
    });
}

#[test]
fn each_interface_is_attached_as_asked_and_let_go_when_it_is_not() {
    on_node(|node| async move {
        let (near, plain) = (node.device("near").await, node.device("plain").await);
        let links = |node: &Node| -> Vec<_> {
            entries(&node.pin_dir()).into_iter().filter(|name| name.starts_with("link_")).collect()
        };
        let mut kernel = node.open_kernel();
        for (mode, way) in [
            (Mode::Xdp, Way::XdpNative),
            (Mode::XdpGeneric, Way::XdpGeneric),
            (Mode::Xdp, Way::XdpNative),
            (Mode::Auto, Way::Tc),
            (Mode::Tc, Way::Tc),
        ] {
            let attachments = kernel.attach(&[(near.clone(), mode), (plain.clone(), Mode::Tc)]).unwrap();
            assert_eq!(
                (attachments[0].way, attachments[1].way),
                (way, Way::Tc),
                "{:?}",
                attachments[0].reason
            );
            assert_eq!(links(&node).len(), if way == Way::Tc { 2 } else { 3 });
            assert_eq!((tc_programs("near"), tc_programs("plain")), (1, 1));
        }
        kernel.attach(&[(plain, Mode::Tc)]).unwrap();
        assert_eq!((tc_programs("near"), tc_programs("plain")), (0, 1));
        assert_eq!(links(&node).len(), 1);
    });
}

#[test]
fn maps_of_another_layout_are_refused_with_what_to_do() {
    on_node(|node| async move {
        drop(node.open_kernel());
        fs::remove_dir(node.pin_dir().join(format!("layout_{}", maps::LAYOUT))).unwrap();
        fs::create_dir(node.pin_dir().join("layout_0")).unwrap();
        let error = node.try_open_kernel().err().unwrap();
        assert!(matches!(error, l4::Error::OtherLayout { .. }), "{error}");
        assert!(
            error.to_string().contains("layout_0") && error.to_string().contains("gatewayd cleanup"),
            "{error}"
        );
    });
}

#[test]
fn the_kernel_knows_which_devices_transmit_redirected_packets() {
    on_node(|node| async move {
        let mut kernel = node.open_kernel();
        let mut events = net::Events::open().unwrap();
        let near = node.device("near").await;
        assert_eq!(near.xdp_features & net::xdp_features::NDO_XMIT, 0);
        kernel.set_devices(&net::device_map(&node.network.devices().await.unwrap())).unwrap();
        let devices: HashMap<MapData, u32, Device> = pinned(&node, maps::DEVICES, Map::HashMap);
        assert_eq!(devices.get(&near.index, 0).unwrap().flags, 0);

        // The far end of a veth has to have a program, or the near end cannot transmit.
        node.in_far(|network| {
            let kernel = &mut kernel;
            async move {
                let far = device(&network, "far").await;
                assert_eq!(kernel.attach(&[(far, Mode::Xdp)]).unwrap()[0].way, Way::XdpNative);
            }
        })
        .await;
        let told = async { while events.next().await != Some(net::NetEvent::Devices) {} };
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("no event");
        let network = node.network.clone();
        eventually("near transmits", || async {
            device(&network, "near").await.xdp_features & net::xdp_features::NDO_XMIT != 0
        })
        .await;
        kernel.set_devices(&net::device_map(&node.network.devices().await.unwrap())).unwrap();
        assert_eq!(devices.get(&near.index, 0).unwrap().flags, gateway_common::device_flags::XDP_TRANSMIT);
        kernel.set_devices(&BTreeMap::new()).unwrap();
        assert!(devices.get(&near.index, 0).is_err());
    });
}

#[test]
fn an_interface_that_is_gone_does_not_keep_others_from_being_attached() {
    on_node(|node| async move {
        let near = node.device("near").await;
        let gone = net::Device { index: 9_999, name: "gone".to_owned(), ..near.clone() };
        let mut kernel = node.open_kernel();
        kernel.attach(&[(gone, Mode::Tc), (near, Mode::Tc)]).unwrap_err();
        assert_eq!(tc_programs("near"), 1);
        assert_eq!(kernel.attachments().len(), 1);
    });
}

#[test]
fn pins_belong_to_one_process_at_a_time() {
    on_node(|node| async move {
        let kernel = node.open_kernel();
        let error = node.try_open_kernel().err().unwrap();
        let mut other = node.record();
        assert!(error.to_string().contains("another gatewayd is running"), "{error}");
        l4::cleanup(&node.pin_dir(), &mut other).unwrap_err();
        assert!(node.pin_dir().join("gw_services").exists());
        drop(kernel);
        l4::cleanup(&node.pin_dir(), &mut other).unwrap();
        assert!(!node.pin_dir().exists());
    });
}

#[test]
fn a_device_that_goes_and_comes_back_is_attached_anew() {
    on_node(|node| async move {
        let recreate = async || {
            let links = crate::node::handle().link();
            links.del(node.device("plain").await.index).execute().await.unwrap();
            links.add(rtnetlink::LinkBridge::new("plain").build()).execute().await.unwrap();
            node.device("plain").await
        };
        let pin = |index: u32| node.pin_dir().join(format!("link_tc_{index}"));
        let mut kernel = node.open_kernel();
        let first = node.device("plain").await;
        kernel.attach(&[(first.clone(), Mode::Tc)]).unwrap();

        let second = recreate().await;
        assert_ne!(first.index, second.index);
        kernel.attach(&[(second.clone(), Mode::Tc)]).unwrap();
        assert_eq!(tc_programs("plain"), 1);
        assert!(!pin(first.index).exists());

        // The dead link of a device that is gone stands where the new device's link would: as if the index had been
        // given out again.
        let third = recreate().await;
        fs::rename(pin(second.index), pin(third.index)).unwrap();
        kernel.attach(&[(third, Mode::Tc)]).unwrap();
        assert_eq!(tc_programs("plain"), 1);
    });
}
