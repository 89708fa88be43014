//! The temperatures of simulated GPUs: as annotated while an attempt runs, and cooling after it.

use std::collections::BTreeMap;

use muster_protocol::agent::{Registration, Report};

use super::effect::ReportIntervals;
use crate::repeat_timer::RepeatTimer;

const IDLE_TEMPERATURE_C: i32 = 40;
const COOLING_PER_READING_C: i32 = 10;

/// The GPUs of one node. Idle GPUs are read by health checks only: thousands of idle readings carry no information.
#[derive(Debug)]
pub(super) struct GpuTemperatures {
    node: String,
    gpu_count: usize,
    warm_gpus_c: BTreeMap<u8, i32>,
    reading_timer: RepeatTimer,
    health_check_timer: RepeatTimer,
}

impl GpuTemperatures {
    pub fn new(node: &Registration) -> GpuTemperatures {
        GpuTemperatures {
            node: node.node.clone(),
            gpu_count: node.gpus.len(),
            warm_gpus_c: BTreeMap::new(),
            reading_timer: RepeatTimer::default(),
            health_check_timer: RepeatTimer::default(),
        }
    }

    /// Updates the temperatures from the GPUs that are heated now, and returns the readings that are due.
    pub fn due_readings(&mut self, now_ms: i64, intervals: ReportIntervals, heated: &BTreeMap<u8, i32>) -> Vec<Report> {
        let mut due = self.due_warm_readings(now_ms, intervals.readings_ms, heated);
        if self.health_check_timer.is_due(now_ms, intervals.health_checks_ms) {
            for gpu in (0..).take(self.gpu_count) {
                due.entry(gpu).or_insert_with(|| self.warm_gpus_c.get(&gpu).copied().unwrap_or(IDLE_TEMPERATURE_C));
            }
        }
        due.into_iter().map(|(gpu, temperature_c)| gpu_reading(&self.node, gpu, temperature_c)).collect()
    }

    /// The due readings of GPUs that are warm now or were warm at the last reading.
    fn due_warm_readings(&mut self, now_ms: i64, interval_ms: i64, heated: &BTreeMap<u8, i32>) -> BTreeMap<u8, i32> {
        let mut readings = BTreeMap::new();
        if self.are_all_idle() && heated.is_empty() {
            return readings;
        }
        let due = self.reading_timer.is_due(now_ms, interval_ms);
        if due {
            self.warm_gpus_c.retain(|gpu, temperature_c| {
                *temperature_c = (*temperature_c - COOLING_PER_READING_C).max(IDLE_TEMPERATURE_C);
                readings.insert(*gpu, *temperature_c);
                *temperature_c > IDLE_TEMPERATURE_C
            });
        }
        for (gpu, temperature_c) in heated {
            let fresh = self.warm_gpus_c.insert(*gpu, *temperature_c).is_none();
            if due || fresh {
                readings.insert(*gpu, *temperature_c);
            }
        }
        readings
    }

    /// The time of the next reading.
    pub fn wake_at_ms(&self) -> i64 {
        let warm = (!self.are_all_idle()).then(|| self.reading_timer.next_due_ms());
        warm.unwrap_or(i64::MAX).min(self.health_check_timer.next_due_ms())
    }

    fn are_all_idle(&self) -> bool {
        self.warm_gpus_c.is_empty()
    }
}

fn gpu_reading(node: &str, gpu: u8, temperature_c: i32) -> Report {
    Report::GpuReading {
        node: node.to_string(),
        gpu,
        temperature_c: Some(temperature_c),
        errors: 0,
        last_error: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;

    fn temperatures(reports: Vec<Report>) -> Vec<i32> {
        let temperature = |report| match report {
            Report::GpuReading { temperature_c, .. } => temperature_c.unwrap(),
            other => panic!("{other:?}"),
        };
        reports.into_iter().map(temperature).collect()
    }

    const REPORT_INTERVALS: ReportIntervals =
        ReportIntervals { heartbeat_ms: 1_000, readings_ms: 1_000, health_checks_ms: 30_000 };

    /// A node with four GPUs, after its first health check.
    fn node_after_first_health_check() -> GpuTemperatures {
        let node = Cluster::default_dev().registrations().remove(0);
        let mut gpus = GpuTemperatures::new(&node);
        assert_eq!(temperatures(gpus.due_readings(-1, REPORT_INTERVALS, &BTreeMap::new())), [40, 40, 40, 40]);
        gpus
    }

    #[test]
    fn gpus_heat_at_once_and_cool_to_idle() {
        let mut gpus = node_after_first_health_check();
        let hot = BTreeMap::from([(3, 90)]);
        let cold = BTreeMap::new();
        assert_eq!(temperatures(gpus.due_readings(0, REPORT_INTERVALS, &hot)), [90]);
        let mut readings = Vec::new();
        for second in 1..10 {
            let heated = if second < 3 { &hot } else { &cold };
            readings.extend(temperatures(gpus.due_readings(second * 1_000, REPORT_INTERVALS, heated)));
        }
        assert_eq!(readings, [90, 90, 80, 70, 60, 50, 40]);
        assert_eq!(gpus.wake_at_ms(), 29_999, "the next health check");
    }

    #[test]
    fn readings_and_health_checks_keep_their_intervals() {
        let mut gpus = node_after_first_health_check();
        let hot = BTreeMap::from([(3, 90)]);
        let slow = ReportIntervals { readings_ms: 10_000, health_checks_ms: 15_000, ..REPORT_INTERVALS };
        let read_at = |second: &i64| !gpus.due_readings(second * 1_000, slow, &hot).is_empty();
        assert_eq!((0..40).filter(read_at).collect::<Vec<i64>>(), [0, 10, 15, 20, 30]);
    }
}
