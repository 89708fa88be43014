//! Timing of benchmarks: CPU time of the working thread, which other processes on the machine hardly affect, and
//! wall-clock time where another process does a part of the work.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Many ticks of the kernel's CPU accounting, which counts in steps of some milliseconds.
const MEASURED_TIME_MIN: Duration = Duration::from_millis(60);

/// The median CPU milliseconds of several runs, and the last result.
pub fn median_cpu_ms<T>(runs: usize, mut work: impl FnMut() -> T) -> (f64, T) {
    median(runs, || cpu_ms(&mut work))
}

/// The median wall-clock milliseconds of several runs, and the last result.
pub fn median_wall_ms<T>(runs: usize, mut work: impl FnMut() -> T) -> (f64, T) {
    median(runs, || wall_ms(&mut work))
}

fn median<T>(runs: usize, mut measure: impl FnMut() -> (f64, T)) -> (f64, T) {
    let (first, mut result) = measure();
    let mut times = vec![first];
    for _ in 1..runs {
        let (ms, next) = measure();
        times.push(ms);
        result = next;
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], result)
}

/// Wall-clock milliseconds of the work, repeated for [`MEASURED_TIME_MIN`].
fn wall_ms<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let start = Instant::now();
    let (runs, result) = repeat(start, &mut work);
    (start.elapsed().as_secs_f64() * 1e3 / runs, result)
}

/// CPU milliseconds of the work, repeated for [`MEASURED_TIME_MIN`].
pub fn cpu_ms<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let (start, start_ns) = (Instant::now(), scheduled_cpu_ns());
    let (runs, result) = repeat(start, &mut work);
    let cpu_ms = scheduled_cpu_ns().zip(start_ns).map(|(now, then)| (now - then) as f64 / 1e6);
    (cpu_ms.unwrap_or(start.elapsed().as_secs_f64() * 1e3) / runs, result)
}

/// The number of runs and the last result.
fn repeat<T>(start: Instant, work: &mut impl FnMut() -> T) -> (f64, T) {
    let mut result = black_box(work());
    let mut runs = 1.0;
    while start.elapsed() < MEASURED_TIME_MIN {
        result = black_box(work());
        runs += 1.0;
    }
    (runs, result)
}

/// CPU time of this thread; `None` where the kernel does not report it.
fn scheduled_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// CPU time of this thread in microseconds.
pub fn thread_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
