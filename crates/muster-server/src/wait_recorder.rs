//! What goes on record of why jobs wait, so that "why was it late" has an answer afterwards.
//!
//! Jobs of one bucket share their verdict, so one note speaks for all of them. A note is made when a bucket has been
//! blocked for a while, when its reasons become others, and when it is free again; never more often than every few
//! seconds for one bucket, and not at all for waits that nobody would notice.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::facts::verdict::Reason;
use muster_core::planner::Verdicts;

/// Waits shorter than this are not worth a note, and changes in between are left out.
const NOTE_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Notes of one round at most; the others follow in the next.
const NOTES_PER_ROUND_MAX: usize = 200;

/// What was noted of each bucket that is blocked.
#[derive(Default)]
pub struct WaitRecorder {
    buckets: BTreeMap<String, BlockedBucket>,
}

struct BlockedBucket {
    /// Since when it is blocked, or when it was last noted.
    since: Duration,
    /// The words of what was noted; nothing yet if it was not.
    recorded_codes: Option<Vec<&'static str>>,
}

impl WaitRecorder {
    /// What is to be noted after a round.
    pub fn due_notes(&mut self, verdicts: &Verdicts, now: Duration) -> Vec<(String, Vec<Reason>)> {
        let blocked: BTreeMap<String, &Vec<Reason>> =
            verdicts.buckets().map(|(bucket, verdict)| (bucket.key(), &verdict.reasons)).collect();
        let mut news = self.take_unblocked(&blocked);
        for (key, reasons) in blocked {
            let words: Vec<&'static str> = reasons.iter().map(Reason::code).collect();
            let wait = self.buckets.entry(key.clone()).or_insert(BlockedBucket { since: now, recorded_codes: None });
            let due = now.saturating_sub(wait.since) >= NOTE_INTERVAL_MIN && news.len() < NOTES_PER_ROUND_MAX;
            if due && wait.recorded_codes.as_ref() != Some(&words) {
                *wait = BlockedBucket { since: now, recorded_codes: Some(words) };
                news.push((key, reasons.clone()));
            }
        }
        news
    }

    fn take_unblocked(&mut self, blocked: &BTreeMap<String, &Vec<Reason>>) -> Vec<(String, Vec<Reason>)> {
        let mut free = Vec::new();
        self.buckets.retain(|key, wait| {
            let stays = blocked.contains_key(key);
            if !stays && wait.recorded_codes.is_some() {
                free.push((key.clone(), Vec::new()));
            }
            stays
        });
        free
    }
}

#[cfg(test)]
mod tests {
    use muster_core::Timestamp;
    use muster_core::facts::command::{Actor, Command, SubmitJob};
    use muster_core::objects::tenant::TenantConfig;
    use muster_core::planner::plan;
    use muster_core::{JobSpec, State};

    use super::*;

    /// A cluster without nodes, with one job that waits for them.
    fn state_with_a_waiting_job() -> State {
        let mut state = State::empty();
        let config = Box::new(TenantConfig::unlimited("red"));
        let create = Command::CreateTenant { id: "red".parse().unwrap(), config };
        let spec: JobSpec = muster_json::from_str(
            r#"{"name":"x","tenant":"red","user":"ada","priority":100,"run":{"command":["x"]},
                "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
        )
        .unwrap();
        let (spec, known_outcomes) = (spec.into(), Default::default());
        let submit = SubmitJob {
            spec,
            array: None,
            hold: false,
            key: None,
            known_outcomes,
            known_key: None,
            is_operator: true,
        };
        for command in [create, Command::SubmitJob(submit)] {
            let decision = state.decide(&Actor::system(), &command, Timestamp(0)).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        }
        state
    }

    #[test]
    fn a_wait_is_recorded_after_the_interval_once_and_when_it_ends() {
        let (blocked, free) = (plan(&state_with_a_waiting_job(), Timestamp(0)).verdicts, Verdicts::default());
        let mut waits = WaitRecorder::default();
        let begin = Duration::from_secs(7);
        let words = |news: Vec<(String, Vec<Reason>)>| -> Vec<usize> {
            news.iter().map(|(_, reasons)| reasons.len()).collect()
        };
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(words(waits.due_notes(&blocked, begin)), [0usize; 0], "nobody would notice yet");
        assert_eq!(words(waits.due_notes(&blocked, after(11))), [1]);
        assert_eq!(words(waits.due_notes(&blocked, after(30))), [0usize; 0], "nothing has changed");
        assert_eq!(words(waits.due_notes(&free, after(31))), [0], "it is free again");
        assert_eq!(words(waits.due_notes(&blocked, after(32))), [0usize; 0]);
        assert_eq!(words(waits.due_notes(&free, after(33))), [0usize; 0], "a short wait leaves no trace");
    }
}
