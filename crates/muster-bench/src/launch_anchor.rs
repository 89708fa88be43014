//! The anchor of the launch benchmark: a loop on each slot that makes the same directories and flushed files as an
//! attempt, spawns the no-op program and waits for it. No agent and no shim.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::server::TempFolder;

/// The no-op program of the jobs and of the anchor.
pub const NO_OP: &str = "/bin/true";
/// About the size of a launch intent.
const RECORD_BYTES: usize = 700;
/// The clock ticks per second of `/proc/PID/stat` on every Linux that muster runs on.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

pub struct AnchorRun {
    pub jobs_per_second: f64,
    pub cpu_ms: f64,
}

pub fn run(jobs: usize, slots: usize) -> Result<AnchorRun> {
    let folder = TempFolder::new("launch-anchor")?;
    let (cpu_before, started) = (cpu_ms()?, Instant::now());
    std::thread::scope(|scope| {
        let slot = |slot: usize| {
            let folder = &folder.0;
            scope.spawn(move || (slot..jobs).step_by(slots).try_for_each(|job| spawn_once(folder, job)))
        };
        let threads: Vec<_> = (0..slots).map(slot).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a slot of the anchor panicked"),
        })
    })?;
    let (seconds, cpu_ms) = (started.elapsed().as_secs_f64(), cpu_ms()? - cpu_before);
    Ok(AnchorRun { jobs_per_second: jobs as f64 / seconds, cpu_ms: cpu_ms / jobs as f64 })
}

/// The flushes of an attempt: its two new directories, the launch intent, and the exit record.
fn spawn_once(folder: &Path, job: usize) -> Result<()> {
    let attempts = folder.join("attempts");
    let job_dir = attempts.join(format!("job-{job}"));
    let attempt_dir = job_dir.join("1");
    fs::create_dir_all(&attempt_dir)?;
    write_flushed(&attempt_dir, "intent.json")?;
    for dir in [&job_dir, &attempts] {
        File::open(dir)?.sync_all()?;
    }
    let log = File::create(attempt_dir.join("rank-0.out"))?;
    let spawned = Command::new(NO_OP).stdin(Stdio::null()).stdout(log).status();
    if !spawned.with_context(|| format!("cannot start {NO_OP}"))?.success() {
        bail!("{NO_OP} failed");
    }
    write_flushed(&attempt_dir, "exit.json")
}

fn write_flushed(dir: &Path, name: &str) -> Result<()> {
    let temporary = dir.join(format!(".{name}"));
    let mut file = File::create(&temporary)?;
    file.write_all(&[b'x'; RECORD_BYTES])?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    Ok(File::open(dir)?.sync_all()?)
}

/// The CPU time of this process and of its children that have been waited for, with theirs.
pub fn cpu_ms() -> Result<f64> {
    cpu_ms_of(Path::new("/proc/self/stat"))
}

/// The same of another process.
pub fn cpu_ms_of(stat: &Path) -> Result<f64> {
    let text = fs::read_to_string(stat)?;
    let (_, fields) = text.rsplit_once(')').context("no program name in the file `stat` of a process")?;
    // utime, stime, cutime and cstime are the fields 14 to 17 of proc_pid_stat(5); the fields after the name count from 3.
    let ticks: f64 =
        fields.split_ascii_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks * 1_000.0 / CLOCK_TICKS_PER_SECOND)
}
