//! The shim alone. `muster shim` is the same; this program lets the tests of the agent run without `muster`.

fn main() {
    std::process::exit(muster_agent::shim_main(std::env::args_os().skip(1)));
}
