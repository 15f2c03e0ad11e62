//! The ports that `nat` mode uses towards backends.
//!
//! They must not be ports that the node's own sockets are given, or a reply to the node would be taken for a
//! client's: the kernel gives out those of `ip_local_port_range`, less `ip_local_reserved_ports`.

use std::{fs, io, ops::RangeInclusive};

use gateway_common::Config;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Ports from which ranges are taken: the privileged ones are left to services.
const USABLE: RangeInclusive<u16> = 1_024..=65_535;
/// Fewer ports than this would be exhausted at once by one client's connections to one backend.
const FEWEST: usize = 1_024;

/// Why there is no range of ports.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum PortsError {
    /// The asked range is also the node's own.
    #[error(
        "NAT ports {first}-{last} overlap with port {port}, which the node's own sockets may be given \
         (net.ipv4.ip_local_port_range); choose others, or add them to net.ipv4.ip_local_reserved_ports"
    )]
    Overlap {
        /// First port asked for.
        first: u16,
        /// Last port asked for.
        last: u16,
        /// A port in both.
        port: u16,
    },
    /// The asked range is empty, or takes privileged ports.
    #[error("NAT ports {first}-{last} are not a range within 1024-65535")]
    Range {
        /// First port asked for.
        first: u16,
        /// Last port asked for.
        last: u16,
    },
    /// The node's own range leaves no room.
    #[error(
        "the node's own sockets may be given nearly every port; reserve some for NAT, as in \
         `sysctl net.ipv4.ip_local_reserved_ports=20000-32767`"
    )]
    NoRoom,
    /// A setting could not be read.
    #[error("read {path}: {error}")]
    Read {
        /// Which.
        path: &'static str,
        /// What happened.
        error: String,
    },
}

/// The range asked for, checked, or the longest one that there is.
pub(super) fn nat_ports(asked: Option<RangeInclusive<u16>>) -> Result<RangeInclusive<u16>, PortsError> {
    choose(asked, &own_ports(&read(RANGE)?, &read(RESERVED)?))
}

/// How many ports a range has; it does not have all 65,536.
pub(super) fn count(ports: &RangeInclusive<u16>) -> u16 {
    ports.end() - ports.start() + 1
}

/// The shortest range with the ports to which adopted flows are answered, and `ports`.
pub(super) fn spanning(adopted: &Config, ports: &RangeInclusive<u16>) -> RangeInclusive<u16> {
    let Some(last) = adopted.reply_port_count.checked_sub(1) else { return ports.clone() };
    let last = adopted.reply_port_first.saturating_add(last);
    adopted.reply_port_first.min(*ports.start())..=last.max(*ports.end())
}

fn read(path: &'static str) -> Result<String, PortsError> {
    fs::read_to_string(path).map_err(|error: io::Error| PortsError::Read { path, error: error.to_string() })
}

/// Which ports the node's own sockets may be given, by port.
fn own_ports(range: &str, reserved: &str) -> Vec<bool> {
    let mut own = vec![false; 65_536];
    let mut ends = range.split_whitespace().filter_map(|port| port.parse::<u16>().ok());
    if let (Some(first), Some(last)) = (ends.next(), ends.next()) {
        (first..=last).for_each(|port| own[usize::from(port)] = true);
    }
    for part in reserved.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (first..=last).for_each(|port| own[usize::from(port)] = false);
        }
    }
    own
}

fn choose(asked: Option<RangeInclusive<u16>>, own: &[bool]) -> Result<RangeInclusive<u16>, PortsError> {
    let Some(asked) = asked else {
        return longest(own).filter(|range| range.len() >= FEWEST).ok_or(PortsError::NoRoom);
    };
    let (first, last) = (*asked.start(), *asked.end());
    if first > last || !USABLE.contains(&first) {
        return Err(PortsError::Range { first, last });
    }
    match asked.clone().find(|port| own[usize::from(*port)]) {
        Some(port) => Err(PortsError::Overlap { first, last, port }),
        None => Ok(asked),
    }
}

/// The longest run of ports that are not the node's own; the first of equals.
fn longest(own: &[bool]) -> Option<RangeInclusive<u16>> {
    let mut longest: Option<RangeInclusive<u16>> = None;
    let mut start = None;
    for port in USABLE {
        if own[usize::from(port)] {
            start = None;
            continue;
        }
        let run = *start.get_or_insert(port)..=port;
        if longest.as_ref().is_none_or(|longest| run.len() > longest.len()) {
            longest = Some(run);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wider_side_is_taken() {
        let default = own_ports("32768\t60999\n", "\n");
        assert_eq!(choose(None, &default), Ok(1_024..=32_767));
        let low = own_ports("1024 40000", "");
        assert_eq!(choose(None, &low), Ok(40_001..=65_535));
        let high = own_ports("2000 65535", "");
        assert_eq!(choose(None, &high), Err(PortsError::NoRoom));
        let reserved = own_ports("1024 65535", "3000,20000-32767");
        assert_eq!(choose(None, &reserved), Ok(20_000..=32_767));
    }

    #[test]
    fn an_asked_range_may_not_overlap() {
        let own = own_ports("32768 60999", "40000-45000");
        assert_eq!(choose(Some(61_000..=65_535), &own), Ok(61_000..=65_535));
        assert_eq!(choose(Some(40_000..=45_000), &own), Ok(40_000..=45_000));
        assert_eq!(
            choose(Some(30_000..=40_000), &own),
            Err(PortsError::Overlap { first: 30_000, last: 40_000, port: 32_768 })
        );
        assert_eq!(choose(Some(80..=90), &own), Err(PortsError::Range { first: 80, last: 90 }));
    }

    #[test]
    fn adopted_flows_are_still_answered() {
        let adopted =
            |first, count| Config { reply_port_first: first, reply_port_count: count, ..Config::default() };
        assert_eq!(spanning(&adopted(1_024, 31_744), &(2_000..=3_000)), 1_024..=32_767);
        assert_eq!(spanning(&adopted(2_000, 1_001), &(61_000..=65_535)), 2_000..=65_535);
        assert_eq!(spanning(&adopted(0, 0), &(2_000..=3_000)), 2_000..=3_000);
    }
}
