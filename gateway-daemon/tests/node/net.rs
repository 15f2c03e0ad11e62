//! The node's network on a real kernel.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use gateway_daemon::{
    net::{Events, NetEvent, Network},
    record::Changes,
};
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::{
        address::AddressAttribute,
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourState},
    },
};

use crate::node::{add_address, eventually, handle, on_node};

fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Every address but link-local ones, which come on their own.
async fn all_addresses() -> BTreeSet<(IpAddr, u8)> {
    let messages: Vec<_> = handle().address().get().execute().try_collect().await.unwrap();
    let address = |message: &rtnetlink::packet_route::address::AddressMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some((*address, message.header.prefix_len)),
            _ => None,
        })
    };
    let all = messages.iter().filter_map(address);
    all.filter(|(address, _)| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())).collect()
}

#[test]
fn addresses_are_put_on_and_only_our_own_taken_away() {
    on_node(|node| async move {
        add_address("near", "198.18.0.1", 24).await;
        let before = all_addresses().await;
        let ensure = async |wanted: &[&str]| {
            node.network.ensure_addresses(&addresses(wanted), "plain", &mut node.record()).await.unwrap();
            all_addresses().await.difference(&before).copied().collect::<Vec<_>>()
        };
        let added = ensure(&["198.18.0.1", "198.18.0.2", "2001:db8::1"]).await;
        assert_eq!(added, [("198.18.0.2".parse().unwrap(), 32), ("2001:db8::1".parse().unwrap(), 128)]);
        // A new process reads the record again, as `node.record()` does, and knows its own.
        assert_eq!(ensure(&["198.18.0.2"]).await, [("198.18.0.2".parse().unwrap(), 32)]);
        // Somebody else took it away: it is put back.
        node.network.cleanup(&mut node.record()).await.unwrap();
        assert_eq!(ensure(&["198.18.0.2"]).await.len(), 1);

        node.network.cleanup(&mut node.record()).await.unwrap();
        assert_eq!(all_addresses().await, before);
        assert_eq!(node.record().changes(), &Changes::default());
    });
}

#[test]
fn an_address_for_no_interface_is_said() {
    on_node(|node| async move {
        let wanted = addresses(&["198.18.0.2"]);
        let error = node.network.ensure_addresses(&wanted, "eth9", &mut node.record()).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no interface eth9");
    });
}

#[test]
fn forwarding_goes_on_and_back_off() {
    on_node(|node| async move {
        let settings = || {
            [
                "ipv4/conf/near/forwarding",
                "ipv6/conf/near/forwarding",
                "ipv6/conf/near/accept_ra",
                "ipv4/conf/plain/forwarding",
            ]
            .map(|path| fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap().trim().to_owned())
        };
        let before = settings();
        assert_eq!(before, ["0", "0", "1", "0"]);
        node.network.enable_forwarding(["near", "eth9"], &mut node.record()).unwrap();
        assert_eq!(settings(), ["1", "1", "2", "0"]);
        node.network.enable_forwarding(["near"], &mut node.record()).unwrap();
        node.network.cleanup(&mut node.record()).await.unwrap();
        assert_eq!(settings(), before);
        assert_eq!(node.record().changes(), &Changes::default());
    });
}

#[test]
fn the_ways_to_backends() {
    on_node(|node| async move {
        add_address("near", "198.18.1.254", 24).await;
        add_address("near", "2001:db8:1::254", 64).await;
        let router: Ipv4Addr = "198.18.1.9".parse().unwrap();
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix("198.19.0.0".parse().unwrap(), 16)
            .gateway(router)
            .build();
        handle().route().add(route).execute().await.unwrap();
        let near = node.device("near").await.index;

        let backends = addresses(&[
            "198.18.1.1",
            "2001:db8:1::1",
            "198.19.7.7",
            "198.18.1.254",
            "198.18.200.1",
            "2001:db8:2::1",
        ]);
        let ways = node.network.hops(&backends).await.unwrap();
        let hop =
            |to: &str| ways.hops.get(&to.parse().unwrap()).map(|hop| (hop.device, hop.next, hop.source));
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        assert_eq!(hop("198.18.1.1"), Some((near, ip("198.18.1.1"), ip("198.18.1.254"))));
        assert_eq!(hop("2001:db8:1::1"), Some((near, ip("2001:db8:1::1"), ip("2001:db8:1::254"))));
        assert_eq!(hop("198.19.7.7"), Some((near, IpAddr::V4(router), ip("198.18.1.254"))));
        assert_eq!(hop("198.18.200.1"), None, "there is no route");
        assert_eq!(hop("2001:db8:2::1"), None, "there is no route");
        assert_eq!(hop("198.18.1.254"), None, "it is this node's own");
        assert_eq!(ways.sources.preferred[&ip("198.18.1.254")], ip("198.18.1.254"));
        assert!(ways.sources.local.contains(&ip("198.18.1.254")));
    });
}

#[test]
fn neighbours_are_resolved_before_they_are_needed() {
    on_node(|node| async move {
        node.in_far(|_| async {
            add_address("far", "198.18.1.1", 24).await;
            add_address("far", "2001:db8:1::1", 64).await;
        })
        .await;
        add_address("near", "198.18.1.254", 24).await;
        add_address("near", "2001:db8:1::254", 64).await;
        // The third does not exist, and must not keep the others from being resolved.
        let backends = addresses(&["198.18.1.1", "2001:db8:1::1", "198.18.1.77"]);
        let hops = node.network.hops(&backends).await.unwrap();
        assert_eq!(hops.hops.len(), 3);
        assert_eq!(reachable().await, 0);
        let network: Network = node.network.clone();
        eventually("both are reachable", || async {
            network.resolve_neighbours(&hops).await.unwrap();
            reachable().await == 2
        })
        .await;
    });
}

/// How many of the backends have a known link-layer address.
async fn reachable() -> usize {
    let neighbours: Vec<_> = handle().neighbours().get().execute().try_collect().await.unwrap();
    let backends = addresses(&["198.18.1.1", "2001:db8:1::1", "198.18.1.77"]);
    let known = |neighbour: &&rtnetlink::packet_route::neighbour::NeighbourMessage| {
        let ours = neighbour.attributes.iter().any(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                backends.contains(&IpAddr::V4(*v4))
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                backends.contains(&IpAddr::V6(*v6))
            }
            _ => false,
        });
        ours && neighbour.header.state == NeighbourState::Reachable
    };
    neighbours.iter().filter(known).count()
}

#[test]
fn changes_are_told() {
    on_node(|node| async move {
        let mut events = Events::open().unwrap();
        add_address("plain", "198.18.3.1", 24).await;
        let mut wanted: BTreeSet<_> = [NetEvent::Addresses, NetEvent::Routes].into();
        let told = async {
            while !wanted.is_empty() {
                wanted.remove(&events.next().await.expect("the sockets are open"));
            }
        };
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("an address and its route are told");

        let index = node.device("plain").await.index;
        handle().link().del(index).execute().await.unwrap();
        let told = async { while events.next().await != Some(NetEvent::Devices) {} };
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("a device that goes is told");
    });
}
