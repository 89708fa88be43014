//! Why a job waits: all its blockers, its place, and what would help; of one that runs, why it is where it is.

use muster_protocol::outlook::{ExpectedStart, HoldingJob, JobPhase, WaitNote, Why};

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
    output::say(&args.show, &text(&why, units::now_ms()), &why.job_id, &why)?;
    Ok(Code::DONE)
}

fn text(why: &Why, now_ms: i64) -> String {
    let mut lines = vec![headline(why), String::new()];
    if why.reasons.is_empty() {
        lines.push(why.summary.clone());
    } else {
        lines.extend(blockers(why, now_ms));
        lines.extend(holders(why, now_ms));
    }
    let place = why.score.as_ref().and_then(|score| places::placed(&why.nodes, score));
    lines.extend(place.map(|place| format!("Placed on {place}")));
    lines.extend(priority(why));
    match tells_phases(why) {
        true => lines.extend(phases(why, now_ms)),
        false => lines.extend(history(why, now_ms)),
    }
    lines.extend(expected(why, now_ms));
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

fn blockers(why: &Why, now_ms: i64) -> Vec<String> {
    let clock = |ms| units::day_clock(ms, now_ms);
    let since = why.waiting_since_ms.map(|ms| format!(" since {}", clock(ms))).unwrap_or_default();
    let numbered = why.reasons.iter().enumerate();
    let lines = numbered.map(|(place, reason)| {
        // Only where it is not what the headline says.
        let own = reason.since_ms.filter(|ms| Some(*ms) != why.waiting_since_ms);
        let own = own.map(|ms| format!(" (since {})", clock(ms))).unwrap_or_default();
        format!("{}  {}: {}{own}", place + 1, reason.reason, units::localized(&reason.sentence))
    });
    let ahead: Vec<&str> = why.ahead.iter().map(|ahead| ahead.job_id.as_str()).collect();
    let ahead = (!ahead.is_empty()).then(|| format!("Ahead of it: {}", ahead.join(" ")));
    std::iter::once(format!("Blocked{since} by")).chain(lines).chain(ahead).collect()
}

/// Who holds the GPUs it waits for, and when they are expected to end.
fn holders(why: &Why, now_ms: i64) -> Vec<String> {
    if why.holders.is_empty() && why.other_holders == 0 {
        return Vec::new();
    }
    let holder = |holder: &HoldingJob| {
        let gpus = units::count(holder.gpus, "GPU");
        let limit = if holder.is_time_limit { "at the latest" } else { "estimated" };
        let end = match holder.expected_end_ms {
            Some(end_ms) => format!("ends {} {limit}", units::day_clock(end_ms, now_ms)),
            None => "end unknown".to_string(),
        };
        let (job, name, tenant) = (&holder.job_id, &holder.name, &holder.tenant_id);
        format!("   {job}  {name}  (tenant {tenant})  {gpus}, {end}")
    };
    let others = match (why.other_holders, why.holders.is_empty()) {
        (0, _) => None,
        (count, true) => Some(format!("   {} that you may not see", units::count(count, "job"))),
        (count, false) => Some(format!("   and {count} more")),
    };
    let head = std::iter::once("The GPUs it waits for are in use by".to_string());
    head.chain(why.holders.iter().map(holder)).chain(others).collect()
}

/// The phases are told once the job has been placed; before that, the blockers say it all.
fn tells_phases(why: &Why) -> bool {
    why.phases.iter().any(|phase| !matches!(phase.phase.as_str(), "waited" | "held"))
}

/// What became of it, phase by phase.
fn phases(why: &Why, now_ms: i64) -> Vec<String> {
    let line = |phase: &JobPhase| {
        let so_far = if phase.ongoing { " (so far)" } else { "" };
        format!("{}  {}{so_far}", units::day_clock(phase.from_ms, now_ms), phase.sentence)
    };
    [String::new(), "What became of it".to_string()].into_iter().chain(why.phases.iter().map(line)).collect()
}

/// The terms of the sum, where there is more than what was asked: otherwise it says nothing new.
fn priority(why: &Why) -> Option<String> {
    if let Some(hours) = why.expected_gpu_hours {
        let hours = units::amount(hours);
        return Some(format!("Ordered by the GPU time it is expected to take: {hours} GPU-hours"));
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
fn history(why: &Why, now_ms: i64) -> Vec<String> {
    let waits = !why.reasons.is_empty();
    if why.history.is_empty() || (waits && why.history.len() == 1) {
        return Vec::new();
    }
    let note = |note: &WaitNote| {
        let sentences: Vec<&str> = note.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
        format!("{}  {}", units::day_clock(note.at_ms, now_ms), sentences.join("; "))
    };
    let head = if waits { "It has waited because" } else { "It waited because" };
    std::iter::once(head.to_string()).chain(why.history.iter().map(note)).collect()
}

/// When it starts, and how far that can be trusted.
fn expected(why: &Why, now_ms: i64) -> Vec<String> {
    let range = why.expected_start.as_ref().map(|range| told_range(range, now_ms));
    let no_estimate = || why.no_estimate.as_ref().map(|because| format!("No estimate yet: {because}"));
    let trust = match &why.no_estimate {
        Some(_) => ", if jobs run no longer than the planner assumes",
        None => " (estimated)",
    };
    let by = |ms| format!("Reservation: starts by {}{trust}", units::day_clock(ms, now_ms));
    range.or_else(no_estimate).into_iter().chain(why.reserved_at_ms.map(by)).collect()
}

fn told_range(range: &ExpectedStart, now_ms: i64) -> String {
    let right = match range.ranges_told {
        0 => String::new(),
        1 if range.ranges_right == 1 => "  (the last range like this was right)".to_string(),
        1 => "  (the last range like this was wrong)".to_string(),
        told => format!(
            "  (ranges like this were right {} % of the last {told} times)",
            100 * u64::from(range.ranges_right) / u64::from(told)
        ),
    };
    format!("Expected start {}{right}", units::range(range.from_ms, range.to_ms, now_ms))
}

/// What would start it now.
fn sooner(why: &Why) -> Option<String> {
    let words: Vec<String> = why.sooner_with.iter().map(|change| change.words.clone()).collect();
    (!words.is_empty()).then(|| format!("It would start now with {}", words.join(", or with ")))
}

/// The next thing that the caller can do, by the most telling blocker.
fn advice(why: &Why) -> Option<String> {
    let job = &why.job_id;
    let tenant = &why.tenant_id;
    let advice = match why.reasons.first()?.reason.as_str() {
        "Capacity" | "Fragmented" | "Held" | "Infeasible" if !why.may_change => return None,
        // Where fewer GPUs would start it now, that is told above, with their number.
        "Fragmented" if why.gpus > 1 => {
            "ask for fewer GPUs or another model; `muster gpus` shows what is free".to_string()
        }
        "Capacity" | "Fragmented" => {
            "`muster gpus` shows what is free and which jobs hold the rest".to_string()
        }
        "QuotaTenant" => format!(
            "`muster ps --tenant {tenant}` shows what holds the quota, `muster tenant show {tenant}` the quota"
        ),
        "QuotaUser" => format!(
            "`muster ps --tenant {tenant}` shows what runs, `muster tenant show {tenant}` what each user may hold"
        ),
        "PolicyLimit" => format!("`muster ps --tenant {tenant}` shows what holds its GPUs"),
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
    use muster_protocol::outlook::{Ahead, SoonerWith};

    use super::*;

    fn waiting() -> Why {
        let reason = |word: &str, sentence: &str| Reason {
            reason: word.into(),
            sentence: sentence.into(),
            since: None,
            since_ms: (word == "Priority").then_some(33_300_000),
        };
        Why {
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
            no_estimate: None,
            reserved_at_ms: Some(42_000_000),
            gpus: 8,
            holders: Vec::new(),
            other_holders: 0,
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
            phases: Vec::new(),
        }
    }

    #[test]
    fn every_blocker_has_its_line() {
        let why = waiting();
        let expected = "\
job-7  train  (tenant vision)  queued 14m, position 6 of 41

Blocked since 09:14:00 by
1  Held: held by ann
2  Priority: 5 jobs are ahead (since 09:15:00)
Ahead of it: job-3
Ordered by 150: priority 100 plus 90 for waiting less 40 for its fair-share factor of 0.900
Expected start 10:50:00 to 11:45:00  (ranges like this were right 86 % of the last 500 times)
Reservation: starts by 11:40:00 (estimated)
It would start now with 4 GPUs

Try: `muster release job-7`
";
        assert_eq!(text(&why, 40_000_000), expected);
        let of_another = text(&Why { may_change: false, ..why }, 40_000_000);
        assert!(!of_another.contains("Try:"), "a colleague cannot release it: {of_another}");
    }

    #[test]
    fn holders_are_named_and_one_gpu_is_not_advised_to_be_fewer() {
        let mut why = waiting();
        why.reasons[0].reason = "Capacity".into();
        why.gpus = 1;
        why.other_holders = 1;
        why.holders = vec![HoldingJob {
            job_id: "job-3".into(),
            name: "first".into(),
            tenant_id: "vision".into(),
            gpus: 2,
            expected_end: None,
            expected_end_ms: Some(42_000_000),
            is_time_limit: true,
        }];
        let text = text(&why, 40_000_000);
        let held = "The GPUs it waits for are in use by\n   job-3  first  (tenant vision)  2 GPUs, ends 11:40:00 at the latest\n   and 1 more\n";
        assert!(text.contains(held), "{text}");
        assert!(!text.contains("fewer GPUs"), "{text}");
    }

    #[test]
    fn a_poor_record_is_no_estimate() {
        let mut why = waiting();
        (why.expected_start, why.no_estimate) =
            (None, Some("only 0 of the last 20 start ranges were right".into()));
        let text = text(&why, 40_000_000);
        assert!(!text.contains("Expected start"), "{text}");
        assert!(
            text.contains(
                "No estimate yet: only 0 of the last 20 start ranges were right\nReservation: starts by"
            ),
            "{text}"
        );
    }

    #[test]
    fn after_its_end_a_job_tells_its_phases() {
        let mut why = waiting();
        why.reasons.clear();
        let phase = |phase: &str, from_ms, sentence: &str| JobPhase {
            phase: phase.into(),
            from: String::new(),
            from_ms,
            lasted_ms: 0,
            ongoing: false,
            sentence: sentence.into(),
        };
        why.phases =
            vec![phase("waited", 33_240_000, "waited 14m: quota"), phase("ran", 34_080_000, "ran 4m on n1")];
        let text = text(&why, 40_000_000);
        assert!(
            text.contains("\nWhat became of it\n09:14:00  waited 14m: quota\n09:28:00  ran 4m on n1\n"),
            "{text}"
        );
    }
}
