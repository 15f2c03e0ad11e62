//! Addresses for Gateways that ask for none in particular, from a pool.
//!
//! What was given is written down in the status of each Gateway; [`assign`] keeps to that and gives addresses to those
//! that have none. It is pure, so that it can be tried without a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
};

use ipnet::IpNet;

use crate::api::{Key, Object, gateway::Gateway};

/// Addresses that Gateways may have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pool {
    ranges: Vec<Range>,
}

/// Addresses of one family, from the first to the last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Range(RangeInclusive<IpAddr>);

/// Which addresses Gateways have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assigned {
    /// Those that can be had.
    pub pool: Pool,
    /// Those that were given to Gateways that ask for none in particular.
    pub given: BTreeMap<Key, Vec<IpAddr>>,
}

/// `FIRST-LAST`, a CIDR, or one address. Of a network, the addresses that mean all of it are not meant: the first and
/// the last one of an IPv4 network, the first one of an IPv6 network (RFC 4291, section 2.6.1).
impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text} is no range of addresses: write it as 198.18.0.0/24, 198.18.0.10-198.18.0.20 or 198.18.0.7"
            )
        };
        if let Ok(network) = text.parse::<IpNet>() {
            let (first, last) = match network {
                IpNet::V4(network) if network.prefix_len() < 31 => {
                    let bits = (network.network().to_bits() + 1, network.broadcast().to_bits() - 1);
                    (Ipv4Addr::from_bits(bits.0).into(), Ipv4Addr::from_bits(bits.1).into())
                }
                IpNet::V6(network) if network.prefix_len() < 127 => {
                    let first = network.network().to_bits() + 1;
                    (Ipv6Addr::from_bits(first).into(), network.broadcast().into())
                }
                network => (network.network(), network.broadcast()),
            };
            return Ok(Self(first..=last));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_not_one| wrong());
        let (first, last) = (parse(first)?, parse(last)?);
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(wrong());
        }
        Ok(Self(first..=last))
    }
}

impl FromIterator<Range> for Pool {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        Self { ranges: ranges.into_iter().collect() }
    }
}

impl Pool {
    /// Whether an address is one of it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.0.contains(&address))
    }

    /// The first address of a family that is not taken.
    fn free(&self, ipv4: bool, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let ranges = self.ranges.iter().filter(|range| range.0.start().is_ipv4() == ipv4);
        ranges.into_iter().find_map(|range| {
            let mut candidate = Some(*range.0.start());
            // Ends after at most as many steps as addresses are taken.
            while let Some(address) = candidate.filter(|address| range.0.contains(address)) {
                if !taken.contains(&address) {
                    return Some(address);
                }
                candidate = next(address);
            }
            None
        })
    }

    fn has(&self, ipv4: bool) -> bool {
        self.ranges.iter().any(|range| range.0.start().is_ipv4() == ipv4)
    }
}

fn next(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().checked_add(1)?).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().checked_add(1)?).into(),
    })
}

/// Gives each Gateway one address of each family that the pool has, unless it asks for particular ones.
///
/// `gateways` are those of ours, the oldest first: who is older keeps an address that two were given. `recorded` says
/// what they have now; with `may_give` false, nobody gets a new one.
pub fn assign(
    pool: &Pool,
    gateways: &[&Object<Gateway>],
    recorded: &BTreeMap<Key, Vec<IpAddr>>,
    may_give: bool,
) -> BTreeMap<Key, Vec<IpAddr>> {
    let mut taken: BTreeSet<IpAddr> = gateways
        .iter()
        .flat_map(|gateway| &gateway.spec.addresses)
        .filter_map(|asked| asked.value.parse().ok())
        .collect();
    let mut given: BTreeMap<Key, Vec<IpAddr>> = BTreeMap::new();
    let waiting = || gateways.iter().filter(|gateway| wants_any(&gateway.spec)).map(|gateway| gateway.key());
    for key in waiting() {
        let kept = given.entry(key.clone()).or_default();
        for address in recorded.get(&key).into_iter().flatten().filter(|address| pool.contains(**address)) {
            let of_family = kept.iter().any(|other| other.is_ipv4() == address.is_ipv4());
            if !of_family && taken.insert(*address) {
                kept.push(*address);
            }
        }
    }
    for key in waiting().filter(|_| may_give) {
        let kept = given.entry(key).or_default();
        for ipv4 in [true, false] {
            let wanted = pool.has(ipv4) && kept.iter().all(|address| address.is_ipv4() != ipv4);
            if let Some(address) = wanted.then(|| pool.free(ipv4, &taken)).flatten() {
                taken.insert(address);
                kept.push(address);
            }
        }
    }
    for addresses in given.values_mut() {
        addresses.sort_unstable();
    }
    given
}

/// Whether a Gateway leaves it to us which addresses it gets.
fn wants_any(gateway: &Gateway) -> bool {
    gateway.addresses.is_empty()
        || gateway.addresses.iter().any(|asked| asked.address_type == "IPAddress" && asked.value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Metadata, gateway::Address};

    fn pool(ranges: &[&str]) -> Pool {
        ranges.iter().map(|range| range.parse::<Range>().unwrap()).collect()
    }

    fn gateway(name: &str, asks: &[&str]) -> Object<Gateway> {
        let addresses = asks
            .iter()
            .map(|value| Address { address_type: "IPAddress".into(), value: (*value).to_owned() })
            .collect();
        let spec = serde_json::json!({"gatewayClassName": "c", "listeners": []});
        let spec = Gateway { addresses, ..serde_json::from_value(spec).unwrap() };
        Object { metadata: Metadata { name: name.into(), ..Metadata::default() }, spec, origin: None }
    }

    fn given(
        pool: &Pool,
        gateways: &[&Object<Gateway>],
        recorded: &[(&str, &[&str])],
        may_give: bool,
    ) -> Vec<String> {
        let recorded = recorded
            .iter()
            .map(|(name, addresses)| {
                (Key::new("", name), addresses.iter().map(|address| address.parse().unwrap()).collect())
            })
            .collect();
        let line = |(key, addresses): (&Key, &Vec<IpAddr>)| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("{key} {}", addresses.join(" ")).trim_end().to_owned()
        };
        assign(pool, gateways, &recorded, may_give).iter().map(line).collect()
    }

    #[test]
    fn each_gateway_gets_one_of_each_family() {
        let pool = pool(&["198.18.0.0/30", "2001:db8::1-2001:db8::ff"]);
        let (a, b, c) = (gateway("a", &[]), gateway("b", &[""]), gateway("c", &[]));
        assert_eq!(
            given(&pool, &[&a, &b, &c], &[], true),
            ["a 198.18.0.1 2001:db8::1", "b 198.18.0.2 2001:db8::2", "c 2001:db8::3"]
        );
    }

    #[test]
    fn what_is_recorded_stays_and_the_older_one_keeps_it() {
        let pool = pool(&["198.18.0.1-198.18.0.9"]);
        let (a, b, c) = (gateway("a", &[]), gateway("b", &[]), gateway("c", &[]));
        let recorded: &[(&str, &[&str])] =
            &[("b", &["198.18.0.1"]), ("c", &["198.18.0.1"]), ("a", &["198.19.0.1"])];
        assert_eq!(
            given(&pool, &[&a, &b, &c], recorded, true),
            ["a 198.18.0.2", "b 198.18.0.1", "c 198.18.0.3"]
        );
        assert_eq!(given(&pool, &[&a, &b, &c], recorded, false), ["a", "b 198.18.0.1", "c"]);
    }

    #[test]
    fn addresses_asked_for_are_nobody_elses() {
        let pool = pool(&["198.18.0.1-198.18.0.2"]);
        let (a, b, c) = (gateway("a", &[]), gateway("b", &["198.18.0.1"]), gateway("c", &[]));
        assert_eq!(given(&pool, &[&a, &b, &c], &[("a", &["198.18.0.1"])], true), ["a 198.18.0.2", "c"]);
    }

    #[test]
    fn ranges_are_read() {
        for bad in ["198.18.0.0/33", "198.18.0.9-198.18.0.1", "198.18.0.1-2001:db8::1", "x"] {
            assert!(bad.parse::<Range>().is_err(), "{bad}");
        }
        let pool = pool(&["198.18.0.0/24", "198.18.1.7", "2001:db8::/120"]);
        let inside = |text: &str| pool.contains(text.parse().unwrap());
        assert!(inside("198.18.0.1") && inside("198.18.1.7") && inside("2001:db8::ff"));
        assert!(
            !inside("2001:db8::")
                && !inside("198.18.0.0")
                && !inside("198.18.0.255")
                && !inside("2001:db8::100")
        );
    }
}
