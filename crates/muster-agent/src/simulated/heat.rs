//! How warm simulated GPUs are: as hot as their attempt says, and cooling when it has ended.

use std::collections::BTreeMap;

use muster_protocol::agent::Report;

use crate::pace::Pace;

/// An idle GPU, in °C.
const IDLE_C: i32 = 40;
/// How much a GPU cools between two readings.
const COOLING_C: i32 = 10;

/// Idle GPUs report once in so many heartbeats: their temperature hardly changes, and a cluster has thousands of them.
const IDLE_EVERY: i64 = 10;

/// The temperatures of the GPUs of one node.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// How many GPUs the node has.
    gpus: u8,
    /// Those above the idle temperature.
    warm: BTreeMap<u8, i32>,
    pace: Pace,
    idle_pace: Pace,
}

impl Heat {
    /// Of a node with so many GPUs, all idle.
    pub fn new(gpus: usize) -> Heat {
        Heat { gpus: u8::try_from(gpus).unwrap_or(u8::MAX), ..Heat::default() }
    }

    /// Take in which GPUs are heated now, and return the readings that are due.
    pub fn step(
        &mut self,
        now_ms: i64,
        every_ms: i64,
        node: &str,
        heated: &BTreeMap<u8, i32>,
    ) -> Vec<Report> {
        let mut readings = BTreeMap::new();
        if self.idle_pace.is_due(now_ms, every_ms.saturating_mul(IDLE_EVERY)) {
            let idle = (0..self.gpus).filter(|gpu| !self.warm.contains_key(gpu));
            readings.extend(idle.map(|gpu| (gpu, IDLE_C)));
        }
        let moves = !(self.is_at_rest() && heated.is_empty());
        let due = moves && self.pace.is_due(now_ms, every_ms);
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
        readings.into_iter().map(|(gpu, temperature_c)| reading(node, gpu, temperature_c)).collect()
    }

    /// When the next reading is due; nothing if the node has no GPUs.
    pub fn wake_at_ms(&self) -> Option<i64> {
        let idle = (self.gpus > 0).then(|| self.idle_pace.next_ms());
        let warm = (!self.is_at_rest()).then(|| self.pace.next_ms());
        idle.into_iter().chain(warm).min()
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

    fn temperatures(reports: Vec<Report>) -> Vec<i32> {
        let read = |report| match report {
            Report::GpuReading { temperature_c, .. } => temperature_c.unwrap(),
            other => panic!("{other:?}"),
        };
        reports.into_iter().map(read).collect()
    }

    #[test]
    fn it_heats_at_once_and_cools_to_rest() {
        let mut heat = Heat::default();
        let hot = BTreeMap::from([(3, 90)]);
        let cold = BTreeMap::new();
        assert_eq!(temperatures(heat.step(0, 1_000, "n1", &hot)), [90]);
        let mut story = Vec::new();
        for second in 1..10 {
            let heated = if second < 3 { &hot } else { &cold };
            story.extend(temperatures(heat.step(second * 1_000, 1_000, "n1", heated)));
        }
        assert_eq!(story, [90, 90, 80, 70, 60, 50, 40]);
        assert_eq!(heat.wake_at_ms(), None);
    }

    #[test]
    fn idle_gpus_report_too_at_a_slower_pace() {
        let mut heat = Heat::new(2);
        let (hot, cold) = (BTreeMap::from([(1, 70)]), BTreeMap::new());
        assert_eq!(temperatures(heat.step(0, 1_000, "n1", &cold)), [IDLE_C, IDLE_C]);
        assert_eq!(heat.wake_at_ms(), Some(10_000));
        assert_eq!(temperatures(heat.step(1_000, 1_000, "n1", &hot)), [70]);
        assert_eq!(temperatures(heat.step(10_000, 1_000, "n1", &hot)), [IDLE_C, 70]);
    }
}
