//! The worker alone. `muster policy-worker` is the same; this program lets the tests of policies run without `muster`.

fn main() {
    std::process::exit(muster_policy::worker_main());
}
