//! What goes on record of why jobs wait, so that "why was it late" has an answer afterwards.
//!
//! Jobs of one bucket share their verdict, so one note speaks for all of them. A note is made when a bucket has been
//! blocked for a while, when its reasons become others, and when it is free again; never more often than every few
//! seconds for one bucket, and not at all for waits that nobody would notice.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::plan::Verdicts;
use muster_core::verdict::Reason;

/// Waits shorter than this are not worth a note, and changes in between are left out.
const PAUSE: Duration = Duration::from_secs(10);
/// Notes of one round at most; the others follow in the next.
const NOTES_MAX: usize = 200;

/// What was noted of each bucket that is blocked.
#[derive(Default)]
pub struct Waits {
    buckets: BTreeMap<String, Wait>,
}

struct Wait {
    /// Since when it is blocked, or when it was last noted.
    since: Duration,
    /// The words of what was noted; nothing yet if it was not.
    noted: Option<Vec<&'static str>>,
}

impl Waits {
    /// What is to be noted after a round.
    pub fn news(&mut self, verdicts: &Verdicts, now: Duration) -> Vec<(String, Vec<Reason>)> {
        let blocked: BTreeMap<String, &Vec<Reason>> =
            verdicts.buckets().map(|(bucket, verdict)| (bucket.key(), &verdict.reasons)).collect();
        let mut news = self.free_again(&blocked);
        for (key, reasons) in blocked {
            let words: Vec<&'static str> = reasons.iter().map(Reason::word).collect();
            let wait = self.buckets.entry(key.clone()).or_insert(Wait { since: now, noted: None });
            let due = now.saturating_sub(wait.since) >= PAUSE && news.len() < NOTES_MAX;
            if due && wait.noted.as_ref() != Some(&words) {
                *wait = Wait { since: now, noted: Some(words) };
                news.push((key, reasons.clone()));
            }
        }
        news
    }

    fn free_again(&mut self, blocked: &BTreeMap<String, &Vec<Reason>>) -> Vec<(String, Vec<Reason>)> {
        let mut free = Vec::new();
        self.buckets.retain(|key, wait| {
            let stays = blocked.contains_key(key);
            if !stays && wait.noted.is_some() {
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
    use muster_core::command::{Actor, Command, SubmitJob};
    use muster_core::plan::plan;
    use muster_core::tenant::TenantConfig;
    use muster_core::{JobSpec, State};

    use super::*;

    /// A cluster without nodes, with one job that waits for them.
    fn waiting() -> State {
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
    fn a_wait_is_noted_late_once_and_when_it_is_over() {
        let (blocked, free) = (plan(&waiting(), Timestamp(0)).verdicts, Verdicts::default());
        let mut waits = Waits::default();
        let begin = Duration::from_secs(7);
        let words = |news: Vec<(String, Vec<Reason>)>| -> Vec<usize> {
            news.iter().map(|(_, reasons)| reasons.len()).collect()
        };
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(words(waits.news(&blocked, begin)), [0usize; 0], "nobody would notice yet");
        assert_eq!(words(waits.news(&blocked, after(11))), [1]);
        assert_eq!(words(waits.news(&blocked, after(30))), [0usize; 0], "nothing has changed");
        assert_eq!(words(waits.news(&free, after(31))), [0], "it is free again");
        assert_eq!(words(waits.news(&blocked, after(32))), [0usize; 0]);
        assert_eq!(words(waits.news(&free, after(33))), [0usize; 0], "a short wait leaves no trace");
    }
}
