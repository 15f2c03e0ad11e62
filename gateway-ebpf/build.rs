//! Arguments of `bpf-linker` that belong to this code and not to the machine it is built on.

fn main() {
    // By default the linker expands memory copies in order, and makes every `memset`, were it of three bytes, a call
    // of a loop over bytes.
    println!("cargo::rustc-link-arg-bins=--disable-expand-memcpy-in-order");
    println!("cargo::rerun-if-changed=build.rs");
}
