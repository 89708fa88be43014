//! Time of the core that does the work: neighbours on the machine hardly count.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The median of so many runs, in milliseconds of the core, and the last result.
pub fn median<T>(runs: usize, mut work: impl FnMut() -> T) -> (f64, T) {
    let (first, mut result) = measured(&mut work);
    let mut times = vec![first];
    for _ in 1..runs {
        let (ms, next) = measured(&mut work);
        times.push(ms);
        result = next;
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], result)
}

/// The median of so many runs in milliseconds of the wall clock, and the last result: for work of which another process
/// does a part.
pub fn median_wall<T>(runs: usize, mut work: impl FnMut() -> T) -> (f64, T) {
    let (first, mut result) = measured_wall(&mut work);
    let mut times = vec![first];
    for _ in 1..runs {
        let (ms, next) = measured_wall(&mut work);
        times.push(ms);
        result = next;
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], result)
}

/// Milliseconds of the wall clock that the work takes, repeated for a while.
fn measured_wall<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let began = Instant::now();
    let mut result = black_box(work());
    let mut runs = 1.0;
    while began.elapsed() < LEAST {
        result = black_box(work());
        runs += 1.0;
    }
    (began.elapsed().as_secs_f64() * 1e3 / runs, result)
}

/// Milliseconds that the work takes on its core, repeated until the clock of the system is fine enough: it counts in
/// steps of some milliseconds.
pub fn measured<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let (wall, core) = (Instant::now(), core_ns());
    let mut result = black_box(work());
    let mut runs = 1.0;
    while wall.elapsed() < LEAST {
        result = black_box(work());
        runs += 1.0;
    }
    let spent = core_ns().zip(core).map(|(now, then)| (now - then) as f64 / 1e6);
    (spent.unwrap_or(wall.elapsed().as_secs_f64() * 1e3) / runs, result)
}

/// Many steps of the clock of the system.
const LEAST: Duration = Duration::from_millis(60);

/// Time this thread has spent on a core, where the system says so: neighbours do not count.
fn core_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}
