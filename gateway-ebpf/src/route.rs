//! The way out, asked of the kernel's routing tables before anything is written.

use gateway_common::Outcome;

use crate::{family::Family, kernel::Fib, packet::Packet, parse::Headers};

/// Finds the way of a packet once its addresses are these, when this program can send it there.
///
/// A function of its own, because the parameters of the lookup are large and are wanted no longer than it takes.
///
/// # Errors
/// `TtlExpired`, and whatever [`Packet::way`] says.
#[inline(never)]
pub(crate) fn find<P: Packet, F: Family>(
    packet: P,
    headers: &Headers<F>,
    transport_length: u32,
    source_and_destination: &[F::Address; 2],
    way: &mut P::Way,
) -> Result<(), Outcome> {
    if headers.hop_limit <= 1 {
        return Err(Outcome::TtlExpired);
    }
    // Each segment has the headers and its own payload.
    let length = match packet.segment_size() {
        0 => headers.end - headers.l3,
        payload => headers.l4 - headers.l3 + transport_length + payload,
    };
    let [source, destination] = *source_and_destination;
    let mut fib = Fib {
        family: F::AF,
        protocol: headers.protocol,
        ports: [0; 2],
        length: length as u16,
        device: packet.device(),
        flow_info: 0,
        source: F::words(source),
        destination: F::words(destination),
        vlan: [0; 2],
        source_mac: [0; 6],
        destination_mac: [0; 6],
    };
    let result = fib.lookup(packet.context());
    *way = packet.way(headers.tags, &fib, result)?;
    Ok(())
}
