//! When jobs will start, looked for on a thread of its own: playing the future takes many rounds, and neither the
//! engine nor the planner waits for it.
//!
//! The planner hands over a copy of its replica now and then. What is found is published for the doors, and what is
//! said of a job for the first time goes on record, so that it can be told later how often it was right.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use muster_core::plan::{Forecast, forecast};
use muster_core::{Actor, Command, State};
use tracing::debug;

use crate::clock::Clock;
use crate::cluster::Cluster;

/// Rounds of each of the two futures. Far moments are joined, so this reaches days ahead.
const ROUNDS_MAX: usize = 200;
/// Ranges that go on record at a time: those of the jobs that start first.
const RECORDED_MAX: usize = 200;

/// Everything the thread needs.
pub struct Forecaster {
    /// States to look ahead from.
    pub states: Receiver<Box<State>>,
    /// Where forecasts go.
    pub cluster: Cluster,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Forecaster {
    /// Look ahead until the planner is gone.
    pub fn run(self) {
        while let Ok(state) = self.states.recv() {
            let now = self.clock.now().max(state.clock);
            let forecast = forecast(&state, now, ROUNDS_MAX);
            self.record(&state, &forecast);
            self.cluster.set_forecast(forecast);
        }
    }

    fn record(&self, state: &State, forecast: &Forecast) {
        // A range that rests on the configured default runtime is not told, so it is not judged either. Asked of the first
        // that waits, not of each: it takes a look at all jobs.
        if forecast.ranges().next().is_some_and(|(first, _)| state.guesses_runtimes(first)) {
            return;
        }
        let is_new = |job: &muster_core::JobId| state.jobs.get(job).is_some_and(|job| job.foreseen.is_none());
        let mut ranges: Vec<_> = forecast.ranges().filter(|(job, _)| is_new(job)).collect();
        ranges.sort_by_key(|(job, range)| (range.to, *job));
        ranges.truncate(RECORDED_MAX);
        if !ranges.is_empty()
            && let Err(declined) =
                self.cluster.ask_blocking(Actor::system(), Command::NoteForecast { ranges })
        {
            debug!(%declined, "the forecast is not on record");
        }
    }
}
