//! Ways out, and what has none.

use gateway_common::{Outcome, device_flags, maps};
use gateway_tests::packet::tcp_flags::*;
use gateway_tests::prog::{BACKENDS, CLIENTS, macs};

use crate::row::*;

/// A SYN to a backend at this address.
fn to(address: &'static str) -> Row {
    Row::new(V4.tcp(SYN)).given(move |world| {
        one_backend(world, TCP)?;
        world.backend(V4.id, Some(address), 1)
    })
}

fn to6(address: &'static str) -> Row {
    Row::new(V6.tcp(SYN)).given(move |world| {
        one_backend(world, TCP)?;
        world.backend(V6.id, Some(address), 1)
    })
}

rows! {
    a_backend_on_the_clients_side: to("198.18.0.9:8080")
        .sends(Outcome::Forwarded, &V4.forwarded(V4.tcp(SYN)).to("198.18.0.9:8080"), macs::BACKEND, macs::NODE_CLIENTS)
        .xdp_code(XDP_TX);
    a_backend_on_the_side_of_clients_whose_device_is_a_veth: to("198.18.0.9:8080")
        .given(|world| {
            one_backend(world, TCP)?;
            world.backend(V4.id, Some("198.18.0.9:8080"), 1)?;
            world.device_can(CLIENTS, device_flags::XDP_TRANSMIT)
        })
        .sends(Outcome::Forwarded, &V4.forwarded(V4.tcp(SYN)).to("198.18.0.9:8080"), macs::BACKEND, macs::NODE_CLIENTS)
        .xdp_code(XDP_REDIRECT);
    an_unknown_neighbour: to("198.18.1.3:8080")
        .sends(Outcome::Forwarded, &V4.forwarded(V4.tcp(SYN)).to("198.18.1.3:8080"), macs::BACKEND, macs::BACKEND)
        .xdp_leaves_it();
    an_unknown_neighbour_over_ipv6: to6("[2001:db8:1::3]:8080")
        .sends(Outcome::Forwarded, &V6.forwarded(V6.tcp(SYN)).to("[2001:db8:1::3]:8080"), macs::BACKEND, macs::BACKEND)
        .xdp_leaves_it();
    no_route: to("198.18.2.2:8080").drops(Outcome::NoRoute).xdp_leaves_it();
    no_route_over_ipv6: to6("[2001:db8:2::2]:8080").drops(Outcome::NoRoute).xdp_leaves_it();
    no_route_leaves_no_flow: to("198.18.2.2:8080").drops(Outcome::NoRoute).xdp_leaves_it().then(|world, _| {
        let flows = world.entries::<gateway_common::FlowKey4, gateway_common::Flow>(maps::FLOWS4)?;
        assert_eq!(flows.keys().count(), 0);
        Ok(())
    });
    forwarding_switched_off: to(V4.backend)
        .given(|world| {
            one_backend(world, TCP)?;
            world.netns().sysctl("ipv4/ip_forward", "0")
        })
        .drops(Outcome::NoRoute)
        .xdp_leaves_it();
    a_device_that_does_not_transmit: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.device_can(BACKENDS, 0)
        })
        .forwards(V4)
        .xdp_leaves_it();
    a_client_device_that_does_not_transmit_may_receive: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.device_can(CLIENTS, 0)
        })
        .forwards(V4);
    used_up: Row::new(V4.tcp(SYN).hop_limit(1)).given(|world| one_backend(world, TCP)).drops(Outcome::TtlExpired);
    used_up_over_ipv6: Row::new(V6.udp().hop_limit(1)).given(|world| one_backend(world, UDP)).drops(Outcome::TtlExpired);
    too_big: Row::new(V4.udp().payload(&[1; 1_473])).given(|world| one_backend(world, UDP)).drops(Outcome::TooBig).xdp_leaves_it();
    too_big_over_ipv6: Row::new(V6.udp().payload(&[1; 1_453])).given(|world| one_backend(world, UDP)).drops(Outcome::TooBig).xdp_leaves_it();
    just_not_too_big: Row::new(V4.udp().payload(&[1; 1_472])).given(|world| one_backend(world, UDP)).forwards(V4);
    /// XDP never sees such a packet; TC looks at its segments.
    segments_that_fit: Row::new(V4.udp().payload(&[1; 2_000])).segment(1_000)
        .given(|world| one_backend(world, UDP)).forwards(V4).xdp_leaves_it();
    segments_that_do_not: Row::new(V4.udp().payload(&[1; 3_000])).segment(1_473)
        .given(|world| one_backend(world, UDP)).drops(Outcome::TooBig).xdp_leaves_it();
}
