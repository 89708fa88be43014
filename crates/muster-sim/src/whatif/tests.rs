//! Histories that are worked out by hand, and those of stories with every misfortune.

use std::sync::Arc;

use muster_core::facts::command::{Actor, Command, SubmitJob};
use muster_core::objects::job::{CheckpointRule, Exit, RestartRule};
use muster_core::objects::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::{JobSpec, State};
use muster_protocol::whatif::{Setting, WhatIfFigures, WhatIfRequest};
use muster_server::whatif::WhatIfQuery;
use muster_store::Entry;

use super::*;
use crate::fault_schedule::FaultSchedule;
use crate::job_log::{GangShape, LoggedJob};
use crate::random::Random;
use crate::sim_cluster::journal_of_schedule;
use crate::sim_loop::{AgentDelays, JobBehaviour, SimLoop, WorkAttempt, WorkDuration};
use crate::trace_replay::{ReplayAssumptions, ReplayCluster, job_spec};

/// What a history is made of: a moment in seconds, and what someone asks then.
enum ScriptedAction {
    Execute(&'static str, Command),
    Submit(Box<JobSpec>, Vec<WorkAttempt>),
}

/// A job of a tenant with so many GPUs.
fn job(tenant: &str, gpus: u32) -> JobSpec {
    let logged = LoggedJob::new("", 0, 0, GangShape::Total(gpus));
    let site = ReplayCluster::parse("1x8xV100").unwrap();
    job_spec(&logged, tenant.parse().unwrap(), &site, &ReplayAssumptions::default())
}

fn completes_after_s(seconds: i64) -> Vec<WorkAttempt> {
    vec![WorkAttempt::completes_after(seconds * SECOND)]
}

/// One node of eight GPUs, and the tenants `a` and `b` with at most so many of them.
fn cluster_with_quotas(most: [Option<u64>; 2]) -> Vec<(i64, ScriptedAction)> {
    let mut deeds = Vec::new();
    for (node, facts) in ReplayCluster::parse("1x8xV100").unwrap().nodes() {
        let (node, facts) = (node.clone(), Box::new(facts.clone()));
        deeds.push((0, ScriptedAction::Execute("muster", Command::RegisterNode { node, facts })));
    }
    for (name, most) in ["a", "b"].into_iter().zip(most) {
        let mut config = TenantConfig::unlimited(name);
        config.maximum.gpus = most;
        let (id, config) = (name.parse().unwrap(), Box::new(config));
        deeds.push((0, ScriptedAction::Execute("muster", Command::CreateTenant { id, config })));
    }
    deeds
}

fn submit_at(at: i64, spec: JobSpec, trials: Vec<WorkAttempt>) -> (i64, ScriptedAction) {
    (at, ScriptedAction::Submit(Box::new(spec), trials))
}

/// Let it happen, with agents that take a second to start a job and two to stop one.
fn journal_of_actions(deeds: Vec<(i64, ScriptedAction)>, until_s: i64) -> Vec<Entry> {
    let delays = AgentDelays { launch_ms: SECOND, stop_ms: 2 * SECOND, ..AgentDelays::IMMEDIATE };
    let mut stage = SimLoop::new(State::empty(), Timestamp(0), delays);
    stage.recorded_events = Some(Vec::new());
    let mut entries: Vec<Entry> = Vec::new();
    let mut deeds = deeds.into_iter().peekable();
    loop {
        let act = deeds.peek().map(|(at, _)| at * SECOND);
        let next = [act, stage.next_event_ms()].into_iter().flatten().min();
        let Some(now_ms) = next.filter(|next_ms| *next_ms <= until_s * SECOND) else { break };
        stage.advance_to(now_ms);
        while let Some((_, deed)) = deeds.next_if(|(at, _)| at * SECOND <= now_ms) {
            apply_scripted_action(&mut stage, deed);
        }
        stage.plan_if_due();
        for event in stage.recorded_events.replace(Vec::new()).into_iter().flatten() {
            let seq = entries.len() as u64 + 1;
            entries.push(Entry { seq, epoch: 1, at: Timestamp(now_ms), event });
        }
    }
    entries
}

fn apply_scripted_action(stage: &mut SimLoop, deed: ScriptedAction) {
    let by = |name: &str| Actor::local(name);
    match deed {
        ScriptedAction::Execute(name, command) => {
            let (events, _) = stage.state.decide_audited(&by(name), &command, stage.now);
            let audit = events.into_iter().filter(|event| matches!(event, muster_core::Event::Acted { .. }));
            stage.execute(&by(name), &command).unwrap();
            for event in audit {
                stage.state.apply(&event);
                stage.recorded_events.as_mut().unwrap().push(event);
            }
            stage.mark_changed();
        }
        ScriptedAction::Submit(spec, trials) => {
            let (hold, key, known_outcomes) = (false, None, Default::default());
            let ask = SubmitJob {
                spec: Arc::from(spec),
                array: None,
                hold,
                key,
                known_outcomes,
                known_key: None,
                is_operator: true,
            };
            let answer = stage.execute(&by("someone"), &Command::SubmitJob(ask)).unwrap();
            let muster_core::facts::command::Answer::Job(job) = answer else { panic!("{answer:?}") };
            stage.set_behaviour(job, JobBehaviour::new(trials, 0));
        }
    }
}

/// Ask about the time from the 10th second to an hour after the last event.
fn ask_what_if(entries: &[Entry], ask: WhatIfRequest) -> Result<WhatIf, WhatIfError> {
    let now = entries.last().unwrap().at.plus(HOUR);
    let since = Some("1970-01-01T00:00:10Z".to_string());
    let question = WhatIfQuery::from_request(&WhatIfRequest { since, ..ask }, now)?;
    answer(&JournalHistory::from_entries(entries.to_vec(), question.since)?, &question, None)
}

fn setting_change(key: &str, value: &str) -> WhatIfRequest {
    WhatIfRequest { set: [(key.to_string(), Setting::from(value))].into(), ..WhatIfRequest::default() }
}

/// When jobs started and ended under the change, in seconds.
fn start_and_end_s(answer: &WhatIf, job: &str) -> (Option<i64>, Option<i64>) {
    let found = answer.jobs.iter().find(|found| found.job_id == job);
    let times = &found.unwrap_or_else(|| panic!("{job} gains nothing: {answer:#?}")).changed;
    let seconds = |text: &Option<String>| {
        text.as_ref().map(|text| text.parse::<jiff::Timestamp>().unwrap().as_second())
    };
    (seconds(&times.started_at), seconds(&times.ended_at))
}

/// `a` may have four GPUs and has two jobs of four: the second waits for the first.
fn quota_blocks_second_job() -> Vec<Entry> {
    let mut deeds = cluster_with_quotas([Some(4), None]);
    deeds.push(submit_at(20, job("a", 4), completes_after_s(600)));
    deeds.push(submit_at(30, job("a", 4), completes_after_s(600)));
    deeds.push(submit_at(40, job("b", 4), completes_after_s(1_000)));
    journal_of_actions(deeds, 3 * 3_600)
}

#[test]
fn a_larger_quota_lets_a_job_start_at_once() {
    let entries = quota_blocks_second_job();
    let more = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    // The second of `a` comes at 30 and starts then, instead of at 621 when the first has ended; `b` waits instead.
    assert_eq!(start_and_end_s(&more, "job-2"), (Some(30), Some(631)));
    assert_eq!(start_and_end_s(&more, "job-3"), (Some(621), Some(1_622)));
    assert_eq!((more.sooner, more.later, more.guessed), (1, 1, 0));
    assert_eq!(more.differs_from.as_deref(), Some("1970-01-01T00:00:30Z"));
    let of = |name: &str| more.tenants.iter().find(|tenant| tenant.tenant_id == name).unwrap().clone();
    let waits = |name: &str| (of(name).really.wait_mean_s, of(name).changed.wait_mean_s);
    assert_eq!(waits("a"), (295.5, 0.0));
    assert_eq!(waits("b"), (0.0, 581.0));
    assert_eq!(((of("a").sooner, of("a").later), (of("b").sooner, of("b").later)), ((1, 0), (0, 1)));
    assert_eq!(more.really, more.replayed, "nothing is lost by the simulation");
    assert_eq!((more.decisions, more.decisions_different), (3, 0));
}

/// A tenant that is changed and a server that starts anew say all of their settings again.
#[test]
fn a_change_survives_later_reconfiguration() {
    let quiet = |name: &str, most| {
        let mut config = TenantConfig::unlimited(name);
        (config.maximum.gpus, config.email) = (most, "ann@example.org".to_string());
        ScriptedAction::Execute(
            "ann",
            Command::ChangeTenant { id: name.parse().unwrap(), config: Box::new(config) },
        )
    };
    let started = || ScriptedAction::Execute("muster", Command::Configure { settings: Box::default() });
    let more = |early: i64| {
        let mut deeds = cluster_with_quotas([Some(4), None]);
        deeds.push((early, quiet("a", Some(4))));
        deeds.push((early, started()));
        deeds.push(submit_at(40, job("a", 4), completes_after_s(600)));
        deeds.push(submit_at(50, job("a", 4), completes_after_s(600)));
        deeds.sort_by_key(|(at, _)| *at);
        let entries = journal_of_actions(deeds, 3 * 3_600);
        ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap()
    };
    // Said before the two part, and after.
    assert_eq!(start_and_end_s(&more(20), "job-2"), (Some(50), Some(651)));
    assert_eq!(start_and_end_s(&more(45), "job-2"), (Some(50), Some(651)));
    let mut deeds = cluster_with_quotas([None, None]);
    deeds.push((15, ScriptedAction::Execute("muster", configure_with_other_aging())));
    deeds.push(submit_at(20, job("a", 8), completes_after_s(600)));
    deeds.push(submit_at(30, job("a", 8), completes_after_s(3_000)));
    deeds.push(submit_at(
        31,
        JobSpec { time_limit_ms: Some(60 * SECOND), ..job("b", 8) },
        completes_after_s(60),
    ));
    let entries = journal_of_actions(deeds, 3 * 3_600);
    let fast = ask_what_if(&entries, setting_change("scheduler.objective", "fast")).unwrap();
    assert!(fast.differs_from.is_some(), "the shortest goes first");
}

fn configure_with_other_aging() -> Command {
    let settings = muster_core::Settings { aging_max: 400, ..muster_core::Settings::default() };
    Command::Configure { settings: Box::new(settings) }
}

#[test]
fn added_nodes_run_waiting_jobs() {
    let added = WhatIfRequest { add_nodes: vec!["1x8xV100".to_string()], ..WhatIfRequest::default() };
    let mut deeds = cluster_with_quotas([None, None]);
    deeds.push(submit_at(20, job("a", 8), completes_after_s(600)));
    deeds.push(submit_at(30, job("b", 8), completes_after_s(600)));
    let entries = journal_of_actions(deeds, 3_600);
    let more = ask_what_if(&entries, added).unwrap();
    assert_eq!(start_and_end_s(&more, "job-2"), (Some(30), Some(631)));
    assert_eq!((more.sooner, more.later), (1, 0));
    let part = |figures: &WhatIfFigures| figures.utilisation.unwrap();
    assert!(part(&more.changed) < part(&more.really) * 0.55, "twice the GPUs for the same work");
}

#[test]
fn removed_nodes_make_jobs_wait() {
    let mut deeds = cluster_with_quotas([None, None]);
    deeds.push(submit_at(5, job("a", 8), completes_after_s(600)));
    deeds.push(submit_at(700, job("b", 8), completes_after_s(600)));
    let entries = journal_of_actions(deeds, 3_600);
    let node = ReplayCluster::parse("1x8xV100").unwrap().nodes()[0].0.to_string();
    let fewer = WhatIfRequest { remove_nodes: vec![node], ..WhatIfRequest::default() };
    let fewer = ask_what_if(&entries, fewer).unwrap();
    // The first runs already and ends; the second never starts.
    assert_eq!(fewer.changed.ended, 1);
    assert_eq!(start_and_end_s(&fewer, "job-2"), (None, None));
    assert_eq!((fewer.sooner, fewer.later), (0, 1));
}

#[test]
fn a_node_registered_later_can_be_removed() {
    let mut deeds = cluster_with_quotas([None, None]);
    let (_, facts) = ReplayCluster::parse("1x8xV100").unwrap().nodes()[0].clone();
    let (node, facts) = ("late".parse().unwrap(), Box::new(facts));
    deeds.push((100, ScriptedAction::Execute("muster", Command::RegisterNode { node, facts })));
    deeds.push(submit_at(20, job("a", 8), completes_after_s(600)));
    deeds.push(submit_at(200, job("b", 8), completes_after_s(600)));
    deeds.sort_by_key(|(at, _)| *at);
    let entries = journal_of_actions(deeds, 3_600);
    let without = WhatIfRequest { remove_nodes: vec!["late".to_string()], ..WhatIfRequest::default() };
    let without = ask_what_if(&entries, without).unwrap();
    assert_eq!(start_and_end_s(&without, "job-2"), (Some(621), Some(1_222)));
    assert_eq!(without.differs_from.as_deref(), Some("1970-01-01T00:03:20Z"));
}

#[test]
fn a_job_that_would_be_refused_is_listed() {
    let fewer = ask_what_if(&quota_blocks_second_job(), setting_change("tenants.a.max_gpus", "2")).unwrap();
    let refused: Vec<&str> = fewer.refused.iter().map(|refused| refused.job_id.as_str()).collect();
    assert_eq!(refused, ["job-1", "job-2"]);
    assert!(
        fewer.refused[0].why.contains("max_gpus") || fewer.refused[0].why.contains("GPU"),
        "{:?}",
        fewer.refused
    );
    // `b` keeps its name and starts when it came, as it really did.
    assert_eq!((fewer.changed.jobs, fewer.changed.started, fewer.later), (1, 1, 0));
}

#[test]
fn a_change_without_effect_reports_no_difference() {
    let entries = quota_blocks_second_job();
    for same in [
        WhatIfRequest::default(),
        setting_change("tenants.b.max_gpus", "8"),
        setting_change("scheduler.aging_max", "400"),
    ] {
        let same = ask_what_if(&entries, same).unwrap();
        assert_eq!(same.differs_from, None);
        assert_eq!((same.sooner, same.later, same.jobs.len()), (0, 0, 0));
        assert_eq!((&same.really, &same.replayed), (&same.changed, &same.changed));
    }
}

#[test]
fn failed_attempts_fail_again_and_user_commands_are_repeated() {
    let mut deeds = cluster_with_quotas([Some(4), None]);
    let failed = WorkAttempt { duration: WorkDuration::Known(100 * SECOND), exit: Exit::Code { code: 1 } };
    let restart = RestartRule { max_restarts: 3, ..RestartRule::default() };
    let twice = JobSpec { restart, ..job("a", 4) };
    deeds.push(submit_at(20, job("a", 4), completes_after_s(600)));
    deeds.push(submit_at(30, twice, vec![failed, WorkAttempt::completes_after(200 * SECOND)]));
    let endless = vec![WorkAttempt { duration: WorkDuration::UntilStopped, exit: Exit::Code { code: 0 } }];
    deeds.push(submit_at(400, job("a", 4), endless));
    deeds.push((2_000, ScriptedAction::Execute("ann", Command::CancelJob { job: "job-3".parse().unwrap() })));
    let entries = journal_of_actions(deeds, 3_600);
    let more = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    // It fails at 131, pauses for five seconds, and then takes one to start and 200 to be done.
    assert_eq!(start_and_end_s(&more, "job-2"), (Some(30), Some(131 + 5 + 1 + 200)));
    // The third starts when it comes, and is cancelled when it was; stopping takes two seconds.
    let (really, changed) = (
        &more.jobs.iter().find(|job| job.job_id == "job-3").unwrap().really,
        start_and_end_s(&more, "job-3"),
    );
    assert_eq!(changed, (Some(400), Some(2_002)));
    assert_eq!(really.ended_at.as_deref(), Some("1970-01-01T00:33:22Z"));
}

#[test]
fn gpus_held_at_the_end_are_counted() {
    let mut deeds = cluster_with_quotas([Some(4), None]);
    let endless = vec![WorkAttempt { duration: WorkDuration::UntilStopped, exit: Exit::Code { code: 0 } }];
    deeds.push(submit_at(100, job("a", 4), endless));
    let entries = journal_of_actions(deeds, 3_600);
    let same = ask_what_if(&entries, WhatIfRequest::default()).unwrap();
    // It started to run at 101, which is the last that happened; the question reaches an hour further.
    assert_eq!((same.really.gpu_hours, same.really.ended), (4.001, 0));
    assert_eq!(same.really.utilisation, Some(0.488), "half of the GPUs but for the first 90 of 3,691 s");
}

#[test]
fn jobs_that_never_ran_are_reported_as_guessed() {
    let mut deeds = cluster_with_quotas([Some(4), None]);
    deeds.push(submit_at(20, job("a", 4), completes_after_s(5_000)));
    deeds.push(submit_at(30, job("a", 4), completes_after_s(10)));
    deeds.push((1_000, ScriptedAction::Execute("ann", Command::CancelJob { job: "job-2".parse().unwrap() })));
    let entries = journal_of_actions(deeds, 7_200);
    let more = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    assert_eq!(more.guessed, 1);
    // It runs for as long as such jobs are expected to, and is cancelled before that. Nobody was ever stopped, so that is
    // taken to be done at once.
    assert_eq!(start_and_end_s(&more, "job-2"), (Some(30), Some(1_000)));
}

#[test]
fn invalid_questions_are_refused_with_the_reason() {
    let entries = quota_blocks_second_job();
    let wrong = |question: WhatIfRequest| {
        let error = ask_what_if(&entries, question).unwrap_err();
        format!("{error} {}", error.hint().unwrap_or_default())
    };
    let added =
        |words: &str| WhatIfRequest { add_nodes: vec![words.to_string()], ..WhatIfRequest::default() };
    let removed = WhatIfRequest { remove_nodes: vec!["nowhere".to_string()], ..WhatIfRequest::default() };
    let cases = [
        (setting_change("tenants.c.max_gpus", "8"), "there was no tenant `c`"),
        (setting_change("tenants.a.max_gpu", "8"), "max_gpus"),
        (setting_change("tenants.a.max_gpus", "many"), "max_gpus"),
        (setting_change("tenants.a", "8"), "tenants.NAME.FIELD"),
        (setting_change("scheduler.objectiv", "fast"), "did you mean `scheduler.objective`"),
        (added("fourxV100"), "not a number of nodes"),
        (removed, "nowhere"),
        (WhatIfRequest { until: Some("30d".to_string()), ..WhatIfRequest::default() }, "must be before"),
    ];
    for (question, expected) in cases {
        let said = wrong(question);
        assert!(said.contains(expected), "`{said}` does not say `{expected}`");
    }
}

/// Cut anywhere, a history that is played on without a change is the history that was: only the planner may look at
/// another moment of the same second.
#[test]
fn a_continuation_without_change_reproduces_the_history() {
    let mut displaced = 0;
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut deeds = cluster_with_quotas([Some(6), None]);
        let mut at = 20;
        for _ in 0..60 {
            at += random.between(0, 200);
            let mut spec = job(random.choose::<&str>(&["a", "b"]), *random.choose(&[1, 1, 2, 4, 6]));
            spec.time_limit_ms = random.chance_per_mille(300).then(|| random.between(60, 1_200) * SECOND);
            spec.priority = *random.choose(&[100, 100, 500]);
            let every_ms = random.chance_per_mille(400).then(|| random.between(10, 100) * SECOND);
            spec.checkpoint =
                every_ms.map(|every| CheckpointRule { path: String::new(), every_ms: Some(every) });
            spec.restart.max_restarts = 2;
            let failed = WorkAttempt {
                duration: WorkDuration::Known(random.between(10, 300) * SECOND),
                exit: Exit::Code { code: 1 },
            };
            let tries = std::iter::repeat_n(failed, random.between(0, 3) as usize);
            deeds.push(submit_at(
                at,
                spec,
                tries.chain(completes_after_s(random.between(10, 900))).collect(),
            ));
        }
        let entries = journal_of_actions(deeds, at + 4 * 3_600);
        let chronicle = JournalHistory::from_entries(entries, Timestamp(10 * SECOND)).unwrap();
        let until = chronicle.entries.last().unwrap().at.plus(MINUTE);
        let at = |index: usize| chronicle.entries[index].at;
        let cut = (chronicle.entries.len() / 3..).find(|index| at(*index) > at(index - 1)).unwrap();
        let fork = divergence::fork_at(&chronicle, cut);
        let really = tally_of_journal(&chronicle, until);
        let none = AppliedChange::default();
        let replayed = continuation_of(&chronicle, &fork, &none, &fork.real).run_until(until).tally;
        let compared = Comparison { really: &really, replayed: &really, changed: &replayed, until };
        let off: Vec<_> = compared.jobs().into_iter().filter(|job| job.gained_s.abs() > 2.0).collect();
        assert!(off.is_empty(), "seed {seed}: {off:#?}");
        displaced += compared.figures(&replayed, None).preemptions;
    }
    assert!(displaced > 0, "nobody was ever displaced, so nothing was asked of that");
}

/// Who sleeps when the two part wakes when it was to wake, though nobody says so again.
#[test]
fn jobs_waiting_for_a_retry_at_the_fork_wake_in_time() {
    let mut deeds = cluster_with_quotas([None, None]);
    let mut spec = job("a", 4);
    spec.restart.max_restarts = 1;
    let failed = WorkAttempt { duration: WorkDuration::Known(100 * SECOND), exit: Exit::Code { code: 1 } };
    deeds.push(submit_at(20, spec, vec![failed, WorkAttempt::completes_after(200 * SECOND)]));
    let chronicle =
        JournalHistory::from_entries(journal_of_actions(deeds, 3_600), Timestamp(10 * SECOND)).unwrap();
    let is_end = |entry: &Entry| matches!(entry.event, muster_core::Event::AttemptEnded { .. });
    let end = chronicle.entries.iter().position(is_end).unwrap();
    let mut fork = divergence::fork_at(&chronicle, end + 1);
    fork.at = chronicle.entries[end].at;
    let until = Timestamp(3_600 * SECOND);
    let really = tally_of_journal(&chronicle, until);
    let none = AppliedChange::default();
    let replayed = continuation_of(&chronicle, &fork, &none, &fork.real).run_until(until).tally;
    let compared = Comparison { really: &really, replayed: &really, changed: &replayed, until };
    assert_eq!(compared.jobs(), []);
    assert_eq!(compared.figures(&replayed, None).ended, 1);
}

/// Whatever happened, any question is answered, and no law of the state is broken by it.
#[test]
fn what_if_works_on_journals_of_fault_schedules() {
    let mut forks = 0;
    for seed in 0..24 {
        let entries = journal_of_schedule(&FaultSchedule::from_seed(seed, 1_500)).unwrap();
        let (first, last) = (entries[0].at, entries.last().unwrap().at);
        let since = first.plus(last.since(first) / 3);
        let chronicle = JournalHistory::from_entries(entries, since).unwrap();
        let tenant = chronicle.start_state.tenants.keys().next().cloned();
        let node = chronicle.start_state.nodes.keys().next().map(ToString::to_string);
        let questions = [
            WhatIfRequest { add_nodes: vec!["2x8xV100".to_string()], ..WhatIfRequest::default() },
            WhatIfRequest { remove_nodes: node.into_iter().collect(), ..WhatIfRequest::default() },
            setting_change(&format!("tenants.{}.max_gpus", tenant.unwrap()), "1"),
            setting_change("scheduler.objective", "fast"),
        ];
        for question in questions {
            let mut question = WhatIfQuery::from_request(&question, last).unwrap();
            question.since = chronicle.since;
            let found =
                answer(&chronicle, &question, None).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
            assert_eq!(found.decisions_different, 0, "seed {seed}");
            forks += u64::from(found.differs_from.is_some());
        }
    }
    assert!(forks > 30, "{forks} questions made a difference");
}
