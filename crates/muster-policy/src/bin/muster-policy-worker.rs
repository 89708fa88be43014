//! The worker process alone. It equals `muster policy-worker` and lets the tests of this crate run without `muster`.

fn main() {
    std::process::exit(muster_policy::worker_main());
}
