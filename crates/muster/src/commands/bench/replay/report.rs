//! The table of `muster bench replay`: measured figures beside the published ones.

use muster_sim::baseline_replay::{PublishedJct, QueuePolicyName, ReplayRow};

use crate::output::{Cell, Column};

/// One line of the table: a policy that was replayed, or one with published figures only.
pub struct ReplayLine {
    trace: String,
    policy: String,
    measured: Option<ReplayRow>,
    published: Option<f64>,
}

pub const COLUMNS: [Column<ReplayLine>; 10] = [
    Column::new("TRACE", |line| line.trace.as_str().into()),
    Column::new("POLICY", |line| line.policy.as_str().into()),
    Column::new("AVG-JCT-S", |line| measured_cell(line, |row| format!("{:.0}", row.avg_jct_s))),
    Column::new("PUBLISHED-S", |line| Cell::or_dash(line.published.map(|avg| format!("{avg:.0}")))),
    Column::new("DIFF%", difference_cell),
    Column::new("P99-JCT-S", |line| measured_cell(line, |row| format!("{:.0}", row.p99_jct_s))),
    Column::new("MAKESPAN-S", |line| measured_cell(line, |row| format!("{:.0}", row.makespan_s))),
    Column::new("MAX-SLOWDOWN", |line| measured_cell(line, |row| format!("{:.1}", row.max_slowdown))),
    Column::new("PREEMPTIONS", |line| measured_cell(line, |row| row.preemptions.to_string())),
    Column::new("LOST-GPU-S", |line| measured_cell(line, |row| format!("{:.0}", row.lost_gpu_s))),
];

fn measured_cell(line: &ReplayLine, text: impl Fn(&ReplayRow) -> String) -> Cell {
    Cell::or_dash(line.measured.as_ref().map(text))
}

/// The mean completion time against the published one; a difference that rounds to zero is `+0.000`.
fn difference_cell(line: &ReplayLine) -> Cell {
    let both = line.measured.as_ref().zip(line.published);
    let percent = both.map(|(row, published)| (row.avg_jct_s / published - 1.0) * 100.0);
    Cell::or_dash(percent.map(|percent| format!("{:+.3}", (percent * 1e3).round() / 1e3 + 0.0)))
}

pub fn measured_line(row: &ReplayRow, policy: QueuePolicyName, published: &PublishedJct) -> ReplayLine {
    let name = policy.published_name().map(|name| (row.trace.clone(), name.to_string()));
    ReplayLine {
        trace: row.trace.clone(),
        policy: row.policy.to_string(),
        measured: Some(row.clone()),
        published: name.and_then(|name| published.get(&name).copied()),
    }
}

/// Policies that are published for a trace and not replayed here, because they change the resources of jobs or share
/// GPUs between them.
pub fn published_lines(trace: &str, published: &PublishedJct) -> Vec<ReplayLine> {
    let is_replayed = |name: &str| QueuePolicyName::ALL.iter().any(|policy| policy.published_name() == Some(name));
    let others = published.iter().filter(|((other, policy), _)| other == trace && !is_replayed(policy));
    let line = |((_, policy), avg): (&(String, String), &f64)| ReplayLine {
        trace: trace.to_string(),
        policy: format!("{policy} (published)"),
        measured: None,
        published: Some(*avg),
    };
    others.map(line).collect()
}
