//! Why a job waits: all its blockers, its place, and what would help; of one that runs, why it is where it is.

use muster_protocol::outlook::{WaitNote, Why};

use super::{Code, Ending};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::{places, units};

/// `muster why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

/// Print the planner's verdict.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let why: Why = client.get(jobs::target(id).at("why"))?;
    output::say(&args.show, &text(&why), &why.job_id, &why)?;
    Ok(Code::DONE)
}

fn text(why: &Why) -> String {
    let mut lines = vec![headline(why), String::new()];
    if why.reasons.is_empty() {
        lines.push(why.summary.clone());
    } else {
        lines.extend(blockers(why));
    }
    let place = why.score.as_ref().and_then(|score| places::placed(&why.nodes, score));
    lines.extend(place.map(|place| format!("Placed on {place}")));
    lines.extend(priority(why));
    lines.extend(history(why));
    lines.extend(expected(why));
    lines.extend(sooner(why));
    lines.extend(advice(why));
    lines.join("\n") + "\n"
}

fn headline(why: &Why) -> String {
    let phase = why.phase.to_lowercase();
    let since = why.waited.as_ref().map(|waited| format!(" {waited}")).unwrap_or_default();
    let place = match (why.queue_position, why.queue_length) {
        (Some(place), Some(length)) => format!(", position {place} of {length}"),
        _ => String::new(),
    };
    format!("{}  {}  (tenant {})  {phase}{since}{place}", why.job_id, why.name, why.tenant_id)
}

fn blockers(why: &Why) -> Vec<String> {
    let since = why.waiting_since_ms.map(|ms| format!(" since {}", units::clock(ms))).unwrap_or_default();
    let numbered = why.reasons.iter().enumerate();
    let lines = numbered.map(|(place, reason)| {
        // Only where it is not what the headline says.
        let own = reason.since_ms.filter(|ms| Some(*ms) != why.waiting_since_ms);
        let own = own.map(|ms| format!(" (since {})", units::clock(ms))).unwrap_or_default();
        format!("{}  {}: {}{own}", place + 1, reason.reason, reason.sentence)
    });
    let ahead: Vec<&str> = why.ahead.iter().map(|ahead| ahead.job_id.as_str()).collect();
    let ahead = (!ahead.is_empty()).then(|| format!("Ahead of it: {}", ahead.join(" ")));
    std::iter::once(format!("Blocked{since} by")).chain(lines).chain(ahead).collect()
}

/// The terms of the sum, where there is more than what was asked: otherwise it says nothing new.
fn priority(why: &Why) -> Option<String> {
    if let Some(hours) = why.expected_gpu_hours {
        return Some(format!("Ordered by the GPU time it is expected to take: {hours:.2} GPU-hours"));
    }
    let now = why.effective_priority?;
    let waiting = why.aging.filter(|aging| *aging > 0).map(|aging| format!(" plus {aging} for waiting"));
    let factor = why.fair_share_factor.unwrap_or(1.0);
    let share = why.fair_share_penalty.filter(|penalty| *penalty > 0);
    let share = share.map(|penalty| format!(" less {penalty} for its fair-share factor of {factor:.3}"));
    let terms = [waiting, share].into_iter().flatten().collect::<String>();
    (!terms.is_empty()).then(|| format!("Ordered by {now}: priority {}{terms}", why.priority))
}

/// Why it waited, of a job that no longer does or has done so for other reasons before.
fn history(why: &Why) -> Vec<String> {
    let waits = !why.reasons.is_empty();
    if why.history.is_empty() || (waits && why.history.len() == 1) {
        return Vec::new();
    }
    let note = |note: &WaitNote| {
        let sentences: Vec<&str> = note.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
        format!("{}  {}", units::clock(note.at_ms), sentences.join("; "))
    };
    let head = if waits { "It has waited because" } else { "It waited because" };
    std::iter::once(head.to_string()).chain(why.history.iter().map(note)).collect()
}

/// When it starts, and how far that can be trusted.
fn expected(why: &Why) -> Option<String> {
    let range = why.expected_start.as_ref()?;
    let right = match range.ranges_told {
        0 => String::new(),
        told => format!(
            "  (ranges like this were right {} % of the last {told} times)",
            100 * u64::from(range.ranges_right) / u64::from(told)
        ),
    };
    let reserved = why
        .reserved_at_ms
        .map(|ms| format!("\nReserved: a place from {} on, as far as can be told", units::clock(ms)));
    let (from, to) = (units::clock(range.from_ms), units::clock(range.to_ms));
    Some(format!("Expected start {from} to {to}{right}{}", reserved.unwrap_or_default()))
}

/// What would start it now.
fn sooner(why: &Why) -> Option<String> {
    let words: Vec<String> = why.sooner_with.iter().map(|change| change.words.clone()).collect();
    (!words.is_empty()).then(|| format!("Starts now with: {}", words.join(" · ")))
}

/// The next thing that the caller can do, by the most telling blocker.
fn advice(why: &Why) -> Option<String> {
    let job = &why.job_id;
    let tenant = &why.tenant_id;
    let advice = match why.reasons.first()?.reason.as_str() {
        "Capacity" | "Fragmented" | "Held" | "Infeasible" if !why.may_change => return None,
        "Capacity" | "Fragmented" => {
            "ask for fewer GPUs or another model; `muster gpus` shows what is free".to_string()
        }
        "QuotaTenant" => format!(
            "`muster ps --tenant {tenant}` shows what holds the quota, `muster tenant show {tenant}` the quota"
        ),
        "QuotaUser" => format!(
            "`muster ps --tenant {tenant}` shows what runs, `muster tenant show {tenant}` what each user may hold"
        ),
        "NodeHealth" => "`muster node ls` shows what is out of service and why".to_string(),
        "Held" => format!("`muster release {job}`"),
        "Dependency" => "`muster show` the jobs it waits for".to_string(),
        "Infeasible" => format!("`muster cancel {job}` and submit what `muster gpus` says there is"),
        _ => return None,
    };
    Some(format!("\nTry: {advice}"))
}

#[cfg(test)]
mod tests {
    use muster_protocol::job::{JobState, Reason};
    use muster_protocol::outlook::{Ahead, ExpectedStart, SoonerWith};

    use super::*;

    #[test]
    fn every_blocker_has_its_line() {
        let reason = |word: &str, sentence: &str| Reason {
            reason: word.into(),
            sentence: sentence.into(),
            since: None,
            since_ms: (word == "Priority").then_some(33_300_000),
        };
        let why = Why {
            job_id: "job-7".into(),
            name: "train".into(),
            tenant_id: "vision".into(),
            state: JobState::Pending,
            phase: "Queued".into(),
            summary: String::new(),
            waiting_since: None,
            waiting_since_ms: Some(33_240_000),
            waited: Some("14m".into()),
            queue_position: Some(6),
            queue_length: Some(41),
            nodes: Vec::new(),
            score: None,
            priority: 100,
            effective_priority: Some(150),
            aging: Some(90),
            fair_share_penalty: Some(40),
            fair_share_factor: Some(0.9),
            expected_gpu_hours: None,
            reasons: vec![reason("Held", "held by ann"), reason("Priority", "5 jobs are ahead")],
            estimated_start: None,
            expected_start: Some(ExpectedStart {
                from: String::new(),
                from_ms: 39_000_000,
                to: String::new(),
                to_ms: 42_300_000,
                ranges_right: 430,
                ranges_told: 500,
            }),
            reserved_at_ms: Some(42_000_000),
            sooner_with: vec![SoonerWith {
                words: "4 GPUs".into(),
                keeps_its_place: false,
                change: Default::default(),
            }],
            may_change: true,
            ahead: vec![Ahead {
                job_id: "job-3".into(),
                name: "first".into(),
                tenant_id: "vision".into(),
                priority: 100,
            }],
            history: Vec::new(),
        };
        let expected = "\
job-7  train  (tenant vision)  queued 14m, position 6 of 41

Blocked since 09:14:00 by
1  Held: held by ann
2  Priority: 5 jobs are ahead (since 09:15:00)
Ahead of it: job-3
Ordered by 150: priority 100 plus 90 for waiting less 40 for its fair-share factor of 0.900
Expected start 10:50:00 to 11:45:00  (ranges like this were right 86 % of the last 500 times)
Reserved: a place from 11:40:00 on, as far as can be told
Starts now with: 4 GPUs

Try: `muster release job-7`
";
        assert_eq!(text(&why), expected);
        let of_another = text(&Why { may_change: false, ..why });
        assert!(!of_another.contains("Try:"), "a colleague cannot release it: {of_another}");
    }
}
