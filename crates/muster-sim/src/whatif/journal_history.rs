//! A journal in memory: the state at a time, every event after it, and the work of each job.

use std::collections::BTreeMap;

use muster_core::facts::event::Event;
use muster_core::{JobId, State, Timestamp};
use muster_server::whatif::WhatIfError;
use muster_store::{Entry, Tables};

use super::work_history::WorkHistory;
use crate::sim_loop::AgentDelays;

/// Journal entries per query.
const ENTRIES_PER_PAGE: u32 = 1_000;

/// The most entries kept in memory, at a few hundred bytes each.
const ENTRIES_MAX: usize = 1_000_000;
/// The planner of a server runs right after a change, and pauses for some milliseconds between rounds.
const ROUND_INTERVAL_MS: i64 = 100;

/// A journal from a time on.
#[derive(Debug, Clone)]
pub struct JournalHistory {
    /// The requested time, or the first entry if that is later.
    pub since: Timestamp,
    /// The state at `since`.
    pub start_state: State,
    /// All entries from `since` on.
    pub entries: Vec<Entry>,
    /// The work of jobs before `since`.
    pub work_at_start: WorkHistory,
    /// The work of jobs in the whole journal.
    pub work: WorkHistory,
    /// The median delays of agents.
    pub delays: AgentDelays,
}

impl JournalHistory {
    /// Reads a journal to its end. Keeps only the entries from `since` on in memory.
    pub fn read(history: &dyn Tables, since: Timestamp) -> Result<JournalHistory, WhatIfError> {
        let mut journal = JournalHistory::new(since);
        let mut after = 0;
        loop {
            let page = history.events(after, ENTRIES_PER_PAGE, None)?;
            let Some(last) = page.last().map(|row| row.seq) else { break };
            for row in page {
                let event = without_reasons(row.event()?);
                journal.add(Entry { seq: row.seq, epoch: row.epoch, at: Timestamp(row.at_ms), event });
            }
            if journal.entries.len() > ENTRIES_MAX {
                let too_many =
                    format!("the journal has more than {ENTRIES_MAX} entries since then; choose a later `since`");
                return Err(WhatIfError::invalid("since", too_many));
            }
            after = last;
        }
        journal.finished()
    }

    /// A history from entries in memory.
    #[cfg(test)]
    pub fn from_entries(entries: Vec<Entry>, since: Timestamp) -> Result<JournalHistory, WhatIfError> {
        let mut journal = JournalHistory::new(since);
        entries.into_iter().for_each(|entry| journal.add(entry));
        journal.finished()
    }

    fn new(since: Timestamp) -> JournalHistory {
        JournalHistory {
            since,
            start_state: State::empty(),
            entries: Vec::new(),
            work_at_start: WorkHistory::default(),
            work: WorkHistory::default(),
            delays: AgentDelays::IMMEDIATE,
        }
    }

    fn add(&mut self, entry: Entry) {
        if self.entries.is_empty() && entry.at < self.since {
            self.start_state.apply(&entry.event);
            self.work_at_start.add_event(&entry.event);
            return;
        }
        self.entries.push(entry);
    }

    fn finished(mut self) -> Result<JournalHistory, WhatIfError> {
        let Some(first) = self.entries.first() else {
            return Err(WhatIfError::invalid(
                "since",
                "the journal has no entries since then; choose an earlier `since`",
            ));
        };
        // A journal that starts after the requested time is taken from its first entry.
        if self.start_state.seq == 0 {
            self.since = first.at;
        }
        self.work_at_start.forget_ended_jobs();
        self.work = self.work_at_start.clone();
        self.entries.iter().for_each(|entry| self.work.add_event(&entry.event));
        self.delays = median_delays(&self.entries);
        Ok(self)
    }
}

/// Drops wait reasons, the largest part of a journal, because no decision depends on them.
fn without_reasons(event: Event) -> Event {
    match event {
        Event::WaitNoted { at, .. } => Event::WaitNoted { bucket: String::new(), reasons: Vec::new(), at },
        other => other,
    }
}

/// The median times from placement to start and from stop order to end.
fn median_delays(entries: &[Entry]) -> AgentDelays {
    let mut placed: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut stopping: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let (mut launches, mut stops) = (Vec::new(), Vec::new());
    for entry in entries {
        match &entry.event {
            Event::JobPlaced { job, at, .. } => {
                placed.insert(*job, *at);
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                launches.extend(placed.remove(job).map(|placed| at.since(placed)));
            }
            Event::AttemptStopping { job, at, .. } => {
                stopping.entry(*job).or_insert(*at);
            }
            Event::AttemptEnded { job, at, .. } => {
                placed.remove(job);
                stops.extend(stopping.remove(job).map(|stopping| at.since(stopping)));
            }
            _ => {}
        }
    }
    AgentDelays { round_interval_ms_min: ROUND_INTERVAL_MS, launch_ms: median(launches), stop_ms: median(stops) }
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0).max(0)
}
