//! A journal, read: the state at a moment, every event after it, and how long jobs really worked.

use std::collections::BTreeMap;

use muster_core::event::Event;
use muster_core::{JobId, State, Timestamp};
use muster_server::http::Fault;
use muster_store::{Entry, Tables};

use super::works::Works;
use crate::stage::Delays;

/// Entries read at once.
const PAGE: u32 = 1_000;

/// Entries that are kept at most: some hundred bytes each.
const ENTRIES_MAX: usize = 1_000_000;
/// A server's planner looks at once when something has happened, and rests for some milliseconds.
const ROUND_MS: i64 = 100;

/// A journal from a moment on.
#[derive(Debug, Clone)]
pub struct Chronicle {
    /// The moment, or the beginning of the journal if that is later.
    pub since: Timestamp,
    /// What was true then.
    pub start: State,
    /// What happened after it, to the end of the journal.
    pub entries: Vec<Entry>,
    /// How long jobs had worked then.
    pub works_then: Works,
    /// How long they worked in the end.
    pub works: Works,
    /// How long agents usually took.
    pub delays: Delays,
}

impl Chronicle {
    /// Read a journal to its end. Takes memory for what is after the moment alone.
    pub fn read(history: &dyn Tables, since: Timestamp) -> Result<Chronicle, Fault> {
        let mut chronicle = Chronicle::new(since);
        let mut after = 0;
        loop {
            let page = history.events(after, PAGE, None)?;
            let Some(last) = page.last().map(|row| row.seq) else { break };
            for row in page {
                let event = muster_json::from_str(&row.payload).map_err(|error| {
                    Fault::internal(format!("entry {} of the journal cannot be read: {error}", row.seq))
                })?;
                let event = without_reasons(event);
                chronicle.add(Entry { seq: row.seq, epoch: row.epoch, at: Timestamp(row.at_ms), event });
            }
            if chronicle.entries.len() > ENTRIES_MAX {
                let many = format!("more than {ENTRIES_MAX} things have happened since then; ask for less");
                return Err(Fault::invalid("since", many));
            }
            after = last;
        }
        chronicle.finished()
    }

    /// The same from entries that are in memory.
    #[cfg(test)]
    pub fn of(entries: Vec<Entry>, since: Timestamp) -> Result<Chronicle, Fault> {
        let mut chronicle = Chronicle::new(since);
        entries.into_iter().for_each(|entry| chronicle.add(entry));
        chronicle.finished()
    }

    fn new(since: Timestamp) -> Chronicle {
        Chronicle {
            since,
            start: State::empty(),
            entries: Vec::new(),
            works_then: Works::default(),
            works: Works::default(),
            delays: Delays::NONE,
        }
    }

    fn add(&mut self, entry: Entry) {
        if self.entries.is_empty() && entry.at < self.since {
            self.start.apply(&entry.event);
            self.works_then.note(&entry.event);
            return;
        }
        self.entries.push(entry);
    }

    fn finished(mut self) -> Result<Chronicle, Fault> {
        let Some(first) = self.entries.first() else {
            return Err(Fault::invalid("since", "nothing has happened since then; go back further"));
        };
        // A journal that is younger than the moment begins with its first entry.
        if self.start.seq == 0 {
            self.since = first.at;
        }
        self.works_then.forget_the_past();
        self.works = self.works_then.clone();
        self.entries.iter().for_each(|entry| self.works.note(&entry.event));
        self.delays = delays(&self.entries);
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
fn delays(entries: &[Entry]) -> Delays {
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
    Delays { round_ms: ROUND_MS, launch_ms: middle(launches), stop_ms: middle(stops) }
}

fn middle(mut all: Vec<i64>) -> i64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0).max(0)
}
