//! The shim as its own program, equal to `muster shim`, so that the tests of the agent run without `muster`.

fn main() {
    std::process::exit(muster_agent::shim_main(std::env::args_os().skip(1)));
}
