//! Finds the kernel programs that the daemon embeds; `cargo xtask build` makes them.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=GATEWAY_EBPF_OBJECT");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    let object = object();
    println!("cargo::rerun-if-changed={}", object.display());
    if object.is_file() {
        println!("cargo::rustc-env=GATEWAY_EBPF_OBJECT={}", object.display());
    } else {
        println!("cargo::error=kernel programs are not built; run `cargo xtask build`");
    }
}

/// The object named by `GATEWAY_EBPF_OBJECT`, or the one that `cargo xtask build` leaves in the target folder.
fn object() -> PathBuf {
    if let Some(object) = env::var_os("GATEWAY_EBPF_OBJECT") {
        return object.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace.join(target).join("bpf/gateway-ebpf")
}
