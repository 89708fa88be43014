//! Records in the journal why jobs wait, so that "why was it late" can be answered later.
//!
//! Jobs of one bucket share their verdict, so one note covers all of them. A note is recorded when a bucket has been
//! blocked for a while, when its reasons change, and when it is no longer blocked: at most every few seconds per bucket,
//! and never for a wait shorter than that.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::facts::verdict::Reason;
use muster_core::planner::Verdicts;

/// Shorter waits are not recorded, nor are changes of the reasons in between.
const NOTE_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Most notes of one round; the others follow in the next round.
const NOTES_PER_ROUND_MAX: usize = 200;

/// The blocked buckets and the reasons recorded for them.
#[derive(Default)]
pub struct WaitRecorder {
    buckets: BTreeMap<String, BlockedBucket>,
}

struct BlockedBucket {
    /// Start of the wait, or time of the last note.
    since: Duration,
    /// Reason codes of the last note; `None` if there is none yet.
    recorded_codes: Option<Vec<&'static str>>,
}

impl WaitRecorder {
    /// Notes to record after a round: the bucket key and its reasons; no reasons if the bucket is no longer blocked.
    pub fn due_notes(&mut self, verdicts: &Verdicts, now: Duration) -> Vec<(String, Vec<Reason>)> {
        let blocked: BTreeMap<String, &Vec<Reason>> =
            verdicts.buckets().map(|(bucket, verdict)| (bucket.key(), &verdict.reasons)).collect();
        let mut notes = self.take_unblocked(&blocked);
        for (key, reasons) in blocked {
            let codes: Vec<&'static str> = reasons.iter().map(Reason::code).collect();
            let bucket = self.buckets.entry(key.clone()).or_insert(BlockedBucket { since: now, recorded_codes: None });
            let due = now.saturating_sub(bucket.since) >= NOTE_INTERVAL_MIN && notes.len() < NOTES_PER_ROUND_MAX;
            if due && bucket.recorded_codes.as_ref() != Some(&codes) {
                *bucket = BlockedBucket { since: now, recorded_codes: Some(codes) };
                notes.push((key, reasons.clone()));
            }
        }
        notes
    }

    fn take_unblocked(&mut self, blocked: &BTreeMap<String, &Vec<Reason>>) -> Vec<(String, Vec<Reason>)> {
        let mut unblocked = Vec::new();
        self.buckets.retain(|key, bucket| {
            let stays = blocked.contains_key(key);
            if !stays && bucket.recorded_codes.is_some() {
                unblocked.push((key.clone(), Vec::new()));
            }
            stays
        });
        unblocked
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

    /// A cluster without nodes, and one waiting job.
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
        let submit =
            SubmitJob { spec, array: None, hold: false, key: None, known_outcomes, known_key: None, is_operator: true };
        for command in [create, Command::SubmitJob(submit)] {
            let decision = state.decide(&Actor::system(), &command, Timestamp(0)).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        }
        state
    }

    #[test]
    fn a_wait_is_recorded_after_the_interval_once_and_when_it_ends() {
        let (blocked, free) = (plan(&state_with_a_waiting_job(), Timestamp(0)).verdicts, Verdicts::default());
        let mut recorder = WaitRecorder::default();
        let begin = Duration::from_secs(7);
        let reason_counts = |notes: Vec<(String, Vec<Reason>)>| -> Vec<usize> {
            notes.iter().map(|(_, reasons)| reasons.len()).collect()
        };
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(reason_counts(recorder.due_notes(&blocked, begin)), [0usize; 0], "too short so far");
        assert_eq!(reason_counts(recorder.due_notes(&blocked, after(11))), [1]);
        assert_eq!(reason_counts(recorder.due_notes(&blocked, after(30))), [0usize; 0], "nothing has changed");
        assert_eq!(reason_counts(recorder.due_notes(&free, after(31))), [0], "no longer blocked");
        assert_eq!(reason_counts(recorder.due_notes(&blocked, after(32))), [0usize; 0]);
        assert_eq!(reason_counts(recorder.due_notes(&free, after(33))), [0usize; 0], "a short wait is not recorded");
    }
}
