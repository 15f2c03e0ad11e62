// SPDX-License-Identifier: MIT OR GPL-2.0-only
//! The kernel programs: one data path, entered from XDP and from TC.
//!
//! `parse` reads the headers, `service` says whether the packet is ours, `path` carries it: to a backend (`flow`,
//! `opening`, `table`, `nat`), back to a client (`nat`), or to an answer of our own (`answer`). `route` asks the kernel for the
//! way out before anything is written, `rewrite` translates, `verdict` counts and leaves.
//!
//! Not here: the types in the maps and the arithmetic that the daemon shares (gateway-common).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![warn(unused_results)]
#![expect(
    clippy::inline_always,
    reason = "a call costs the packet path more than the code it saves, and stack is scarce"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "the macros of the entries hand the context over by value"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "lengths come from fields of 16 bits and sizes from types; a checked conversion would be a branch that the verifier follows"
)]

mod answer;
mod atomic;
mod family;
mod flow;
mod kernel;
mod maps;
mod nat;
mod opening;
mod packet;
mod parse;
mod path;
mod rewrite;
mod route;
mod service;
mod table;
mod verdict;

use aya_ebpf::{
    macros::{classifier, xdp},
    programs::{TcContext, XdpContext},
};

use crate::packet::{Tc, Xdp};

/// XDP entry: finishes what it can finish whole and leaves the rest untouched to [`gw_tc_ingress`].
#[xdp(frags)]
fn gw_xdp_ingress(ctx: XdpContext) -> u32 {
    verdict::enter(Xdp::new(&ctx))
}

/// TC entry (tcx ingress): finishes everything.
#[classifier]
fn gw_tc_ingress(ctx: TcContext) -> i32 {
    verdict::enter(Tc::new(&ctx)).cast_signed()
}

/// The kernel's own condition for the helpers that only GPL-compatible programs may call.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: no code here panics, and the linker drops this.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
