//! What a client's own sockets make of our answers, through TC with every offload on and with none.
//!
//! With offloads on, the kernel hands TC packets whose checksum is still to be completed; only a socket that believes
//! the answer shows that it came out right.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::maps::HashMap;
use aya::programs::tc::{SchedClassifier, TcAttachType};
use gateway_common::{Addr, Be16, Service, ServiceKey, TCP, UDP, maps};
use gateway_tests::netns::Netns;
use gateway_tests::prog;

/// A client must hear at once; this is to tell "at once" from "after a retransmission", which takes a second.
const AT_ONCE: Duration = Duration::from_millis(900);

fn refuse(test: &str, offloads: bool) -> Result<()> {
    let name = |role: &str| format!("gw-{test}-{role}-{}", std::process::id());
    let (node, client) = (Netns::create(&name("node"))?, Netns::create(&name("client"))?);
    node.ip_batch(&[
        format!("link add name clients type veth peer name eth0 netns {}", client.name()),
        "link set clients up".to_owned(),
        "address add 198.18.0.1/24 dev clients".to_owned(),
        "address add 2001:db8::1/64 dev clients nodad".to_owned(),
    ])?;
    client.ip_batch(&[
        "link set eth0 up",
        "address add 198.18.0.2/24 dev eth0",
        "address add 2001:db8::2/64 dev eth0 nodad",
        "route add 198.18.9.1/32 via 198.18.0.1",
        "route add 2001:db8:9::1/128 via 2001:db8::1",
    ])?;
    if !offloads {
        let off = ["-K", "eth0", "tx", "off"];
        ensure!(client.command("ethtool")?.args(off).status()?.success(), "ethtool {off:?}");
    }
    let mut ebpf = prog::load(&prog::object()?, 64)?;
    let mut services =
        HashMap::<_, ServiceKey, Service>::try_from(ebpf.map_mut(maps::SERVICES).context("no services")?)?;
    for address in ["198.18.9.1:80", "[2001:db8:9::1]:80"] {
        let address: SocketAddr = address.parse()?;
        for protocol in [TCP, UDP] {
            let key = ServiceKey { address: Addr::from(address.ip()), port: Be16::new(80), protocol, pad: 0 };
            // A service without a table refuses.
            services.insert(key, Service { id: 1, idle_ticks: 300 }, 0)?;
        }
    }
    let program: &mut SchedClassifier =
        ebpf.program_mut(maps::TC_PROGRAM).context("no TC program")?.try_into()?;
    program.load()?;
    node.run(|| program.attach("clients", TcAttachType::Ingress))?;
    for address in ["198.18.9.1:80", "[2001:db8:9::1]:80"] {
        let address = address.parse()?;
        client.run(|| tcp_is_refused(address)).with_context(|| format!("TCP to {address}"))?;
        client.run(|| udp_is_refused(address)).with_context(|| format!("UDP to {address}"))?;
    }
    Ok(())
}

fn tcp_is_refused(address: SocketAddr) -> Result<()> {
    let started = Instant::now();
    let error = TcpStream::connect_timeout(&address, Duration::from_secs(5)).err().context("connected")?;
    ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    ensure!(started.elapsed() < AT_ONCE, "heard after {:?}", started.elapsed());
    Ok(())
}

fn udp_is_refused(address: SocketAddr) -> Result<()> {
    let any: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send(b"anyone?")?;
    let error = socket.recv(&mut [0; 16]).err().context("answered")?;
    ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    Ok(())
}

#[test]
fn clients_hear_a_refusal_with_offloads() {
    refuse("refuse-on", true).unwrap();
}

#[test]
fn clients_hear_a_refusal_without_offloads() {
    refuse("refuse-off", false).unwrap();
}
