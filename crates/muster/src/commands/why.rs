//! `muster why`: why a job waits (verdict, position, start range, remedies); for a running job its placement, for an
//! ended job its phases.

use muster_protocol::explain::{ExpectedStart, HoldingJob, JobExplanation, JobPhase, WaitNote};

use super::{CommandResult, ExitStatus};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::{placement_display, units};

/// `muster why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let why: JobExplanation = client.get(jobs::job_target(id).segment("why"))?;
    output::print_text(&args.show, &why_text(&why, units::now_ms()), &why.job_id, &why)?;
    Ok(ExitStatus::SUCCESS)
}

fn why_text(why: &JobExplanation, now_ms: i64) -> String {
    let mut lines = vec![headline(why), String::new()];
    if why.reasons.is_empty() {
        lines.push(why.summary.clone());
    } else {
        lines.extend(blocker_lines(why, now_ms));
        lines.extend(holder_lines(why, now_ms));
    }
    let placement = why.score.as_ref().and_then(|score| placement_display::placement_summary(&why.nodes, score));
    lines.extend(placement.map(|placement| format!("Placed on {placement}")));
    lines.extend(priority_line(why));
    match shows_phases(why) {
        true => lines.extend(phase_lines(why, now_ms)),
        false => lines.extend(history_lines(why, now_ms)),
    }
    lines.extend(expected_start_lines(why, now_ms));
    lines.extend(remedies_line(why));
    lines.extend(advice_line(why));
    lines.join("\n") + "\n"
}

fn headline(why: &JobExplanation) -> String {
    let phase = why.phase.to_lowercase();
    let since = why.waited.as_ref().map(|waited| format!(" {waited}")).unwrap_or_default();
    let position = match (why.queue_position, why.queue_length) {
        (Some(position), Some(length)) => format!(", position {position} of {length}"),
        _ => String::new(),
    };
    format!("{}  {}  (tenant {})  {phase}{since}{position}", why.job_id, why.name, why.tenant_id)
}

fn blocker_lines(why: &JobExplanation, now_ms: i64) -> Vec<String> {
    let clock = |ms| units::local_clock_text_with_date(ms, now_ms);
    let since = why.waiting_since_ms.map(|ms| format!(" since {}", clock(ms))).unwrap_or_default();
    let numbered = why.reasons.iter().enumerate();
    let lines = numbered.map(|(index, reason)| {
        // Printed only if it differs from the time in the headline.
        let own_since = reason.since_ms.filter(|ms| Some(*ms) != why.waiting_since_ms);
        let own_since = own_since.map(|ms| format!(" (since {})", clock(ms))).unwrap_or_default();
        let sentence = units::localize_timestamps(&reason.sentence);
        format!("{}  {}: {sentence}{own_since}", index + 1, reason.reason)
    });
    let ahead: Vec<&str> = why.ahead.iter().map(|ahead| ahead.job_id.as_str()).collect();
    let ahead = (!ahead.is_empty()).then(|| format!("Jobs ahead: {}", ahead.join(" ")));
    std::iter::once(format!("Blocked{since} by")).chain(lines).chain(ahead).collect()
}

/// The jobs that hold the GPUs the job waits for, and when they are expected to end.
fn holder_lines(why: &JobExplanation, now_ms: i64) -> Vec<String> {
    if why.holders.is_empty() && why.other_holders == 0 {
        return Vec::new();
    }
    let holder = |holder: &HoldingJob| {
        let gpus = units::count_text(holder.gpus, "GPU");
        let limit = if holder.is_time_limit { "at the latest" } else { "estimated" };
        let end = match holder.expected_end_ms {
            Some(end_ms) => format!("ends {} {limit}", units::local_clock_text_with_date(end_ms, now_ms)),
            None => "end unknown".to_string(),
        };
        let (job, name, tenant) = (&holder.job_id, &holder.name, &holder.tenant_id);
        format!("   {job}  {name}  (tenant {tenant})  {gpus}, {end}")
    };
    let others = match (why.other_holders, why.holders.is_empty()) {
        (0, _) => None,
        (count, true) => {
            let jobs = units::count_text(count, "job");
            Some(format!("   {jobs} of tenants that are not visible to you"))
        }
        (count, false) => Some(format!("   and {count} more")),
    };
    let head = std::iter::once("The GPUs it waits for are held by".to_string());
    head.chain(why.holders.iter().map(holder)).chain(others).collect()
}

/// Phases are printed once the job has been placed; before that the reasons are enough.
fn shows_phases(why: &JobExplanation) -> bool {
    why.phases.iter().any(|phase| !matches!(phase.phase.as_str(), "waited" | "held"))
}

fn phase_lines(why: &JobExplanation, now_ms: i64) -> Vec<String> {
    let line = |phase: &JobPhase| {
        let so_far = if phase.ongoing { " (so far)" } else { "" };
        format!("{}  {}{so_far}", units::local_clock_text_with_date(phase.from_ms, now_ms), phase.sentence)
    };
    [String::new(), "Phases".to_string()].into_iter().chain(why.phases.iter().map(line)).collect()
}

/// The terms of the effective priority; `None` if it is the submitted priority alone.
fn priority_line(why: &JobExplanation) -> Option<String> {
    if let Some(hours) = why.expected_gpu_hours {
        let hours = units::amount_text(hours);
        return Some(format!("Ordered by expected remaining GPU time: {hours} GPU-hours"));
    }
    let effective = why.effective_priority?;
    let aging = why.aging.filter(|aging| *aging > 0).map(|aging| format!(" + aging {aging}"));
    let factor = why.fair_share_factor.unwrap_or(1.0);
    let penalty = why.fair_share_penalty.filter(|penalty| *penalty > 0);
    let penalty = penalty.map(|penalty| format!(" - fair-share penalty {penalty} (factor {factor:.3})"));
    let terms = [aging, penalty].into_iter().flatten().collect::<String>();
    (!terms.is_empty()).then(|| format!("Effective priority {effective}: priority {}{terms}", why.priority))
}

/// Earlier reasons, of a job that no longer waits or has waited for other reasons before.
fn history_lines(why: &JobExplanation, now_ms: i64) -> Vec<String> {
    let waits = !why.reasons.is_empty();
    if why.history.is_empty() || (waits && why.history.len() == 1) {
        return Vec::new();
    }
    let note = |note: &WaitNote| {
        let sentences: Vec<&str> = note.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
        format!("{}  {}", units::local_clock_text_with_date(note.at_ms, now_ms), sentences.join("; "))
    };
    let head = if waits { "Reasons so far" } else { "Reasons while it waited" };
    std::iter::once(head.to_string()).chain(why.history.iter().map(note)).collect()
}

/// The forecast and its accuracy so far, and the reservation.
fn expected_start_lines(why: &JobExplanation, now_ms: i64) -> Vec<String> {
    let range = why.expected_start.as_ref().map(|range| start_range_text(range, now_ms));
    let no_estimate = || why.no_estimate.as_ref().map(|because| format!("No estimate yet: {because}"));
    let condition = match &why.no_estimate {
        Some(_) => ", if jobs run no longer than the planner assumes",
        None => " (estimated)",
    };
    let reservation =
        |ms| format!("Reservation: starts by {}{condition}", units::local_clock_text_with_date(ms, now_ms));
    range.or_else(no_estimate).into_iter().chain(why.reserved_at_ms.map(reservation)).collect()
}

fn start_range_text(range: &ExpectedStart, now_ms: i64) -> String {
    let accuracy = match range.ranges_told {
        0 => String::new(),
        1 if range.ranges_right == 1 => "  (the last range like this was right)".to_string(),
        1 => "  (the last range like this was wrong)".to_string(),
        count => format!(
            "  (ranges like this were right {} % of the last {count} times)",
            100 * u64::from(range.ranges_right) / u64::from(count)
        ),
    };
    format!("Expected start {}{accuracy}", units::time_range_text(range.from_ms, range.to_ms, now_ms))
}

/// Changes to the job that would start it now.
fn remedies_line(why: &JobExplanation) -> Option<String> {
    let remedies: Vec<String> = why.sooner_with.iter().map(|remedy| remedy.words.clone()).collect();
    (!remedies.is_empty()).then(|| format!("It would start now with {}", remedies.join(", or with ")))
}

/// The next thing to try, by the first reason.
fn advice_line(why: &JobExplanation) -> Option<String> {
    let job = &why.job_id;
    let tenant = &why.tenant_id;
    let advice = match why.reasons.first()?.reason.as_str() {
        "Capacity" | "Fragmented" | "Held" | "Infeasible" if !why.may_change => return None,
        // The remedies above name the number of GPUs that would start the job now.
        "Fragmented" if why.gpus > 1 => {
            "request fewer GPUs or another model; `muster gpus` shows the free GPUs".to_string()
        }
        "Capacity" | "Fragmented" => {
            "`muster gpus` shows the free GPUs, `muster gpu ls` the jobs that hold the others".to_string()
        }
        "QuotaTenant" => format!(
            "`muster ps --tenant {tenant}` lists the jobs that use the quota, `muster tenant show {tenant}` the quota"
        ),
        "QuotaUser" => format!(
            "`muster ps --tenant {tenant}` lists the running jobs, `muster tenant show {tenant}` the limits per user"
        ),
        "PolicyLimit" => format!("`muster ps --tenant {tenant}` lists the jobs that hold its GPUs"),
        "NodeHealth" => "`muster node ls` shows which nodes are out of service and why".to_string(),
        "LostNode" | "FencePending" => "`muster node ls` shows which nodes are silent, and since when".to_string(),
        "GangStarting" => {
            format!("`muster logs {job} --rank all`, and `muster node show NODE` for a node that has not started")
        }
        "MasterPorts" => "an operator can widen `nodes.master_ports` of the servers".to_string(),
        "Unkillable" => "`muster node show NODE`; a reboot of the node ends the processes".to_string(),
        "Held" => format!("`muster release {job}`"),
        "Dependency" => "`muster show JOB` shows each job that this job depends on".to_string(),
        "Infeasible" => {
            format!("`muster cancel {job}`, and submit a job that fits the GPUs of `muster gpus`")
        }
        _ => return None,
    };
    Some(format!("\nTry: {advice}"))
}

#[cfg(test)]
mod tests {
    use muster_protocol::explain::{JobAhead, JobRemedy};
    use muster_protocol::job::{JobState, Reason};

    use super::*;

    fn waiting() -> JobExplanation {
        let reason = |code: &str, sentence: &str| Reason {
            reason: code.into(),
            sentence: sentence.into(),
            since: None,
            since_ms: (code == "Priority").then_some(33_300_000),
        };
        JobExplanation {
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
            sooner_with: vec![JobRemedy { words: "4 GPUs".into(), keeps_its_place: false, change: Default::default() }],
            may_change: true,
            ahead: vec![JobAhead {
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
    fn every_reason_is_printed_on_its_own_line() {
        let why = waiting();
        let expected = "\
job-7  train  (tenant vision)  queued 14m, position 6 of 41

Blocked since 09:14:00 by
1  Held: held by ann
2  Priority: 5 jobs are ahead (since 09:15:00)
Jobs ahead: job-3
Effective priority 150: priority 100 + aging 90 - fair-share penalty 40 (factor 0.900)
Expected start 10:50:00 to 11:45:00  (ranges like this were right 86 % of the last 500 times)
Reservation: starts by 11:40:00 (estimated)
It would start now with 4 GPUs

Try: `muster release job-7`
";
        assert_eq!(why_text(&why, 40_000_000), expected);
        let read_only = why_text(&JobExplanation { may_change: false, ..why }, 40_000_000);
        assert!(!read_only.contains("Try:"), "the caller may not release the job: {read_only}");
    }

    #[test]
    fn holders_are_listed_and_a_single_gpu_job_is_not_advised_to_shrink() {
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
        let text = why_text(&why, 40_000_000);
        let held = "The GPUs it waits for are held by\n   job-3  first  (tenant vision)  2 GPUs, ends 11:40:00 at the latest\n   and 1 more\n";
        assert!(text.contains(held), "{text}");
        assert!(!text.contains("fewer GPUs"), "{text}");
    }

    #[test]
    fn no_start_range_is_shown_when_past_ranges_were_wrong() {
        let mut why = waiting();
        (why.expected_start, why.no_estimate) = (None, Some("only 0 of the last 20 start ranges were right".into()));
        let text = why_text(&why, 40_000_000);
        assert!(!text.contains("Expected start"), "{text}");
        assert!(
            text.contains("No estimate yet: only 0 of the last 20 start ranges were right\nReservation: starts by"),
            "{text}"
        );
    }

    #[test]
    fn an_ended_job_lists_its_phases() {
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
        why.phases = vec![phase("waited", 33_240_000, "waited 14m: quota"), phase("ran", 34_080_000, "ran 4m on n1")];
        let text = why_text(&why, 40_000_000);
        assert!(text.contains("\nPhases\n09:14:00  waited 14m: quota\n09:28:00  ran 4m on n1\n"), "{text}");
    }
}
