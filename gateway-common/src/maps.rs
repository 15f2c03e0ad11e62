//! Names and default capacities of every map: the one table that the programs, the daemon and the tests share.

/// Services: [`crate::ServiceKey`] to [`crate::Service`]. Hash.
pub const SERVICES: &str = "gw_services";
/// Tables: service id to an array of one value, [`crate::TABLE_SLOTS`] backend ids (`u32`). Array of maps.
pub const TABLES: &str = "gw_tables";
/// Backends: backend id to [`crate::Backend`]. Array.
pub const BACKENDS: &str = "gw_backends";
/// IPv4 flows: [`crate::FlowKey4`] to [`crate::Flow`]. LRU hash.
pub const FLOWS4: &str = "gw_flows4";
/// IPv6 flows: [`crate::FlowKey6`] to [`crate::Flow`]. LRU hash.
pub const FLOWS6: &str = "gw_flows6";
/// IPv4 replies: [`crate::ReplyKey4`] to [`crate::Reply4`]. LRU hash.
pub const REPLIES4: &str = "gw_replies4";
/// IPv6 replies: [`crate::ReplyKey6`] to [`crate::Reply6`]. LRU hash.
pub const REPLIES6: &str = "gw_replies6";
/// IPv4 flows that open: [`crate::FlowKey4`] to [`crate::Flow`]. LRU hash.
pub const OPENING4: &str = "gw_opening4";
/// IPv6 flows that open: [`crate::FlowKey6`] to [`crate::Flow`]. LRU hash.
pub const OPENING6: &str = "gw_opening6";
/// Replies of IPv4 flows that open: [`crate::ReplyKey4`] to [`crate::Reply4`]. LRU hash.
pub const CLAIMS4: &str = "gw_claims4";
/// Replies of IPv6 flows that open: [`crate::ReplyKey6`] to [`crate::Reply6`]. LRU hash.
pub const CLAIMS6: &str = "gw_claims6";
/// Devices: interface index (`u32`) to [`crate::Device`]. Hash.
pub const DEVICES: &str = "gw_devices";
/// Configuration: the one [`crate::Config`]. Array of one.
pub const CONFIG: &str = "gw_config";
/// How packets left, by entry and outcome: [`crate::Count`] at [`crate::Entry::index`]. Per-CPU array.
pub const COUNTERS: &str = "gw_counters";
/// Per service: [`crate::ServiceCount`] at the service id. Per-CPU array.
pub const SERVICE_STATS: &str = "gw_service_stat";
/// Per backend: [`crate::ServiceCount`] at the backend id. Per-CPU array.
pub const BACKEND_STATS: &str = "gw_backend_stat";

/// Every map, in the order in which they are pinned.
pub const ALL: [&str; 16] = [
    SERVICES,
    TABLES,
    BACKENDS,
    FLOWS4,
    FLOWS6,
    REPLIES4,
    REPLIES6,
    OPENING4,
    OPENING6,
    CLAIMS4,
    CLAIMS6,
    DEVICES,
    CONFIG,
    COUNTERS,
    SERVICE_STATS,
    BACKEND_STATS,
];

/// Services that there can be: entries of `gw_services`, `gw_tables` and `gw_service_stat`.
pub const MAX_SERVICES: u32 = 16_384;
/// Backend ids that there can be, id 0 included.
pub const MAX_BACKENDS: u32 = 65_536;
/// Devices that there can be in `gw_devices`.
pub const MAX_DEVICES: u32 = 4_096;
/// Entries of each flow and each reply map unless the daemon asks for another number when it creates them.
pub const DEFAULT_FLOWS: u32 = 262_144;

/// Flows that may be opening at a time, of each family: the newest.
pub const MAX_OPENING: u32 = 65_536;
/// NAT ports that flows may hold while they open, of each family: about half of those there are towards one backend,
/// so that a flood leaves the others to honest clients.
pub const MAX_CLAIMS: u32 = 16_384;

/// Changes whenever a map's key, value or meaning changes; a daemon does not adopt pins of another layout.
pub const LAYOUT: u32 = 3;

/// XDP program: name in the object and in the kernel.
pub const XDP_PROGRAM: &str = "gw_xdp_ingress";
/// TC program: name in the object and in the kernel.
pub const TC_PROGRAM: &str = "gw_tc_ingress";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel() {
        // BPF_OBJ_NAME_LEN is 16 with the terminating zero; longer names are cut in silence.
        for name in ALL.iter().chain(&[XDP_PROGRAM, TC_PROGRAM]) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
