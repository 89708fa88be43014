//! The table of `muster bench numa`.

use muster_sim::numa::{DevicePolicy, NumaRow};

/// The policies that use the topology, and may make jobs wait longer for it.
const TOPOLOGY_AWARE: [DevicePolicy; 2] = [DevicePolicy::Planner, DevicePolicy::SameNuma];

/// One line per machine, load and job size, with step times and waits of the policies side by side.
pub fn table(rows: &[NumaRow]) -> String {
    let names = |policies: &[DevicePolicy], width| {
        policies.iter().map(|policy| format!("{:>width$}", policy.as_str())).collect::<String>()
    };
    let (steps, gains) = (names(&DevicePolicy::ALL, 10), names(&TOPOLOGY_AWARE, 10));
    let waits = names(&[DevicePolicy::Lowest], 8) + &names(&TOPOLOGY_AWARE, 15);
    let mut text = format!(
        "{:<38}|{:^40}|{:^20}|{:^38}\n{:<12} {:>4} {:>4} {:>6} {:>7} |{steps}|{gains}|{waits}\n",
        "",
        "mean step, ms",
        "gain over lowest",
        "mean wait, min, and what is added",
        "box",
        "load",
        "GPUs",
        "jobs",
        "alone"
    );
    for same_size in rows.chunk_by(|a, b| (a.machine, a.load, a.gpus) == (b.machine, b.load, b.gpus)) {
        text += &table_line(same_size);
    }
    text
}

fn table_line(rows: &[NumaRow]) -> String {
    let first = &rows[0];
    let of = |policy: DevicePolicy| rows.iter().find(|row| row.manner == policy.as_str()).unwrap_or(first);
    let steps = DevicePolicy::ALL.map(|policy| format!("{:>10.1}", of(policy).step_ms)).concat();
    let gains = TOPOLOGY_AWARE.map(|policy| format!("{:>9.1}%", of(policy).gain_percent)).concat();
    let added = |row: &NumaRow| format!("{:+.1} ± {:.1}", row.wait_added_min, row.wait_added_min_error);
    let added = TOPOLOGY_AWARE.map(|policy| format!("{:>15}", added(of(policy)))).concat();
    let wait_min = of(DevicePolicy::Lowest).wait_min;
    let NumaRow { machine, load, gpus, jobs, step_ms_alone, .. } = first;
    let head = format!("{machine:<12} {load:>4.1} {gpus:>4} {jobs:>6} {step_ms_alone:>7.1} ");
    format!("{head}|{steps}|{gains}|{wait_min:>8.1}{added}\n")
}
