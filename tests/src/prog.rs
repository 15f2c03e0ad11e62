//! The kernel programs, run on single packets by `BPF_PROG_TEST_RUN` in a namespace with devices and routes.
//!
//! The node has two veths: `clients` (index 10) towards `198.18.0.0/24` and `2001:db8::/64`, `backends` (index 20)
//! towards `198.18.1.0/24` and `2001:db8:1::/64`. Host 2 of each side is a known neighbour, host 3 an unknown one; to
//! `198.18.2.0/24` and `2001:db8:2::/64` there is no route.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, Pod};
use gateway_common::{
    Addr, Backend, Be16, Config, Count, Device, Entry, Outcome, Service, ServiceCount, ServiceKey,
    TABLE_SLOTS, device_flags, maps,
};
use gateway_daemon::l4::verified;

use crate::netns::Netns;
use crate::packet::Mac;

/// Index of the device towards clients.
pub const CLIENTS: u32 = 10;
/// Index of the device towards backends.
pub const BACKENDS: u32 = 20;

/// Link-layer addresses: the node's two, and host 2 of each side.
pub mod macs {
    use crate::packet::Mac;

    /// The node's towards clients.
    pub const NODE_CLIENTS: Mac = [2, 0, 0, 0, 0, 0x10];
    /// The node's towards backends.
    pub const NODE_BACKENDS: Mac = [2, 0, 0, 0, 0, 0x20];
    /// The known client's.
    pub const CLIENT: Mac = [2, 0, 0, 0, 1, 2];
    /// The known backend's.
    pub const BACKEND: Mac = [2, 0, 0, 0, 2, 2];
}

/// Where the kernel programs are: what `cargo xtask build` made, or `GATEWAY_EBPF_OBJECT`.
///
/// # Errors
/// When there is no object.
pub fn object() -> Result<Vec<u8>> {
    let built = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bpf/gateway-ebpf");
    let path = std::env::var_os("GATEWAY_EBPF_OBJECT").map_or_else(built, PathBuf::from);
    std::fs::read(&path)
        .with_context(|| format!("{}: build the kernel programs first: cargo xtask build", path.display()))
}

/// What a program did with a packet.
#[derive(Debug)]
pub struct Ran {
    /// Its return code.
    pub code: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
}

/// A loaded object on a node of its own.
#[derive(Debug)]
pub struct World {
    netns: Netns,
    ebpf: Ebpf,
    /// Keeps an XDP program on the devices: only then do they lend their receive queues to test runs. It counts what
    /// really arrives in maps of its own.
    _attached: Ebpf,
}

impl World {
    /// Lays out the node and loads the programs.
    ///
    /// # Errors
    /// Without root, without the object, or when the kernel refuses something.
    pub fn create() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        ensure!(
            rustix::process::geteuid().is_root(),
            "BPF programs need root: run `cargo xtask test` as root"
        );
        let object = object()?;
        let name = format!("gw-prog-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let netns = Netns::create(&name)?;
        lay_out(&netns)?;
        let attached = netns.run(|| attach(&object))?;
        let mut ebpf = load(&object, 4_096)?;
        for name in [maps::XDP_PROGRAM, maps::TC_PROGRAM] {
            match ebpf.program_mut(name).context(name)? {
                aya::programs::Program::Xdp(program) => verified(|| program.load())?,
                aya::programs::Program::SchedClassifier(program) => verified(|| program.load())?,
                _ => bail!("{name} is of another type"),
            }
        }
        let mut world = Self { netns, ebpf, _attached: attached };
        world.config(40_000, 1)?;
        world.device_can(CLIENTS, device_flags::XDP_TRANSMIT | device_flags::XDP_TX)?;
        world.device_can(BACKENDS, device_flags::XDP_TRANSMIT | device_flags::XDP_TX)?;
        Ok(world)
    }

    /// The node.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Sets the NAT ports, from the first one on, and how many there are.
    pub fn config(&mut self, first: u16, count: u16) -> Result<()> {
        self.config_with_replies(first, count, first, count)
    }

    /// Sets the NAT ports, and apart from them the ports that backends may answer to.
    pub fn config_with_replies(
        &mut self,
        nat_port_first: u16,
        nat_port_count: u16,
        reply_port_first: u16,
        reply_port_count: u16,
    ) -> Result<()> {
        let hash_key = [7, 11];
        let config = Config { hash_key, nat_port_first, nat_port_count, reply_port_first, reply_port_count };
        Array::<_, Config>::try_from(self.map(maps::CONFIG)?)?.set(0, config, 0)?;
        Ok(())
    }

    /// Says what a device can do, by bits of [`device_flags`].
    pub fn device_can(&mut self, device: u32, flags: u32) -> Result<()> {
        let address = if device == CLIENTS { macs::NODE_CLIENTS } else { macs::NODE_BACKENDS };
        let value = Device { flags, address, pad: [0; 2] };
        HashMap::<_, u32, Device>::try_from(self.map(maps::DEVICES)?)?.insert(device, value, 0)?;
        Ok(())
    }

    /// Adds a service; its flows idle out after `idle_ticks`.
    pub fn service(&mut self, address: &str, protocol: u8, id: u32, idle_ticks: u32) -> Result<()> {
        let address: SocketAddr = address.parse()?;
        let key = ServiceKey {
            address: Addr::from(address.ip()),
            port: Be16::new(address.port()),
            protocol,
            pad: 0,
        };
        let mut services = HashMap::<_, ServiceKey, Service>::try_from(self.map(maps::SERVICES)?)?;
        services.insert(key, Service { id, idle_ticks }, 0)?;
        Ok(())
    }

    /// Gives a service the table in which slot `n` is `owners[n % owners.len()]`'s.
    pub fn table(&mut self, service: u32, owners: &[u32]) -> Result<()> {
        let slots = TABLE_SLOTS as usize;
        let table: Vec<u32> = owners.iter().copied().cycle().take(slots).collect();
        self.whole_table(service, &table)
    }

    /// Gives a service a table.
    pub fn whole_table(&mut self, service: u32, table: &[u32]) -> Result<()> {
        const SLOTS: usize = TABLE_SLOTS as usize;
        let mut inner = Array::<MapData, [u32; SLOTS]>::create(1, 0)?;
        inner.set(0, <[u32; SLOTS]>::try_from(table)?, 0)?;
        let mut tables = ArrayOfMaps::<_, Array<MapData, [u32; SLOTS]>>::try_from(self.map(maps::TABLES)?)?;
        tables.set(service, &inner, 0)?;
        Ok(())
    }

    /// Makes a backend, or takes it away.
    pub fn backend(&mut self, id: u32, address: Option<&str>, incarnation: u16) -> Result<()> {
        let backend = match address {
            None => Backend::default(),
            Some(address) => {
                let address: SocketAddr = address.parse()?;
                let source: IpAddr =
                    if address.is_ipv4() { "198.18.1.1" } else { "2001:db8:1::1" }.parse()?;
                Backend {
                    address: address.ip().into(),
                    source: source.into(),
                    port: Be16::new(address.port()),
                    incarnation: Be16::new(incarnation),
                    service: 0,
                }
            }
        };
        Array::<_, Backend>::try_from(self.map(maps::BACKENDS)?)?.set(id, backend, 0)?;
        Ok(())
    }

    /// A hash map of the programs.
    pub fn entries<K: Pod, V: Pod>(&mut self, name: &str) -> Result<HashMap<&mut MapData, K, V>> {
        Ok(HashMap::try_from(self.map(name)?)?)
    }

    /// How often each outcome but "foreign" was counted at an entry, and its bytes; by number.
    pub fn outcomes(&self, entry: Entry) -> Result<Vec<(Outcome, Count)>> {
        let counters =
            PerCpuArray::<_, Count>::try_from(self.ebpf.map(maps::COUNTERS).context("no counters")?)?;
        let mut outcomes = Vec::new();
        for outcome in Outcome::ALL {
            let values = counters.get(&entry.index(*outcome), 0)?;
            let count = values.iter().fold(Count::default(), |sum, count| Count {
                packets: sum.packets + count.packets,
                bytes: sum.bytes + count.bytes,
            });
            if count.packets > 0 {
                outcomes.push((*outcome, count));
            }
        }
        Ok(outcomes)
    }

    /// What was counted for a service or a backend.
    pub fn service_count(&self, map: &str, id: u32) -> Result<ServiceCount> {
        let counts = PerCpuArray::<_, ServiceCount>::try_from(self.ebpf.map(map).context("no counts")?)?;
        Ok(counts.get(&id, 0)?.iter().fold(ServiceCount::default(), |sum, count| ServiceCount {
            flows: sum.flows + count.flows,
            packets_in: sum.packets_in + count.packets_in,
            bytes_in: sum.bytes_in + count.bytes_in,
            packets_out: sum.packets_out + count.packets_out,
            bytes_out: sum.bytes_out + count.bytes_out,
        }))
    }

    /// Runs a program on a packet that came in on a device; `segment` is the payload of each segment to come.
    pub fn run(&mut self, entry: Entry, device: u32, packet: &[u8], segment: u32) -> Result<Ran> {
        let (netns, ebpf) = (&self.netns, &mut self.ebpf);
        netns.run(|| match entry {
            Entry::Xdp => {
                let program: &mut Xdp =
                    ebpf.program_mut(maps::XDP_PROGRAM).context("no XDP program")?.try_into()?;
                let context = xdp_context(device, packet.len());
                run(packet, &context, |options| program.test_run(options))
            }
            Entry::Tc => {
                let program: &mut SchedClassifier =
                    ebpf.program_mut(maps::TC_PROGRAM).context("no TC program")?.try_into()?;
                let context = skb_context(device, segment);
                run(packet, &context, |options| program.test_run(options))
            }
        })
    }

    /// Instructions that the verifier processed for a program.
    pub fn verified(&mut self, entry: Entry) -> Result<u32> {
        let name = match entry {
            Entry::Xdp => maps::XDP_PROGRAM,
            Entry::Tc => maps::TC_PROGRAM,
        };
        let info = self.ebpf.program(name).context(name)?.info()?;
        info.verified_instruction_count().context("this kernel does not count them")
    }

    fn map(&mut self, name: &str) -> Result<&mut aya::maps::Map> {
        self.ebpf.map_mut(name).with_context(|| format!("no map {name}"))
    }
}

/// Now, in the programs' ticks.
pub fn tick() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let nanoseconds = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
    u32::try_from(nanoseconds >> gateway_common::TICK_SHIFT).unwrap_or(u32::MAX)
}

/// Loads the object with room for so many flows.
///
/// # Errors
/// When the kernel refuses a map.
pub fn load(object: &[u8], flows: u32) -> Result<Ebpf> {
    let mut loader = EbpfLoader::new();
    for name in [maps::FLOWS4, maps::FLOWS6, maps::REPLIES4, maps::REPLIES6] {
        loader.map_max_entries(name, flows);
    }
    Ok(loader.load(object)?)
}

fn attach(object: &[u8]) -> Result<Ebpf> {
    let mut ebpf = load(object, 16)?;
    let program: &mut Xdp = ebpf.program_mut(maps::XDP_PROGRAM).context("no XDP program")?.try_into()?;
    verified(|| program.load())?;
    for device in [CLIENTS, BACKENDS] {
        program.attach_to_if_index(device, XdpMode::Driver)?;
    }
    Ok(ebpf)
}

fn lay_out(netns: &Netns) -> Result<()> {
    let mac = |mac: Mac| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (clients, backends) = (mac(macs::NODE_CLIENTS), mac(macs::NODE_BACKENDS));
    let (client, backend) = (mac(macs::CLIENT), mac(macs::BACKEND));
    netns.ip_batch(&[
        format!("link add name clients index {CLIENTS} address {clients} type veth peer name clients-far"),
        format!(
            "link add name backends index {BACKENDS} address {backends} type veth peer name backends-far"
        ),
        "link set clients-far up".to_owned(),
        "link set backends-far up".to_owned(),
        "link set clients up".to_owned(),
        "link set backends up".to_owned(),
        "address add 198.18.0.1/24 dev clients".to_owned(),
        "address add 2001:db8::1/64 dev clients nodad".to_owned(),
        "address add 198.18.1.1/24 dev backends".to_owned(),
        "address add 2001:db8:1::1/64 dev backends nodad".to_owned(),
        format!("neighbour add 198.18.0.2 lladdr {client} dev clients nud permanent"),
        format!("neighbour add 2001:db8::2 lladdr {client} dev clients nud permanent"),
        format!("neighbour add 198.18.1.2 lladdr {backend} dev backends nud permanent"),
        format!("neighbour add 2001:db8:1::2 lladdr {backend} dev backends nud permanent"),
        // A backend that is reached by the device that clients come from.
        format!("neighbour add 198.18.0.9 lladdr {backend} dev clients nud permanent"),
    ])?;
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        netns.sysctl(name, "1")?;
    }
    Ok(())
}

fn run(
    packet: &[u8],
    context: &[u8],
    program: impl FnOnce(TestRunOptions<'_>) -> Result<aya::programs::TestRunResult, aya::programs::ProgramError>,
) -> Result<Ran> {
    let mut out = vec![0; packet.len() + 512];
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.data_out = Some(&mut out);
    options.ctx_in = Some(context);
    let result = program(options)?;
    out.truncate(result.data_size_out as usize);
    Ok(Ran { code: result.return_value, packet: out })
}

/// `struct xdp_md`: `data`, `data_end`, `data_meta`, `ingress_ifindex`, `rx_queue_index`, `egress_ifindex`.
fn xdp_context(device: u32, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    [0, length, 0, device, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct __sk_buff` with its device and, for segments to come, their size and number.
fn skb_context(device: u32, segment: u32) -> Vec<u8> {
    const LENGTH: usize = 192;
    const IFINDEX: usize = 40;
    const GSO_SEGS: usize = 164;
    const GSO_SIZE: usize = 176;
    let mut context = vec![0; LENGTH];
    for (at, value) in [(IFINDEX, device), (GSO_SEGS, u32::from(segment != 0) * 2), (GSO_SIZE, segment)] {
        context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    context
}
