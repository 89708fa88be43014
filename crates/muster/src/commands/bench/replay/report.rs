//! The table for people, with what is published beside what was measured.

use muster_sim::replay::Outcome;
use serde::Serialize;

use super::policies::Name;
use super::trace::Published;
use crate::output::{Cell, Column};

/// What was measured for a trace and a policy.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    trace: String,
    policy: &'static str,
    avg_jct_s: f64,
    p99_jct_s: f64,
    makespan_s: f64,
    max_slowdown: f64,
    preemptions: u64,
    lost_gpu_s: f64,
}

impl Row {
    /// With as many decimals as are published.
    pub fn of(trace: &str, policy: Name, outcome: &Outcome) -> Row {
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        Row {
            trace: trace.to_string(),
            policy: policy.text(),
            avg_jct_s: rounded(outcome.avg_jct_s),
            p99_jct_s: rounded(outcome.p99_jct_s),
            makespan_s: rounded(outcome.makespan_s),
            max_slowdown: rounded(outcome.max_slowdown),
            preemptions: outcome.preemptions,
            lost_gpu_s: rounded(outcome.lost_gpu_s),
        }
    }
}

/// One line of the table.
pub struct Line {
    trace: String,
    policy: String,
    measured: Option<Row>,
    published: Option<f64>,
}

/// The columns.
pub const COLUMNS: [Column<Line>; 10] = [
    Column::new("TRACE", |line| line.trace.as_str().into()),
    Column::new("POLICY", |line| line.policy.as_str().into()),
    Column::new("AVG-JCT-S", |line| measure(line, |row| format!("{:.0}", row.avg_jct_s))),
    Column::new("PUBLISHED-S", |line| Cell::or_dash(line.published.map(|avg| format!("{avg:.0}")))),
    Column::new("DIFF%", difference),
    Column::new("P99-JCT-S", |line| measure(line, |row| format!("{:.0}", row.p99_jct_s))),
    Column::new("MAKESPAN-S", |line| measure(line, |row| format!("{:.0}", row.makespan_s))),
    Column::new("MAX-SLOWDOWN", |line| measure(line, |row| format!("{:.1}", row.max_slowdown))),
    Column::new("PREEMPTIONS", |line| measure(line, |row| row.preemptions.to_string())),
    Column::new("LOST-GPU-S", |line| measure(line, |row| format!("{:.0}", row.lost_gpu_s))),
];

fn measure(line: &Line, text: impl Fn(&Row) -> String) -> Cell {
    Cell::or_dash(line.measured.as_ref().map(text))
}

/// What was measured against what is published; zero has no minus.
fn difference(line: &Line) -> Cell {
    let both = line.measured.as_ref().zip(line.published);
    let percent = both.map(|(row, published)| (row.avg_jct_s / published - 1.0) * 100.0);
    Cell::or_dash(percent.map(|percent| format!("{:+.3}", (percent * 1e3).round() / 1e3 + 0.0)))
}

/// The line of what was measured.
pub fn measured(row: &Row, policy: Name, published: &Published) -> Line {
    let name = policy.published().map(|name| (row.trace.clone(), name.to_string()));
    Line {
        trace: row.trace.clone(),
        policy: row.policy.to_string(),
        measured: Some(row.clone()),
        published: name.and_then(|name| published.get(&name).copied()),
    }
}

/// Lines of policies that are published for a trace and not played here: they change what others wait for, or share GPUs.
pub fn others(trace: &str, published: &Published) -> Vec<Line> {
    let played = |name: &str| Name::all().iter().any(|policy| policy.published() == Some(name));
    let here = published.iter().filter(|((of, policy), _)| of == trace && !played(policy));
    let line = |((_, policy), avg): (&(String, String), &f64)| Line {
        trace: trace.to_string(),
        policy: format!("{policy} (published)"),
        measured: None,
        published: Some(*avg),
    };
    here.map(line).collect()
}
