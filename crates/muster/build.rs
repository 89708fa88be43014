//! Links `muster` at a fixed address, because agents execute it for each attempt (`muster shim`): a position-independent
//! executable of this size spends most of that time on relocations. `docs/decisions/0015-shim-start.md` has the figures.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // Other targets link in other ways, for example static-pie with musl.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
