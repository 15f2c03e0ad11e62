//! Frames for test rows: built from their meaning, with lengths and checksums computed in full.
//!
//! An expected frame is the input frame with the fields changed that should change; because every checksum is summed
//! anew over the whole packet, it checks the programs' incremental arithmetic and does not repeat it.

use std::net::{IpAddr, SocketAddr};

/// Bits of a TCP header's flags.
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Resets it.
    pub const RST: u8 = 4;
    /// Delivers at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement is meant.
    pub const ACK: u8 = 16;
}

/// A link-layer address.
pub type Mac = [u8; 6];

#[derive(Clone, Debug)]
enum Upper {
    Tcp { flags: u8, sequence: u32, acknowledgement: u32, window: u16, options: Vec<u8> },
    Udp { checksum: bool, length: Option<u16> },
    Icmp { kind: u8, code: u8 },
}

/// One frame, in its meaning. [`bytes`](Self::bytes) makes it what is on the wire.
#[derive(Clone, Debug)]
pub struct Frame {
    macs: [Mac; 2],
    tags: Vec<(u16, u16)>,
    source: SocketAddr,
    destination: SocketAddr,
    hop_limit: u8,
    identification: u16,
    /// Flags and offset of IPv4, as in the header.
    fragment: u16,
    options: Vec<u8>,
    extensions: Vec<(u8, Vec<u8>)>,
    upper: Upper,
    payload: Vec<u8>,
}

impl Frame {
    fn new(source: &str, destination: &str, upper: Upper) -> Self {
        Self {
            macs: [[0; 6]; 2],
            tags: Vec::new(),
            source: source.parse().expect("an address and a port"),
            destination: destination.parse().expect("an address and a port"),
            hop_limit: 64,
            identification: 0,
            fragment: 0x4000,
            options: Vec::new(),
            extensions: Vec::new(),
            upper,
            payload: Vec::new(),
        }
    }

    /// A TCP segment without payload.
    pub fn tcp(source: &str, destination: &str, flags: u8) -> Self {
        let upper = Upper::Tcp { flags, sequence: 0, acknowledgement: 0, window: 0, options: Vec::new() };
        Self::new(source, destination, upper)
    }

    /// A UDP datagram.
    pub fn udp(source: &str, destination: &str, payload: &[u8]) -> Self {
        Self::new(source, destination, Upper::Udp { checksum: true, length: None }).payload(payload)
    }

    /// An ICMP message of either family, `quote` after its eight bytes. The ports are ignored.
    pub fn icmp(source: &str, destination: &str, kind: u8, code: u8, quote: &[u8]) -> Self {
        Self::new(source, destination, Upper::Icmp { kind, code }).payload(quote)
    }

    /// Destination and source on the link.
    #[must_use]
    pub fn macs(mut self, destination: Mac, source: Mac) -> Self {
        self.macs = [destination, source];
        self
    }

    /// Adds an inner VLAN tag: its protocol and its VLAN.
    #[must_use]
    pub fn tag(mut self, protocol: u16, vlan: u16) -> Self {
        self.tags.push((protocol, vlan));
        self
    }

    /// Source address and port.
    #[must_use]
    pub fn from(mut self, source: &str) -> Self {
        self.source = source.parse().expect("an address and a port");
        self
    }

    /// Destination address and port.
    #[must_use]
    pub fn to(mut self, destination: &str) -> Self {
        self.destination = destination.parse().expect("an address and a port");
        self
    }

    /// TTL or hop limit.
    #[must_use]
    pub fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// Flags and fragment offset of an IPv4 header, as they are in it.
    #[must_use]
    pub fn fragment(mut self, fragment: u16) -> Self {
        self.fragment = fragment;
        self
    }

    /// Options of an IPv4 header; a multiple of four bytes.
    #[must_use]
    pub fn ip_options(mut self, options: &[u8]) -> Self {
        assert_eq!(options.len() % 4, 0);
        self.options = options.to_vec();
        self
    }

    /// Adds an IPv6 extension header: its number, and its bytes after "next header".
    #[must_use]
    pub fn extension(mut self, number: u8, rest: &[u8]) -> Self {
        assert_eq!((rest.len() + 1) % 8, 0);
        self.extensions.push((number, rest.to_vec()));
        self
    }

    /// Sequence and acknowledgement number.
    #[must_use]
    pub fn numbers(mut self, new_sequence: u32, new_acknowledgement: u32) -> Self {
        if let Upper::Tcp { sequence, acknowledgement, .. } = &mut self.upper {
            (*sequence, *acknowledgement) = (new_sequence, new_acknowledgement);
        }
        self
    }

    /// Window, and options of a multiple of four bytes.
    #[must_use]
    pub fn window(mut self, new_window: u16, new_options: &[u8]) -> Self {
        if let Upper::Tcp { window, options, .. } = &mut self.upper {
            (*window, *options) = (new_window, new_options.to_vec());
        }
        self
    }

    /// A UDP datagram over IPv4 without a checksum.
    #[must_use]
    pub fn without_checksum(mut self) -> Self {
        self.upper = Upper::Udp { checksum: false, length: None };
        self
    }

    /// A UDP datagram whose length field says this.
    #[must_use]
    pub fn udp_length(mut self, length: u16) -> Self {
        self.upper = Upper::Udp { checksum: true, length: Some(length) };
        self
    }

    /// What follows the transport header.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// From the Ethernet header on.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.macs[0]);
        bytes.extend(self.macs[1]);
        for (protocol, vlan) in &self.tags {
            bytes.extend(protocol.to_be_bytes());
            bytes.extend(vlan.to_be_bytes());
        }
        bytes.extend(if self.source.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        bytes.extend(self.network());
        bytes
    }

    /// From the network header on: what an ICMP error quotes.
    pub fn network(&self) -> Vec<u8> {
        let upper = self.upper();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let words = (20 + self.options.len()) / 4;
                let length = u16::try_from(words * 4 + upper.len()).expect("a packet fits its length field");
                let mut header = vec![0x40 | u8::try_from(words).expect("a header fits its length field"), 0];
                header.extend(length.to_be_bytes());
                header.extend(self.identification.to_be_bytes());
                header.extend(self.fragment.to_be_bytes());
                header.extend([self.hop_limit, self.protocol(), 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                header.extend(&self.options);
                let sum = internet_checksum(&header);
                header[10..12].copy_from_slice(&sum);
                [header, upper].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let extensions: usize = self.extensions.iter().map(|(_, rest)| rest.len() + 1).sum();
                let length = u16::try_from(extensions + upper.len()).expect("a packet fits its length field");
                let numbers: Vec<u8> = self.extensions.iter().map(|(number, _)| *number).collect();
                let mut next = numbers.into_iter().chain([self.protocol()]);
                let mut header = vec![0x60, 0, 0, 0];
                header.extend(length.to_be_bytes());
                header.extend([next.next().expect("one more number than extensions"), self.hop_limit]);
                header.extend(source.octets());
                header.extend(destination.octets());
                for (_, rest) in &self.extensions {
                    header.push(next.next().expect("one more number than extensions"));
                    header.extend(rest);
                }
                [header, upper].concat()
            }
            _ => panic!("a frame between families"),
        }
    }

    fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Tcp { .. } => 6,
            Upper::Udp { .. } => 17,
            Upper::Icmp { .. } if self.source.is_ipv4() => 1,
            Upper::Icmp { .. } => 58,
        }
    }

    /// The transport header and the payload.
    fn upper(&self) -> Vec<u8> {
        let ports = [self.source.port().to_be_bytes(), self.destination.port().to_be_bytes()].concat();
        let (mut upper, at) = match &self.upper {
            Upper::Tcp { flags, sequence, acknowledgement, window, options } => {
                let mut header = ports;
                header.extend(sequence.to_be_bytes());
                header.extend(acknowledgement.to_be_bytes());
                header.extend([
                    u8::try_from((20 + options.len()) / 4).expect("a header fits its length field") << 4,
                    *flags,
                ]);
                header.extend(window.to_be_bytes());
                header.extend([0; 4]);
                header.extend(options);
                (header, 16)
            }
            Upper::Udp { length, .. } => {
                let length = length.unwrap_or_else(|| {
                    u16::try_from(8 + self.payload.len()).expect("a packet fits its length field")
                });
                ([ports, length.to_be_bytes().to_vec(), vec![0; 2]].concat(), 6)
            }
            Upper::Icmp { kind, code } => (vec![*kind, *code, 0, 0, 0, 0, 0, 0], 2),
        };
        upper.extend(&self.payload);
        let sum = internet_checksum(&[self.pseudo(upper.len()), upper.clone()].concat());
        let sum = match self.upper {
            Upper::Udp { checksum: false, .. } => [0; 2],
            Upper::Udp { .. } if sum == [0; 2] => [0xff; 2],
            _ => sum,
        };
        upper[at..at + 2].copy_from_slice(&sum);
        upper
    }

    /// The pseudo-header, of even length; none for ICMP over IPv4.
    fn pseudo(&self, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).expect("a packet is short").to_be_bytes();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(_), _) if matches!(self.upper, Upper::Icmp { .. }) => Vec::new(),
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                [&source.octets()[..], &destination.octets(), &[0, self.protocol()], &length[2..]].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                [&source.octets()[..], &destination.octets(), &length, &[0, 0, 0, self.protocol()]].concat()
            }
            _ => panic!("a frame between families"),
        }
    }
}

/// The Internet checksum of bytes in which the checksum's own field is zero (RFC 1071), in network order.
pub fn internet_checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).expect("a packet fits its length field")).to_be_bytes()
}

/// Two frames side by side, the lines that differ marked.
pub fn diff(expected: &[u8], seen: &[u8]) -> String {
    let line = |bytes: &[u8], row: usize| {
        let from = (row * 16).min(bytes.len());
        let to = (from + 16).min(bytes.len());
        bytes[from..to].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let rows = expected.len().max(seen.len()).div_ceil(16);
    let rows = (0..rows).map(|row| {
        let (expected, seen) = (line(expected, row), line(seen, row));
        let mark = if expected == seen { ' ' } else { '!' };
        format!("{mark} {:04x}  {expected:<47} | {seen}", row * 16)
    });
    let title = format!("expected {} bytes, seen {}", expected.len(), seen.len());
    [title].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_rfc_1071() {
        assert_eq!(
            internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            (!0xddf2_u16).to_be_bytes()
        );
    }

    #[test]
    fn a_frame_sums_to_zero() {
        for (source, destination) in
            [("198.18.0.1:1", "198.18.0.2:2"), ("[2001:db8::1]:1", "[2001:db8::2]:2")]
        {
            let frame = Frame::udp(source, destination, b"odd");
            let upper = frame.upper();
            assert_eq!(internet_checksum(&[frame.pseudo(upper.len()), upper].concat()), [0; 2]);
        }
    }
}
