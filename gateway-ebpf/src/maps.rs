//! Every map, and the only ways to reach one.
//!
//! Values that the daemon writes are handed out as copies. Values that the programs write are handed out as an
//! [`Entry`], through which fields are read and written where they lie: updating an LRU element through the helper
//! just to refresh it can evict another.

use core::ptr::NonNull;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray},
    macros::btf_map,
};
use gateway_common::{
    Backend, Config, Count, Device, Flow, FlowKey4, FlowKey6, Outcome, Reply4, Reply6, ReplyKey4, ReplyKey6,
    Service, ServiceCount, ServiceKey, TABLE_SLOTS, maps,
};

use crate::{
    atomic,
    family::{V4, V6},
    verdict::Work,
};

const SERVICES_MAX: usize = maps::MAX_SERVICES as usize;
const BACKENDS_MAX: usize = maps::MAX_BACKENDS as usize;
const DEVICES_MAX: usize = maps::MAX_DEVICES as usize;
const FLOWS_MAX: usize = maps::DEFAULT_FLOWS as usize;
const OPENING_MAX: usize = maps::MAX_OPENING as usize;
const CLAIMS_MAX: usize = maps::MAX_CLAIMS as usize;
const COUNTERS_MAX: usize = 2 * Outcome::CAPACITY as usize;
const SLOTS: usize = TABLE_SLOTS as usize;

#[btf_map(name = "gw_services")]
static SERVICES: HashMap<ServiceKey, Service, SERVICES_MAX> = HashMap::new();
#[btf_map(name = "gw_tables")]
static TABLES: ArrayOfMaps<Array<[u32; SLOTS], 1>, SERVICES_MAX> = ArrayOfMaps::new();
#[btf_map(name = "gw_backends")]
static BACKENDS: Array<Backend, BACKENDS_MAX> = Array::new();
#[btf_map(name = "gw_flows4")]
static FLOWS4: LruHashMap<FlowKey4, Flow, FLOWS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_flows6")]
static FLOWS6: LruHashMap<FlowKey6, Flow, FLOWS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_replies4")]
static REPLIES4: LruHashMap<ReplyKey4, Reply4, FLOWS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_replies6")]
static REPLIES6: LruHashMap<ReplyKey6, Reply6, FLOWS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_opening4")]
static OPENING4: LruHashMap<FlowKey4, Flow, OPENING_MAX> = LruHashMap::new();
#[btf_map(name = "gw_opening6")]
static OPENING6: LruHashMap<FlowKey6, Flow, OPENING_MAX> = LruHashMap::new();
#[btf_map(name = "gw_claims4")]
static CLAIMS4: LruHashMap<ReplyKey4, Reply4, CLAIMS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_claims6")]
static CLAIMS6: LruHashMap<ReplyKey6, Reply6, CLAIMS_MAX> = LruHashMap::new();
#[btf_map(name = "gw_devices")]
static DEVICES: HashMap<u32, Device, DEVICES_MAX> = HashMap::new();
#[btf_map(name = "gw_config")]
static CONFIG: Array<Config, 1> = Array::new();
#[btf_map(name = "gw_counters")]
static COUNTERS: PerCpuArray<Count, COUNTERS_MAX> = PerCpuArray::new();
#[btf_map(name = "gw_service_stat")]
static SERVICE_STATS: PerCpuArray<ServiceCount, SERVICES_MAX> = PerCpuArray::new();
#[btf_map(name = "gw_backend_stat")]
static BACKEND_STATS: PerCpuArray<ServiceCount, BACKENDS_MAX> = PerCpuArray::new();

/// Where each CPU works on a packet. Not for the daemon, and not pinned: it holds nothing between packets.
#[btf_map(name = "gw_work4")]
static WORK4: PerCpuArray<Work<V4>, 1> = PerCpuArray::new();
#[btf_map(name = "gw_work6")]
static WORK6: PerCpuArray<Work<V6>, 1> = PerCpuArray::new();

/// A map element that the programs write.
///
/// The kernel keeps the memory of an element valid until the program ends, even when the element is evicted
/// meanwhile; then a write lands in an element of the same type. So no write changes whose an element is: a tick or a
/// bit of the state in a stranger's is all the harm there can be, and a new owner is a new element.
pub(crate) struct Entry<T>(NonNull<T>);

impl<T: Copy> Entry<T> {
    /// The value as it is now.
    #[inline(always)]
    pub(crate) fn get(&self) -> T {
        // SAFETY: the pointer came from a lookup of a map whose values are `T`, and lives as long as the program.
        unsafe { self.0.as_ptr().read() }
    }

    /// A pointer to one word of the value.
    #[inline(always)]
    fn word(&self, offset: usize) -> NonNull<u32> {
        // SAFETY: callers take the offset from a field of the value.
        unsafe { self.0.byte_add(offset) }.cast()
    }
}

/// Implements writes of single words, so that two programs writing different fields do not undo each other.
macro_rules! entry_fields {
    ($value:ty { $($set:ident: $field:ident),+ }) => {
        impl Entry<$value> {
            $(
                #[inline(always)]
                pub(crate) fn $set(&self, value: u32) {
                    // SAFETY: the word is a field of the value, which lives as long as the program.
                    unsafe { self.word(core::mem::offset_of!($value, $field)).write_volatile(value) }
                }
            )+

            /// Sets bits of the state.
            #[inline(always)]
            pub(crate) fn add_state(&self, bits: u32) {
                // SAFETY: the word is a field of the value.
                unsafe { atomic::set_bits(self.word(core::mem::offset_of!($value, state)), bits) }
            }
        }
    };
}
entry_fields!(Flow { set_seen: seen, set_checked: checked, set_expected: expected });
entry_fields!(Reply4 { set_seen: seen });
entry_fields!(Reply6 { set_seen: seen });

/// Implements the claim on an entry.
macro_rules! entry_claims {
    ($($value:ty),+) => {
        $(
            impl Entry<$value> {
                /// Replaces the tick of the last packet, when it still is what it was.
                #[inline(always)]
                pub(crate) fn replace_seen(&self, old: u32, new: u32) -> bool {
                    // SAFETY: the word is a field of the value.
                    unsafe { atomic::replace(self.word(core::mem::offset_of!($value, seen)), old, new) }
                }
            }
        )+
    };
}
entry_claims!(Reply4, Reply6);

/// Why an element was not inserted.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum InsertError {
    /// There is one already.
    Exists,
    /// The map has no room.
    Full,
}

const EEXIST: i32 = 17;

/// Lookup, insertion and removal for the maps that the programs write.
macro_rules! written_map {
    ($map:ident, $key:ty, $value:ty, $lookup:ident, $insert:ident, $remove:ident) => {
        #[inline(always)]
        pub(crate) fn $lookup(key: &$key) -> Option<Entry<$value>> {
            $map.get_ptr_mut(key).and_then(NonNull::new).map(Entry)
        }

        /// Inserts unless the key is there: whoever comes first owns it.
        #[inline(always)]
        pub(crate) fn $insert(key: &$key, value: &$value) -> Result<(), InsertError> {
            $map.insert(key, value, BPF_NOEXIST.into()).map_err(|code| match code {
                code if code == -EEXIST => InsertError::Exists,
                _ => InsertError::Full,
            })
        }

        /// Removes the element; one that is gone already is as good.
        #[inline(always)]
        pub(crate) fn $remove(key: &$key) {
            let _: Result<(), i32> = $map.remove(key);
        }
    };
}
written_map!(FLOWS4, FlowKey4, Flow, flow4, insert_flow4, remove_flow4);
written_map!(FLOWS6, FlowKey6, Flow, flow6, insert_flow6, remove_flow6);
written_map!(REPLIES4, ReplyKey4, Reply4, reply4, insert_reply4, remove_reply4);
written_map!(REPLIES6, ReplyKey6, Reply6, reply6, insert_reply6, remove_reply6);
written_map!(OPENING4, FlowKey4, Flow, opening4, insert_opening4, remove_opening4);
written_map!(OPENING6, FlowKey6, Flow, opening6, insert_opening6, remove_opening6);
written_map!(CLAIMS4, ReplyKey4, Reply4, claim4, insert_claim4, remove_claim4);
written_map!(CLAIMS6, ReplyKey6, Reply6, claim6, insert_claim6, remove_claim6);

/// This CPU's place to work on an IPv4 packet.
#[inline(always)]
pub(crate) fn work4() -> Option<&'static mut Work<V4>> {
    // SAFETY: a program asks once, and runs to its end before another begins on its CPU; all zero is a `Work`.
    WORK4.get_ptr_mut(0).and_then(|work| unsafe { work.as_mut() })
}

/// This CPU's place to work on an IPv6 packet.
#[inline(always)]
pub(crate) fn work6() -> Option<&'static mut Work<V6>> {
    // SAFETY: as for `work4`.
    WORK6.get_ptr_mut(0).and_then(|work| unsafe { work.as_mut() })
}

#[inline(always)]
pub(crate) fn service(key: &ServiceKey) -> Option<Service> {
    // SAFETY: the value is copied before any other map operation.
    unsafe { SERVICES.get(key) }.copied()
}

/// The owner of a slot in the table of a service, when the service has a table.
///
/// Looks the table up once: a packet sees one generation of it.
#[inline(always)]
pub(crate) fn slot_owner(service: u32, slot: u32) -> Option<u32> {
    // The compiler knows that a slot is within bounds and would drop the check, in a form that the verifier of Linux
    // 6.18 cannot follow; hidden from it, the check stays.
    let slot = core::hint::black_box(slot);
    TABLES.get_value(service, &0)?.get(slot as usize).copied()
}

/// Not a copy: of its forty bytes, each as a register that is spilled, most are not wanted where others are.
#[inline(always)]
pub(crate) fn backend(id: u32) -> Option<&'static Backend> {
    BACKENDS.get(id)
}

#[inline(always)]
pub(crate) fn device(index: u32) -> Option<&'static Device> {
    // SAFETY: of an element that is removed meanwhile, at worst the flags of another device are read.
    unsafe { DEVICES.get(index) }
}

#[inline(always)]
pub(crate) fn device_flags(index: u32) -> u32 {
    device(index).map_or(0, |device| device.flags)
}

#[inline(always)]
pub(crate) fn config() -> Option<Config> {
    CONFIG.get(0).copied()
}

/// This CPU's counter of how packets left.
#[inline(always)]
pub(crate) fn counter(index: u32) -> Option<NonNull<Count>> {
    COUNTERS.get_ptr_mut(index).and_then(NonNull::new)
}

/// This CPU's counters of a service.
#[inline(always)]
pub(crate) fn service_count(service: u32) -> Option<NonNull<ServiceCount>> {
    SERVICE_STATS.get_ptr_mut(service).and_then(NonNull::new)
}

/// This CPU's counters of a backend.
#[inline(always)]
pub(crate) fn backend_count(backend: u32) -> Option<NonNull<ServiceCount>> {
    BACKEND_STATS.get_ptr_mut(backend).and_then(NonNull::new)
}
