//! The forecaster's thread: start ranges of waiting jobs. A forecast takes many planning rounds on a copy of the state,
//! and neither the engine nor the planner waits for it.
//!
//! The planner sends a copy of its replica now and then. Each forecast is published for readers. The first range of a job
//! is recorded in the journal, so that the calibration can tell how often ranges were right.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use muster_core::planner::{Forecast, forecast};
use muster_core::{Actor, Command, State};
use tracing::debug;

use crate::clock::Clock;
use crate::cluster::Cluster;

/// Rounds of each of the two simulated futures. Distant moments are merged, so this many rounds reach days ahead.
const FORECAST_ROUNDS_MAX: usize = 200;
/// Most ranges recorded per forecast: those of the jobs that start first.
const RECORDED_RANGES_MAX: usize = 200;

/// Everything the forecaster's thread needs.
pub struct Forecaster {
    /// States to forecast from.
    pub states: Receiver<Box<State>>,
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
}

impl Forecaster {
    /// Forecast until the planner has ended.
    pub fn run(self) {
        while let Ok(state) = self.states.recv() {
            let now = self.clock.now().max(state.clock);
            let forecast = forecast(&state, now, FORECAST_ROUNDS_MAX);
            self.record(&state, &forecast);
            self.cluster.set_forecast(forecast);
        }
    }

    fn record(&self, state: &State, forecast: &Forecast) {
        // A range that rests on the configured default runtime is not shown, so it is not judged either. Checked for the
        // first waiting job only: one check visits all jobs.
        if forecast.ranges().next().is_some_and(|(first, _)| state.guesses_runtimes(first)) {
            return;
        }
        let is_new = |job: &muster_core::JobId| state.jobs.get(job).is_some_and(|job| job.first_forecast.is_none());
        let mut ranges: Vec<_> = forecast.ranges().filter(|(job, _)| is_new(job)).collect();
        ranges.sort_by_key(|(job, range)| (range.to, *job));
        ranges.truncate(RECORDED_RANGES_MAX);
        if !ranges.is_empty()
            && let Err(declined) = self.cluster.execute_blocking(Actor::system(), Command::NoteForecast { ranges })
        {
            debug!(%declined, "forecast not recorded");
        }
    }
}
