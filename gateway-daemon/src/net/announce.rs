//! Announcing addresses to the neighbours on a link: gratuitous ARP (RFC 5227) and unsolicited Neighbour
//! Advertisements (RFC 4861, section 7.2.6).
//!
//! Whoever had the address before may be gone without a word, so the neighbours are told at once where to send now,
//! and again a few times, since a frame may be lost.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::LinkAttribute;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use super::{Error, Network};

/// An Ethernet address.
type Mac = [u8; 6];

/// How often a new owner tells: at once, and then after pauses that double.
const TIMES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

const BROADCAST: Mac = [0xff; 6];
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

impl Network {
    /// Announces addresses on a device, several times, without waiting for it. Nobody answers, so nothing can be said
    /// of who has heard.
    ///
    /// # Errors
    /// When there is no such device, or it has no Ethernet address to announce.
    pub async fn announce(&self, interface: &str, addresses: Vec<IpAddr>) -> Result<(), Error> {
        let index = self.interface_index(interface).await?;
        let mac = self.mac_of(index).await?;
        let frames: Vec<Vec<u8>> = addresses.iter().flat_map(|address| frames(mac, *address)).collect();
        let interface = interface.to_owned();
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            for _ in 0..TIMES {
                if let Err(error) = send(index, &frames) {
                    tracing::warn!(interface, %error, "cannot announce addresses");
                    return;
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        });
        Ok(())
    }

    async fn mac_of(&self, index: u32) -> Result<Mac, Error> {
        let mut links = self.handle.link().get().match_index(index).execute();
        let link = links.try_next().await.map_err(Error::request("ask for a device"))?;
        let attributes = link.map(|link| link.attributes).unwrap_or_default();
        let mac = attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(address) => Mac::try_from(address.as_slice()).ok(),
            _ => None,
        });
        mac.ok_or(Error::NoEthernet(index))
    }
}

/// The frames that announce an address: for IPv4 both kinds that neighbours listen to, as RFC 5227 (section 3) has it.
fn frames(mac: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => [ARP_REQUEST, ARP_REPLY].map(|operation| arp(mac, address, operation)).into(),
        IpAddr::V6(address) => vec![advertisement(mac, address)],
    }
}

const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;

fn arp(mac: Mac, address: Ipv4Addr, operation: u16) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, mac, ETHERTYPE_ARP);
    // Ethernet, IPv4, and how long their addresses are.
    frame.extend([0, 1, 0x08, 0x00, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(mac);
    frame.extend(address.octets());
    // A request asks for nobody's Ethernet address; an answer gives ours to everybody.
    frame.extend(if operation == ARP_REQUEST { [0; 6] } else { BROADCAST });
    frame.extend(address.octets());
    frame
}

/// To all nodes, with the override flag, so that what they knew is replaced.
fn advertisement(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 0x20;
    const TARGET_LINK_LAYER_ADDRESS: [u8; 2] = [2, 1];
    let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    message.extend(address.octets());
    message.extend(TARGET_LINK_LAYER_ADDRESS);
    message.extend(mac);
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut pseudo_header = Vec::with_capacity(40 + message.len());
    pseudo_header.extend(address.octets());
    pseudo_header.extend(ALL_NODES.octets());
    pseudo_header.extend(u32::from(length).to_be_bytes());
    pseudo_header.extend([0, 0, 0, ICMPV6]);
    pseudo_header.extend(&message);
    message[2..4].copy_from_slice(&checksum(&pseudo_header).to_be_bytes());
    let mut frame = ethernet([0x33, 0x33, 0, 0, 0, 1], mac, ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    // Neighbours take it only if no router was in between.
    frame.extend([ICMPV6, 255]);
    frame.extend(address.octets());
    frame.extend(ALL_NODES.octets());
    frame.extend(message);
    frame
}

fn ethernet(to: Mac, from: Mac, ethertype: u16) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes()].concat()
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// Sends frames out of a device.
fn send(index: u32, frames: &[Vec<u8>]) -> io::Result<()> {
    // No protocol: the socket gets no packets.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let device = link_address(index)?;
    for frame in frames {
        socket.send_to(frame, &device)?;
    }
    Ok(())
}

/// The address of a device for sockets of packets (packet(7)); the frame itself says to whom it goes.
fn link_address(index: u32) -> io::Result<SockAddr> {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a sockaddr_ll is one of the kinds that the storage is made for, and has no invalid values.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    address.sll_ifindex = i32::try_from(index).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: the family and the length are those of what was written.
    Ok(unsafe { SockAddr::new(storage, length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn hex(frame: &[u8]) -> String {
        let nibbles = frame.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
    }

    #[test]
    fn an_ipv4_address_is_announced_by_request_and_reply() {
        let [request, reply] = &frames(MAC, "198.18.0.5".parse().unwrap())[..] else { panic!("two frames") };
        assert_eq!(
            hex(request),
            "ffffffffffff02000000000908060001080006040001020000000009c6120005000000000000c6120005"
        );
        assert_eq!(
            hex(reply),
            "ffffffffffff02000000000908060001080006040002020000000009c6120005ffffffffffffc6120005"
        );
    }

    #[test]
    fn an_ipv6_address_is_announced_to_all_nodes() {
        let [frame] = &frames(MAC, "2001:db8::5".parse().unwrap())[..] else { panic!("one frame") };
        let (head, message) = frame.split_at(14 + 40);
        assert_eq!(
            hex(head),
            "33330000000102000000000986dd\
             6000000000203aff20010db8000000000000000000000005ff020000000000000000000000000001"
        );
        assert_eq!(&hex(message)[..4], "8800");
        assert_eq!(hex(&message[4..]), "2000000020010db80000000000000000000000050201020000000009");
        // With the checksum in it, the sum over pseudo-header and message comes to nothing.
        let pseudo = [&head[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], message].concat();
        assert_eq!(checksum(&pseudo), 0);
    }
}
