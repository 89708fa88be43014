//! The shim as its own program, equal to `muster shim` and `muster shim-exec`, so that the tests of the agent run without
//! `muster`.

fn main() {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == "shim-exec").is_some() {
        std::process::exit(muster_agent::shim_exec_main());
    }
    std::process::exit(muster_agent::shim_main(words));
}
