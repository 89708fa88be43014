//! How warm simulated GPUs are: as hot as their attempt says, and cooling when it has ended.

use std::collections::BTreeMap;

use muster_protocol::agent::{Registration, Report};

use super::world::Paces;
use crate::pace::Pace;

/// An idle GPU, in °C.
const IDLE_C: i32 = 40;
/// How much a GPU cools between two readings.
const COOLING_C: i32 = 10;

/// The GPUs of one node. Those at rest are read by health checks only: thousands of idle readings would tell nothing.
#[derive(Debug, Default)]
pub(super) struct Heat {
    warm: BTreeMap<u8, i32>,
    readings: Pace,
    health_checks: Pace,
}

impl Heat {
    /// Take in which GPUs are heated now, and return the readings that are due.
    pub fn step(
        &mut self,
        now_ms: i64,
        paces: Paces,
        node: &Registration,
        heated: &BTreeMap<u8, i32>,
    ) -> Vec<Report> {
        let mut due = self.warm_readings(now_ms, paces.readings_ms, heated);
        if self.health_checks.is_due(now_ms, paces.health_checks_ms) {
            for gpu in (0..).take(node.gpus.len()) {
                due.entry(gpu).or_insert_with(|| self.warm.get(&gpu).copied().unwrap_or(IDLE_C));
            }
        }
        due.into_iter().map(|(gpu, temperature_c)| reading(&node.node, gpu, temperature_c)).collect()
    }

    /// The GPUs that are warm, or were at the last reading.
    fn warm_readings(&mut self, now_ms: i64, every_ms: i64, heated: &BTreeMap<u8, i32>) -> BTreeMap<u8, i32> {
        let mut readings = BTreeMap::new();
        if self.is_at_rest() && heated.is_empty() {
            return readings;
        }
        let due = self.readings.is_due(now_ms, every_ms);
        if due {
            self.warm.retain(|gpu, temperature_c| {
                *temperature_c = (*temperature_c - COOLING_C).max(IDLE_C);
                readings.insert(*gpu, *temperature_c);
                *temperature_c > IDLE_C
            });
        }
        for (gpu, temperature_c) in heated {
            let fresh = self.warm.insert(*gpu, *temperature_c).is_none();
            if due || fresh {
                readings.insert(*gpu, *temperature_c);
            }
        }
        readings
    }

    /// When the next reading is due.
    pub fn wake_at_ms(&self) -> i64 {
        let warm = (!self.is_at_rest()).then(|| self.readings.next_ms());
        warm.unwrap_or(i64::MAX).min(self.health_checks.next_ms())
    }

    fn is_at_rest(&self) -> bool {
        self.warm.is_empty()
    }
}

fn reading(node: &str, gpu: u8, temperature_c: i32) -> Report {
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
        let read = |report| match report {
            Report::GpuReading { temperature_c, .. } => temperature_c.unwrap(),
            other => panic!("{other:?}"),
        };
        reports.into_iter().map(read).collect()
    }

    const PACES: Paces = Paces { heartbeat_ms: 1_000, readings_ms: 1_000, health_checks_ms: 30_000 };

    /// A node with four GPUs whose first health check is over.
    fn checked() -> (Heat, Registration) {
        let node = Cluster::default_dev().registrations().remove(0);
        let mut heat = Heat::default();
        assert_eq!(temperatures(heat.step(-1, PACES, &node, &BTreeMap::new())), [40, 40, 40, 40]);
        (heat, node)
    }

    #[test]
    fn it_heats_at_once_and_cools_to_rest() {
        let (mut heat, node) = checked();
        let hot = BTreeMap::from([(3, 90)]);
        let cold = BTreeMap::new();
        assert_eq!(temperatures(heat.step(0, PACES, &node, &hot)), [90]);
        let mut story = Vec::new();
        for second in 1..10 {
            let heated = if second < 3 { &hot } else { &cold };
            story.extend(temperatures(heat.step(second * 1_000, PACES, &node, heated)));
        }
        assert_eq!(story, [90, 90, 80, 70, 60, 50, 40]);
        assert_eq!(heat.wake_at_ms(), 29_999, "the next health check");
    }

    #[test]
    fn both_paces_are_kept() {
        let (mut heat, node) = checked();
        let hot = BTreeMap::from([(3, 90)]);
        let slow = Paces { readings_ms: 10_000, health_checks_ms: 15_000, ..PACES };
        let read_at = |second: &i64| !heat.step(second * 1_000, slow, &node, &hot).is_empty();
        assert_eq!((0..40).filter(read_at).collect::<Vec<i64>>(), [0, 10, 15, 20, 30]);
    }
}
