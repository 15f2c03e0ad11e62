//! Attaching the programs to interfaces.
//!
//! The TC program goes on every interface. The XDP program goes in front of it where packets arrive with finished
//! checksums: on NICs. A veth, a tap or a port of a bridge hands over packets whose checksum is still to be computed,
//! which XDP cannot tell and would break; there TC does it all.
//!
//! Links are pinned by interface index. A link that is there already gets this process's program in place, because
//! detaching and attaching resets many NICs.

use std::{fmt, io, path::PathBuf, str::FromStr};

use aya::{
    Ebpf,
    programs::{
        LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode,
        links::{FdLink, LinkError, PinnedLink},
        tc::TcAttachOptions,
        xdp::XdpLink,
    },
    sys::SyscallError,
};
use gateway_common::maps::{TC_PROGRAM, XDP_PROGRAM};

use super::{Kernel, error::Error, pins};
use crate::net::{Device, xdp_features};

/// What names of pinned links begin with.
pub(super) const LINK_PREFIX: &str = "link_";

/// How an interface is asked to be attached.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Native XDP and TC on a NIC whose driver has it, TC elsewhere.
    #[default]
    Auto,
    /// Native XDP and TC.
    Xdp,
    /// Generic XDP and TC.
    XdpGeneric,
    /// TC.
    Tc,
}

/// A mode that there is not.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0} is none of auto, xdp, xdp-generic, tc")]
pub struct ParseModeError(pub String);

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "xdp" => Ok(Self::Xdp),
            "xdp-generic" => Ok(Self::XdpGeneric),
            "tc" => Ok(Self::Tc),
            other => Err(ParseModeError(other.to_owned())),
        }
    }
}

/// Where packets of an interface meet the programs first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// In the driver.
    XdpNative,
    /// After the driver, before the network stack.
    XdpGeneric,
    /// At tcx ingress.
    Tc,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XdpNative => "xdp native",
            Self::XdpGeneric => "xdp generic",
            Self::Tc => "tc",
        })
    }
}

/// An interface with the programs on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attachment {
    /// Name of the interface.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// How.
    pub way: Way,
    /// Why so, in words.
    pub reason: String,
}

impl Kernel {
    /// Attaches the programs to these interfaces and to no others: links of an earlier process get this one's
    /// programs in place, links to other interfaces are detached. May be called again when devices come and go.
    ///
    /// Where XDP is refused, the interface has TC alone, and the attachment says why.
    ///
    /// # Errors
    /// When the TC program cannot be attached to an interface, or a pin cannot be read or removed. The other interfaces
    /// are attached all the same; the first failure is told.
    pub fn attach(&mut self, interfaces: &[(Device, Mode)]) -> Result<&[Attachment], Error> {
        let mut kept = Vec::new();
        let mut attachments = Vec::new();
        let mut failure = None;
        for (device, mode) in interfaces {
            kept.push(pin_name(Way::Tc, device.index));
            match self.attach_one(device, *mode) {
                Ok(attachment) => {
                    if attachment.way != Way::Tc {
                        kept.push(pin_name(attachment.way, device.index));
                    }
                    attachments.push(attachment);
                }
                Err(error) => {
                    // What is there of an earlier attachment serves on until the next try.
                    kept.extend([Way::XdpNative, Way::XdpGeneric].map(|way| pin_name(way, device.index)));
                    failure = failure.or(Some(error));
                }
            }
        }
        for name in pins::names(self.pins.dir())? {
            if name.starts_with(LINK_PREFIX) && !kept.contains(&name) {
                detach(&self.pins.dir().join(name))?;
            }
        }
        self.attachments = attachments;
        failure.map_or(Ok(&self.attachments), Err)
    }

    /// TC first: from the first packet on it must finish what XDP leaves to it.
    fn attach_one(&mut self, device: &Device, mode: Mode) -> Result<Attachment, Error> {
        self.attach_tc(device)?;
        let (mut way, mut reason) = choose(mode, device);
        // A device takes one XDP mode at a time.
        for other in [Way::XdpNative, Way::XdpGeneric] {
            if other != way {
                detach(&self.link_path(other, device.index))?;
            }
        }
        if way != Way::Tc
            && let Err(refusal) = self.attach_xdp(device, way)?
        {
            reason = format!("{way} was refused: {refusal}");
            way = Way::Tc;
        }
        Ok(Attachment { interface: device.name.clone(), index: device.index, way, reason })
    }

    fn attach_tc(&mut self, device: &Device) -> Result<(), Error> {
        let path = self.link_path(Way::Tc, device.index);
        let attach_error =
            |source| Error::Attach { interface: device.name.clone(), source: Box::new(source) };
        let program = tc(&mut self.programs)?;
        if let Some(pinned) = open_link(&path)? {
            match update_tc(program, pinned) {
                Ok(()) => return Ok(()),
                Err(error) if is_gone(&error) => detach(&path)?,
                Err(error) => return Err(attach_error(error)),
            }
        }
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let link = program
            .attach_with_options(&device.name, TcAttachType::Ingress, options)
            .and_then(|id| program.take_link(id))
            .map_err(attach_error)?;
        let link = FdLink::try_from(link).map_err(|error| attach_error(link_error(error)))?;
        link.pin(&path).map_err(|error| attach_error(ProgramError::IOError(io::Error::other(error))))?;
        Ok(())
    }

    /// The inner result is the driver's word.
    fn attach_xdp(&mut self, device: &Device, way: Way) -> Result<Result<(), String>, Error> {
        let path = self.link_path(way, device.index);
        let program = xdp(&mut self.programs)?;
        if let Some(pinned) = open_link(&path)? {
            match update_xdp(program, pinned) {
                Ok(()) => return Ok(Ok(())),
                Err(_gone_or_refused) => detach(&path)?,
            }
        }
        let mode = if way == Way::XdpGeneric { XdpMode::Skb } else { XdpMode::Driver };
        match program.attach_to_if_index(device.index, mode).and_then(|id| program.take_link(id)) {
            Ok(link) => Ok(pin_xdp(link, path)),
            Err(error) => Ok(Err(with_causes(&error))),
        }
    }

    fn link_path(&self, way: Way, index: u32) -> PathBuf {
        self.pins.dir().join(pin_name(way, index))
    }
}

/// The way that a mode means on a device, and why.
fn choose(mode: Mode, device: &Device) -> (Way, String) {
    match mode {
        Mode::Xdp => (Way::XdpNative, "asked for".to_owned()),
        Mode::XdpGeneric => (Way::XdpGeneric, "asked for".to_owned()),
        Mode::Tc => (Way::Tc, "asked for".to_owned()),
        Mode::Auto => {
            if let Some(kind) = &device.kind {
                (Way::Tc, format!("a {kind} device may hand over packets whose checksums are not finished"))
            } else if let Some(master) = &device.master_kind {
                (Way::Tc, format!("it is a port of a {master} device"))
            } else if device.xdp_features & xdp_features::BASIC == 0 {
                (Way::Tc, "its driver has no native XDP".to_owned())
            } else {
                (Way::XdpNative, "its driver has native XDP".to_owned())
            }
        }
    }
}

fn pin_name(way: Way, index: u32) -> String {
    let way = match way {
        Way::XdpNative => "xdp_native",
        Way::XdpGeneric => "xdp_generic",
        Way::Tc => "tc",
    };
    format!("{LINK_PREFIX}{way}_{index}")
}

/// The XDP program of the object.
pub(super) fn xdp(programs: &mut Ebpf) -> Result<&mut Xdp, Error> {
    let program = programs.program_mut(XDP_PROGRAM).and_then(|program| program.try_into().ok());
    program.ok_or(Error::MissingProgram { program: XDP_PROGRAM })
}

/// The TC program of the object.
pub(super) fn tc(programs: &mut Ebpf) -> Result<&mut SchedClassifier, Error> {
    let program = programs.program_mut(TC_PROGRAM).and_then(|program| program.try_into().ok());
    program.ok_or(Error::MissingProgram { program: TC_PROGRAM })
}

fn open_link(path: &PathBuf) -> Result<Option<PinnedLink>, Error> {
    match PinnedLink::from_pin(path) {
        Ok(link) => Ok(Some(link)),
        Err(LinkError::SyscallError(SyscallError { io_error, .. }))
            if io_error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(source) => Err(Error::Link { path: path.clone(), source: Box::new(source) }),
    }
}

/// Removes a pinned link, if it is there; the program is off the device when this returns.
pub(super) fn detach(path: &PathBuf) -> Result<(), Error> {
    let Some(link) = open_link(path)? else {
        return Ok(());
    };
    // Held open over the removal: closing the last descriptor detaches at once, the pin's own end only soon.
    link.unpin().map(drop).map_err(|source| Error::File { path: path.clone(), source })
}

fn update_tc(program: &mut SchedClassifier, pinned: PinnedLink) -> Result<(), ProgramError> {
    let link = FdLink::from(pinned).try_into().map_err(link_error)?;
    let id = program.attach_to_link(link)?;
    // Dropping the descriptor leaves the pin.
    program.take_link(id).map(drop)
}

fn update_xdp(program: &mut Xdp, pinned: PinnedLink) -> Result<(), ProgramError> {
    let link = FdLink::from(pinned).try_into().map_err(link_error)?;
    let id = program.attach_to_link(link)?;
    program.take_link(id).map(drop)
}

fn pin_xdp(link: XdpLink, path: PathBuf) -> Result<(), String> {
    // Where the kernel refuses a bpf_link, aya attaches by netlink, which would end with the daemon.
    let link = FdLink::try_from(link).map_err(|_not_a_link| "it takes no bpf_link".to_owned())?;
    link.pin(path).map(drop).map_err(|error| with_causes(&error))
}

fn link_error(error: LinkError) -> ProgramError {
    ProgramError::IOError(io::Error::other(error))
}

/// Whether the link's device is gone.
fn is_gone(error: &ProgramError) -> bool {
    match error {
        ProgramError::SyscallError(SyscallError { io_error, .. }) => {
            io_error.raw_os_error() == Some(libc::ENOLINK)
        }
        _ => false,
    }
}

/// An error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let error_text = error.to_string();
        if !text.ends_with(&error_text) {
            text = format!("{text}: {error_text}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_is_for_nics_whose_driver_has_it() {
        let nic =
            Device { index: 2, name: "eth0".into(), xdp_features: xdp_features::BASIC, ..Device::default() };
        let veth = Device { kind: Some("veth".into()), ..nic.clone() };
        let port = Device { master_kind: Some("bond".into()), ..nic.clone() };
        let old = Device { xdp_features: 0, ..nic.clone() };
        for (device, way, why) in [
            (&nic, Way::XdpNative, "native XDP"),
            (&veth, Way::Tc, "a veth device"),
            (&port, Way::Tc, "a port of a bond"),
            (&old, Way::Tc, "no native XDP"),
        ] {
            let (chosen, reason) = choose(Mode::Auto, device);
            assert_eq!(chosen, way);
            assert!(reason.contains(why), "{reason}");
        }
        assert_eq!(choose(Mode::Xdp, &veth).0, Way::XdpNative);
    }
}
