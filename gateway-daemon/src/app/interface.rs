//! `--interface IF[=MODE]`.

use std::{fmt, str::FromStr};

use crate::{
    l4::{Mode, ParseModeError},
    net::Device,
};

/// Longest name of an interface: IFNAMSIZ without the terminating zero.
const NAME_MAX: usize = 15;

/// Devices by name, and how their packets are taken. A name that ends in `*` stands for all that begin so, those
/// that come later included.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    name: String,
    mode: Mode,
}

/// Why a text is not `IF[=MODE]`.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum InterfaceError {
    /// The name is empty or too long.
    #[error("{0:?} is not the name of a network interface: it has 1 to {NAME_MAX} characters")]
    Name(String),
    /// The mode is none.
    #[error(transparent)]
    Mode(#[from] ParseModeError),
}

impl Interface {
    /// Whether a device is meant.
    pub fn matches(&self, device: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => device.starts_with(prefix),
            None => device == self.name,
        }
    }

    /// The name, when it stands for one device only.
    pub fn exact(&self) -> Option<&str> {
        (!self.name.ends_with('*')).then_some(self.name.as_str())
    }
}

impl FromStr for Interface {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let (name, mode) = match text.split_once('=') {
            Some((name, mode)) => (name, mode.parse()?),
            None => (text, Mode::Auto),
        };
        if name.trim_end_matches('*').len() > NAME_MAX || name.is_empty() || name.contains(['/', ' ']) {
            return Err(InterfaceError::Name(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), mode })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The devices that are meant, each by the first interface that fits it.
pub(super) fn select(interfaces: &[Interface], devices: &[Device]) -> Vec<(Device, Mode)> {
    let mode = |device: &Device| interfaces.iter().find(|interface| interface.matches(&device.name));
    devices.iter().filter_map(|device| Some((device.clone(), mode(device)?.mode))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modes() {
        let parse = |text: &str| text.parse::<Interface>();
        assert_eq!(parse("eth0").unwrap(), Interface { name: "eth0".into(), mode: Mode::Auto });
        assert_eq!(parse("veth*=tc").unwrap(), Interface { name: "veth*".into(), mode: Mode::Tc });
        assert!(matches!(parse("=tc"), Err(InterfaceError::Name(_))));
        assert!(matches!(parse("a-name-of-16-char"), Err(InterfaceError::Name(_))));
        assert!(matches!(parse("eth0=fast"), Err(InterfaceError::Mode(_))));
    }

    #[test]
    fn a_device_goes_by_the_first_that_fits() {
        let interfaces: Vec<Interface> = ["veth1=xdp", "veth*=tc"].map(|text| text.parse().unwrap()).into();
        let device = |name: &str| Device { name: name.to_owned(), ..Device::default() };
        let devices = ["veth1", "veth2", "eth0"].map(device);
        let selected = select(&interfaces, &devices);
        assert_eq!(selected, [(device("veth1"), Mode::Xdp), (device("veth2"), Mode::Tc)]);
    }
}
