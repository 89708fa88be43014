//! How warm simulated GPUs are: as hot as their attempt says, and cooling when it has ended.

use std::collections::BTreeMap;

use muster_protocol::agent::Report;

use crate::pace::Pace;

/// An idle GPU, in °C.
const IDLE_C: i32 = 40;
/// How much a GPU cools between two readings.
const COOLING_C: i32 = 10;

/// The GPUs of one node that are not at rest. Others say nothing: thousands of idle readings would tell nothing.
#[derive(Debug, Default)]
pub(super) struct Heat {
    warm: BTreeMap<u8, i32>,
    pace: Pace,
}

impl Heat {
    /// Take in which GPUs are heated now, and return the readings that are due.
    pub fn step(
        &mut self,
        now_ms: i64,
        every_ms: i64,
        node: &str,
        heated: &BTreeMap<u8, i32>,
    ) -> Vec<Report> {
        if self.is_at_rest() && heated.is_empty() {
            return Vec::new();
        }
        let due = self.pace.is_due(now_ms, every_ms);
        let mut readings = BTreeMap::new();
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

    /// When the next reading is due, if any GPU is warm.
    pub fn wake_at_ms(&self) -> Option<i64> {
        (!self.is_at_rest()).then(|| self.pace.next_ms())
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
}
