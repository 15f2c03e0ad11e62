//! The kernel's `netdev` family of generic netlink: XDP features of devices, and word of their change.
//!
//! Only what is needed of it: two requests, three attributes. Messages and attributes are in host byte order,
//! attributes begin at multiples of four bytes.
//!
//! # Source
//! The kernel's Documentation/netlink/specs/netdev.yaml and include/uapi/linux/{netlink,genetlink,netdev}.h.

use std::{collections::BTreeMap, io};

use rtnetlink::sys::{AsyncSocket as _, Socket, SocketAddr, TokioSocket, protocols::NETLINK_GENERIC};

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `nlmsghdr` and `genlmsghdr`.
const HEADERS: usize = 16 + 4;
/// Bits of an attribute's type that are not its type.
const NLA_FLAGS: u16 = 0xc000;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

const FAMILY: &[u8] = b"netdev\0";
/// The group that is told when a device or what it can do changes.
const GROUP: &[u8] = b"mgmt\0";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// XDP features by interface index.
pub(super) fn xdp_features() -> io::Result<BTreeMap<u32, u64>> {
    let socket = Channel::open()?;
    let family = socket.family()?;
    let mut features = BTreeMap::new();
    socket.request(family.id, NETDEV_CMD_DEV_GET, NLM_F_DUMP, &[], |attributes| {
        let mut index = None;
        let mut bits = None;
        for (kind, value) in Attributes(attributes) {
            match kind {
                NETDEV_A_DEV_IFINDEX => index = value.try_into().ok().map(u32::from_ne_bytes),
                NETDEV_A_DEV_XDP_FEATURES => bits = value.try_into().ok().map(u64::from_ne_bytes),
                _ => {}
            }
        }
        features.extend(index.zip(bits));
    })?;
    Ok(features)
}

/// A socket on which a message arrives when a device's XDP features change.
pub(super) fn changes() -> io::Result<TokioSocket> {
    let family = Channel::open()?.family()?;
    let group = family.group.ok_or_else(|| invalid("it has no multicast group"))?;
    let mut socket = TokioSocket::new(NETLINK_GENERIC)?;
    socket.socket_mut().bind_auto()?;
    socket.socket_mut().add_membership(group)?;
    Ok(socket)
}

struct Family {
    id: u16,
    group: Option<u32>,
}

/// A socket for requests that the kernel answers at once.
struct Channel(Socket);

impl Channel {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    fn family(&self) -> io::Result<Family> {
        let mut id = None;
        let mut group = None;
        let name = attribute(CTRL_ATTR_FAMILY_NAME, FAMILY);
        self.request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, &name, |attributes| {
            for (kind, value) in Attributes(attributes) {
                match kind {
                    CTRL_ATTR_FAMILY_ID => id = value.try_into().ok().map(u16::from_ne_bytes),
                    CTRL_ATTR_MCAST_GROUPS => {
                        group = Attributes(value).find_map(|(_, group)| group_id(group));
                    }
                    _ => {}
                }
            }
        })?;
        Ok(Family { id: id.ok_or_else(|| invalid("it has no number"))?, group })
    }

    /// Sends a request and hands the attributes of each answer to `take`.
    fn request(
        &self,
        family: u16,
        command: u8,
        flags: u16,
        attributes: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEADERS + attributes.len());
        let length = u32::try_from(HEADERS + attributes.len()).map_err(io::Error::other)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&family.to_ne_bytes());
        message.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        // Sequence and port numbers: one request at a time, on a socket of its own.
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[command, 1, 0, 0]);
        message.extend_from_slice(attributes);
        self.0.send(&message, 0)?;
        loop {
            let (datagram, _) = self.0.recv_from_full()?;
            for (kind, body) in Messages(&datagram) {
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return result(body),
                    _ => take(body.get(HEADERS - 16..).unwrap_or_default()),
                }
            }
            if flags & NLM_F_DUMP == 0 {
                return Ok(());
            }
        }
    }
}

fn result(body: &[u8]) -> io::Result<()> {
    let code = body.first_chunk().copied().map_or(0, i32::from_ne_bytes);
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

fn group_id(attributes: &[u8]) -> Option<u32> {
    let of = |wanted| Attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if of(CTRL_ATTR_MCAST_GRP_NAME)? != GROUP {
        return None;
    }
    of(CTRL_ATTR_MCAST_GRP_ID)?.try_into().ok().map(u32::from_ne_bytes)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // The only value is a name of seven bytes.
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut attribute = Vec::from(length.to_ne_bytes());
    attribute.extend_from_slice(&kind.to_ne_bytes());
    attribute.extend_from_slice(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Types and bodies of the messages in a datagram. Ends at one that is cut short.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(u32::from_ne_bytes(*self.0.first_chunk()?)).ok()?;
        let kind = u16::from_ne_bytes(self.0.get(4..6)?.try_into().ok()?);
        let body = self.0.get(16..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    }
}

/// Types and values of attributes. Ends at one that is cut short.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?) & !NLA_FLAGS;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_to_the_end_and_no_further() {
        let mut bytes = attribute(CTRL_ATTR_FAMILY_NAME, FAMILY);
        bytes.extend(attribute(CTRL_ATTR_FAMILY_ID | NLA_FLAGS, &[1, 0]));
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(CTRL_ATTR_FAMILY_NAME, FAMILY), (CTRL_ATTR_FAMILY_ID, &[1, 0][..])]);
        for cut in 0..bytes.len() {
            assert!(Attributes(&bytes[..cut]).count() <= 2);
            assert!(Messages(&bytes[..cut]).count() <= 1);
        }
        // A length of zero must not turn forever.
        assert_eq!(Attributes(&[0; 8]).count(), 0);
        assert_eq!(Messages(&[0; 32]).count(), 0);
    }

    #[test]
    fn every_namespace_has_a_loopback_device() {
        let features = xdp_features().unwrap();
        assert!(features.contains_key(&1), "{features:?}");
    }
}
