//! The bound on the size of orders: the link carries frames up to 64 MiB, and a node may hold many jobs with long scripts.
//!
//! Orders name the attempts of a node in order of placement, as many as fit. The others follow when attempts before them
//! have ended. Nothing that was sent once is left out later, because an agent ends what its orders no longer name: the sum
//! of the programs before an attempt never grows.

use muster_core::NodeId;
use muster_core::objects::job::{Attempt, Job};
use muster_protocol::agent::RunSpec;

/// Most bytes of the programs in the orders of a node. The rest of the orders is small beside them.
pub const PROGRAM_BYTES_MAX: usize = 32 << 20;

/// An open attempt on a node, and whether its orders contain its program.
pub struct OpenAttempt<'a> {
    pub job: &'a Job,
    pub attempt: &'a Attempt,
    pub fits: bool,
}

/// The attempts that the orders of a node name, in the given order. What does not fit was never sent: it is left out until
/// it fits, or named without its program if it must stop, because then it is not launched.
pub fn attempts_that_fit<'a>(
    open: impl Iterator<Item = (&'a Job, &'a Attempt)>,
    node: &NodeId,
    bytes_max: usize,
) -> Vec<OpenAttempt<'a>> {
    let mut by_placement: Vec<(&Job, &Attempt)> = open.collect();
    by_placement.sort_by_key(|(job, attempt)| (attempt.placed_at, job.id));
    // Almost always so little that the exact sizes do not matter.
    let is_small = by_placement.iter().map(|(job, _)| 6 * raw_bytes(job)).sum::<usize>() <= bytes_max;
    let mut sum = 0;
    let mut judged = Vec::with_capacity(by_placement.len());
    for (job, attempt) in by_placement {
        sum += if is_small { 0 } else { json_bytes(job) };
        let fits = sum <= bytes_max || attempt.reports.get(node).is_some();
        if fits || attempt.stopping.is_some() {
            judged.push(OpenAttempt { job, attempt, fits });
        }
    }
    judged
}

/// What an attempt that must stop, and does not fit, runs.
pub fn no_program() -> RunSpec {
    RunSpec::default()
}

fn texts(job: &Job) -> impl Iterator<Item = &str> {
    let run = &job.spec.run;
    let single = [&run.image, &run.script, &run.directory].into_iter().flatten();
    let lists = run.command.iter().chain(&run.args);
    let maps = run.env.iter().chain(&job.spec.annotations).flat_map(|(name, value)| [name, value]);
    let mounts = run.mounts.iter().flat_map(|mount| [&mount.source, &mount.target]);
    single.chain(lists).chain(maps).chain(mounts).map(String::as_str)
}

fn raw_bytes(job: &Job) -> usize {
    texts(job).map(|text| text.len() + 8).sum()
}

/// The size in the JSON of orders, where some characters are escaped.
fn json_bytes(job: &Job) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    texts(job).map(|text| text.bytes().map(escaped).sum::<usize>() + 8).sum()
}
