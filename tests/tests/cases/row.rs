//! What a row is, and the world that most rows share.

use anyhow::Result;
use gateway_common::{
    Be16, Be32, Entry, Flow, FlowKey4, FlowKey6, Outcome, Reply4, Reply6, ReplyKey4, ReplyKey6, maps,
};
use gateway_tests::packet::{self, Frame, Mac, tcp_flags::*};
use gateway_tests::prog::{CLIENTS, World, macs, tick};

pub(crate) const TCP: u8 = gateway_common::TCP;
pub(crate) const UDP: u8 = gateway_common::UDP;

/// Service id of the services of both families.
pub(crate) const SERVICE: u32 = 5;
/// Idle timeout of its flows, in ticks.
pub(crate) const IDLE: u32 = 300;
/// Ids of the backends: IPv4's and IPv6's.
pub(crate) const BACKEND: [u32; 2] = [1, 2];
/// The only NAT port there is, unless a row says otherwise.
pub(crate) const NAT_PORT: u16 = 40_000;

const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;
pub(crate) const XDP_TX: u32 = 3;
pub(crate) const XDP_REDIRECT: u32 = 4;
const TC_UNSPEC: u32 = u32::MAX;
const TC_SHOT: u32 = 2;
pub(crate) const TC_REDIRECT: u32 = 7;

/// Endpoints of one family.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) client: &'static str,
    pub(crate) service: &'static str,
    pub(crate) backend: &'static str,
    /// The node, at the NAT port.
    pub(crate) node: &'static str,
    pub(crate) id: u32,
}

pub(crate) const V4: Side = Side {
    client: "198.18.0.2:50000",
    service: "198.18.9.1:80",
    backend: "198.18.1.2:8080",
    node: "198.18.1.1:40000",
    id: BACKEND[0],
};
pub(crate) const V6: Side = Side {
    client: "[2001:db8::2]:50000",
    service: "[2001:db8:9::1]:80",
    backend: "[2001:db8:1::2]:8080",
    node: "[2001:db8:1::1]:40000",
    id: BACKEND[1],
};

impl Side {
    /// A TCP segment of the client, with a number, a window and an odd payload where one may be.
    pub(crate) fn tcp(self, flags: u8) -> Frame {
        let payload: &[u8] = if flags & (SYN | FIN | RST) == 0 { b"hello" } else { b"" };
        Frame::tcp(self.client, self.service, flags)
            .macs(macs::NODE_CLIENTS, macs::CLIENT)
            .numbers(0x0102_0304, 0xf0e0_d0c0)
            .window(0x1234, &[1, 1, 1, 0])
            .payload(payload)
    }

    /// A datagram of the client.
    pub(crate) fn udp(self) -> Frame {
        Frame::udp(self.client, self.service, b"datagram!").macs(macs::NODE_CLIENTS, macs::CLIENT)
    }

    /// The same packet as the backend gets it.
    pub(crate) fn forwarded(self, frame: Frame) -> Frame {
        frame.from(self.node).to(self.backend).hop_limit(63)
    }
}

/// One service of both families, with a table of one backend each.
pub(crate) fn one_backend(world: &mut World, protocol: u8) -> Result<()> {
    for side in [V4, V6] {
        let service = SERVICE + side.id;
        world.service(side.service, protocol, service, IDLE)?;
        world.table(service, &[side.id])?;
        world.backend(side.id, Some(side.backend), 1)?;
    }
    Ok(())
}

/// An established flow of the client, for both families; `change` makes it what the row needs.
pub(crate) fn known_flow(world: &mut World, change: impl Fn(&mut Flow)) -> Result<()> {
    flow_in(world, [maps::FLOWS4, maps::FLOWS6], change)
}

/// A flow of the client that opens.
pub(crate) fn known_opening(world: &mut World, change: impl Fn(&mut Flow)) -> Result<()> {
    flow_in(world, [maps::OPENING4, maps::OPENING6], change)
}

fn flow_in(world: &mut World, names: [&str; 2], change: impl Fn(&mut Flow)) -> Result<()> {
    for side in [V4, V6] {
        let mut flow = Flow {
            backend: side.id,
            seen: tick(),
            checked: 0,
            incarnation: Be16::new(1),
            nat_port: Be16::new(NAT_PORT),
            state: 0,
            expected: 0,
        };
        change(&mut flow);
        let (service, port) = (SERVICE + side.id, Be16::new(50_000));
        match address(side.client) {
            Words::V4(client) => {
                let key = FlowKey4 { client, service, port, pad: 0 };
                world.entries::<FlowKey4, Flow>(names[0])?.insert(key, flow, 0)?;
            }
            Words::V6(client) => {
                let key = FlowKey6 { client, service, port, pad: 0 };
                world.entries::<FlowKey6, Flow>(names[1])?.insert(key, flow, 0)?;
            }
        }
    }
    Ok(())
}

/// What a row may want to say of a reply entry.
pub(crate) struct Known {
    pub(crate) client_port: u16,
    pub(crate) nat_port: u16,
    pub(crate) age: u32,
    pub(crate) state: u32,
    /// Whether its flow still opens.
    pub(crate) opens: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self { client_port: 50_000, nat_port: NAT_PORT, age: 0, state: 0, opens: false }
    }
}

/// A reply entry that is there already, for both families.
pub(crate) fn known_reply(world: &mut World, protocol: u8, known: &Known) -> Result<()> {
    let names = if known.opens { [maps::CLAIMS4, maps::CLAIMS6] } else { [maps::REPLIES4, maps::REPLIES6] };
    for side in [V4, V6] {
        let (client_port, port) = (Be16::new(known.client_port), Be16::new(80));
        let (backend_port, nat_port) = (Be16::new(8080), Be16::new(known.nat_port));
        let (seen, idle_ticks, state) = (tick() - known.age, IDLE, known.state);
        let (service, backend_id) = (SERVICE + side.id, side.id);
        match [side.client, side.service, side.backend, side.node].map(address) {
            [Words::V4(client), Words::V4(address), Words::V4(backend), Words::V4(node)] => {
                let key = ReplyKey4 { backend, node, backend_port, nat_port, protocol, pad: [0; 3] };
                let reply = Reply4 {
                    client,
                    address,
                    client_port,
                    port,
                    service,
                    backend: backend_id,
                    seen,
                    idle_ticks,
                    state,
                };
                world.entries::<ReplyKey4, Reply4>(names[0])?.insert(key, reply, 0)?;
            }
            [Words::V6(client), Words::V6(address), Words::V6(backend), Words::V6(node)] => {
                let key = ReplyKey6 { backend, node, backend_port, nat_port, protocol, pad: [0; 3] };
                let reply = Reply6 {
                    client,
                    address,
                    client_port,
                    port,
                    service,
                    backend: backend_id,
                    seen,
                    idle_ticks,
                    state,
                };
                world.entries::<ReplyKey6, Reply6>(names[1])?.insert(key, reply, 0)?;
            }
            _ => panic!("a side of two families"),
        }
    }
    Ok(())
}

/// Entries of IPv4: of flows that open and their claims, of established ones and their replies.
pub(crate) fn entries4(world: &mut World) -> Result<[usize; 4]> {
    Ok([
        world.entries::<FlowKey4, Flow>(maps::OPENING4)?.keys().count(),
        world.entries::<ReplyKey4, Reply4>(maps::CLAIMS4)?.keys().count(),
        world.entries::<FlowKey4, Flow>(maps::FLOWS4)?.keys().count(),
        world.entries::<ReplyKey4, Reply4>(maps::REPLIES4)?.keys().count(),
    ])
}

/// Entries of IPv6, as [`entries4`].
pub(crate) fn entries6(world: &mut World) -> Result<[usize; 4]> {
    Ok([
        world.entries::<FlowKey6, Flow>(maps::OPENING6)?.keys().count(),
        world.entries::<ReplyKey6, Reply6>(maps::CLAIMS6)?.keys().count(),
        world.entries::<FlowKey6, Flow>(maps::FLOWS6)?.keys().count(),
        world.entries::<ReplyKey6, Reply6>(maps::REPLIES6)?.keys().count(),
    ])
}

enum Words {
    V4(Be32),
    V6([Be32; 4]),
}

fn address(endpoint: &str) -> Words {
    let endpoint: std::net::SocketAddr = endpoint.parse().expect("an address and a port");
    let address = gateway_common::Addr::from(endpoint.ip());
    address.as_v4().map_or(Words::V6(address.0), Words::V4)
}

/// What one entry must do.
#[derive(Clone)]
struct Expected {
    code: u32,
    packet: Vec<u8>,
    outcome: Outcome,
}

/// Fills the maps of a world.
type Given = Box<dyn Fn(&mut World) -> Result<()>>;
/// Looks at the world that an entry has left behind.
type Then = Box<dyn Fn(&mut World, Entry) -> Result<()>>;

/// One packet, and what both entries must do with it.
pub(crate) struct Row {
    given: Given,
    device: u32,
    segment: u32,
    input: Frame,
    cut: Option<usize>,
    expected: Option<[Expected; 2]>,
    then: Then,
}

impl Row {
    pub(crate) fn new(input: Frame) -> Self {
        Self {
            given: Box::new(|_| Ok(())),
            device: CLIENTS,
            segment: 0,
            input,
            cut: None,
            expected: None,
            then: Box::new(|_, _| Ok(())),
        }
    }

    /// What is in the maps.
    pub(crate) fn given(mut self, given: impl Fn(&mut World) -> Result<()> + 'static) -> Self {
        self.given = Box::new(given);
        self
    }

    /// The device that it comes in on, when not the clients'.
    pub(crate) fn on(mut self, device: u32) -> Self {
        self.device = device;
        self
    }

    /// Payload of each segment that the kernel will make of it.
    pub(crate) fn segment(mut self, segment: u32) -> Self {
        self.segment = segment;
        self
    }

    /// Only the first bytes of it arrive.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        self.cut = Some(length);
        self
    }

    /// What must be in the maps afterwards.
    pub(crate) fn then(mut self, then: impl Fn(&mut World, Entry) -> Result<()> + 'static) -> Self {
        self.then = Box::new(then);
        self
    }

    fn input(&self) -> Vec<u8> {
        let mut bytes = self.input.bytes();
        bytes.truncate(self.cut.unwrap_or(bytes.len()));
        bytes
    }

    fn expect(mut self, codes: [u32; 2], packets: [Vec<u8>; 2], outcome: Outcome) -> Self {
        let [xdp, tc] = packets;
        self.expected = Some([
            Expected { code: codes[0], packet: xdp, outcome },
            Expected { code: codes[1], packet: tc, outcome },
        ]);
        self
    }

    /// Both send `output` out of another device. XDP writes the link-layer addresses; after TC the kernel does.
    pub(crate) fn sends(self, outcome: Outcome, output: &Frame, to: Mac, from: Mac) -> Self {
        let packets = [output.clone().macs(to, from).bytes(), output.bytes()];
        self.expect([XDP_REDIRECT, TC_REDIRECT], packets, outcome)
    }

    /// Both forward to the backend of a side.
    pub(crate) fn forwards(self, side: Side) -> Self {
        let output = side.forwarded(self.input.clone());
        self.sends(Outcome::Forwarded, &output, macs::BACKEND, macs::NODE_BACKENDS)
    }

    /// Both send `answer` back to the client.
    pub(crate) fn answers(self, outcome: Outcome, answer: &Frame) -> Self {
        let bytes = answer.clone().macs(macs::CLIENT, macs::NODE_CLIENTS).bytes();
        self.expect([XDP_TX, TC_REDIRECT], [bytes.clone(), bytes], outcome)
    }

    /// Both pass it on as not ours.
    pub(crate) fn passes(self) -> Self {
        let input = self.input();
        self.expect([XDP_PASS, TC_UNSPEC], [input.clone(), input], Outcome::Foreign)
    }

    /// Both drop it.
    pub(crate) fn drops(self, outcome: Outcome) -> Self {
        let input = self.input();
        self.expect([XDP_DROP, TC_SHOT], [input.clone(), input], outcome)
    }

    /// XDP does otherwise: leaves it untouched to TC.
    pub(crate) fn xdp_leaves_it(mut self) -> Self {
        let packet = self.input();
        let expected = self.expected.as_mut().expect("said after what both do");
        expected[0] = Expected { code: XDP_PASS, packet, outcome: Outcome::LeftToTc };
        self
    }

    /// XDP returns another code.
    pub(crate) fn xdp_code(mut self, code: u32) -> Self {
        self.expected.as_mut().expect("said after what both do")[0].code = code;
        self
    }

    /// Runs the row in both entries.
    pub(crate) fn check(self) {
        let expected = self.expected.clone().expect("a row says what it expects");
        for (entry, expected) in Entry::ALL.into_iter().zip(expected) {
            let entry_name = entry.name();
            self.check_entry(entry, &expected).unwrap_or_else(|error| panic!("{entry_name}: {error:#}"));
        }
    }

    fn check_entry(&self, entry: Entry, expected: &Expected) -> Result<()> {
        let entry_name = entry.name();
        let mut world = World::create()?;
        (self.given)(&mut world)?;
        let input = self.input();
        let ran = world.run(entry, self.device, &input, self.segment)?;
        let outcomes = world.outcomes(entry)?;
        assert_eq!(ran.code, expected.code, "{entry_name}: return code; counted {outcomes:?}");
        assert!(
            ran.packet == expected.packet,
            "{entry_name}: {}",
            packet::diff(&expected.packet, &ran.packet)
        );
        let [(outcome, count)] = outcomes[..] else { panic!("{entry_name}: one outcome, not {outcomes:?}") };
        assert_eq!(outcome, expected.outcome, "{entry_name}");
        assert_eq!((count.packets, count.bytes), (1, input.len() as u64), "{entry_name}");
        (self.then)(&mut world, entry)
    }
}

/// Makes each row a test of its own.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $row:expr;)+) => {
        $($(#[$doc])* #[test] fn $name() { $row.check(); })+
    };
}
pub(crate) use rows;
