//! A journal, read: the state at a moment, every event after it, and how long jobs really worked.

use std::collections::BTreeMap;

use muster_core::facts::event::Event;
use muster_core::{JobId, State, Timestamp};
use muster_server::whatif::WhatIfError;
use muster_store::{Entry, Tables};

use super::work_history::WorkHistory;
use crate::sim_loop::AgentDelays;

/// Entries read at once.
const ENTRIES_PER_PAGE: u32 = 1_000;

/// Entries that are kept at most: some hundred bytes each.
const ENTRIES_MAX: usize = 1_000_000;
/// A server's planner looks at once when something has happened, and rests for some milliseconds.
const ROUND_INTERVAL_MS: i64 = 100;

/// A journal from a moment on.
#[derive(Debug, Clone)]
pub struct JournalHistory {
    /// The moment, or the beginning of the journal if that is later.
    pub since: Timestamp,
    /// What was true then.
    pub start_state: State,
    /// What happened after it, to the end of the journal.
    pub entries: Vec<Entry>,
    /// How long jobs had worked then.
    pub work_at_start: WorkHistory,
    /// How long they worked in the end.
    pub work: WorkHistory,
    /// How long agents usually took.
    pub delays: AgentDelays,
}

impl JournalHistory {
    /// Read a journal to its end. Takes memory for what is after the moment alone.
    pub fn read(history: &dyn Tables, since: Timestamp) -> Result<JournalHistory, WhatIfError> {
        let mut chronicle = JournalHistory::new(since);
        let mut after = 0;
        loop {
            let page = history.events(after, ENTRIES_PER_PAGE, None)?;
            let Some(last) = page.last().map(|row| row.seq) else { break };
            for row in page {
                let event = muster_json::from_str(&row.payload).map_err(|error| {
                    WhatIfError::internal(format!("entry {} of the journal cannot be read: {error}", row.seq))
                })?;
                let event = without_reasons(event);
                chronicle.add(Entry { seq: row.seq, epoch: row.epoch, at: Timestamp(row.at_ms), event });
            }
            if chronicle.entries.len() > ENTRIES_MAX {
                let many = format!("more than {ENTRIES_MAX} things have happened since then; ask for less");
                return Err(WhatIfError::invalid("since", many));
            }
            after = last;
        }
        chronicle.finished()
    }

    /// The same from entries that are in memory.
    #[cfg(test)]
    pub fn from_entries(entries: Vec<Entry>, since: Timestamp) -> Result<JournalHistory, WhatIfError> {
        let mut chronicle = JournalHistory::new(since);
        entries.into_iter().for_each(|entry| chronicle.add(entry));
        chronicle.finished()
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
            return Err(WhatIfError::invalid("since", "nothing has happened since then; go back further"));
        };
        // A journal that is younger than the moment begins with its first entry.
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

/// Why jobs waited is the longest part of a journal, and nothing is decided by it.
fn without_reasons(event: Event) -> Event {
    match event {
        Event::WaitNoted { at, .. } => Event::WaitNoted { bucket: String::new(), reasons: Vec::new(), at },
        other => other,
    }
}

/// The middle of how long starts and stops took.
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
    AgentDelays {
        round_interval_ms_min: ROUND_INTERVAL_MS,
        launch_ms: median(launches),
        stop_ms: median(stops),
    }
}

fn median(mut all: Vec<i64>) -> i64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0).max(0)
}
