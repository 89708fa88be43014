//! Histories with results worked out by hand, and journals of fault schedules.

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

/// An action of a scripted history.
enum ScriptedAction {
    Execute(&'static str, Command),
    Submit(Box<JobSpec>, Vec<WorkAttempt>),
}

/// A job of a tenant with this many GPUs.
fn job(tenant: &str, gpus: u32) -> JobSpec {
    let logged = LoggedJob::new("", 0, 0, GangShape::Total(gpus));
    let cluster = ReplayCluster::parse("1x8xV100").unwrap();
    job_spec(&logged, tenant.parse().unwrap(), &cluster, &ReplayAssumptions::default())
}

fn completes_after_s(seconds: i64) -> Vec<WorkAttempt> {
    vec![WorkAttempt::completes_after(seconds * SECOND)]
}

/// One node of eight GPUs, and the tenants `a` and `b` with their GPU quotas.
fn cluster_with_quotas(quotas: [Option<u64>; 2]) -> Vec<(i64, ScriptedAction)> {
    let mut actions = Vec::new();
    for (node, facts) in ReplayCluster::parse("1x8xV100").unwrap().nodes() {
        let (node, facts) = (node.clone(), Box::new(facts.clone()));
        actions.push((0, ScriptedAction::Execute("muster", Command::RegisterNode { node, facts })));
    }
    for (name, quotas) in ["a", "b"].into_iter().zip(quotas) {
        let mut config = TenantConfig::unlimited(name);
        config.maximum.gpus = quotas;
        let (id, config) = (name.parse().unwrap(), Box::new(config));
        actions.push((0, ScriptedAction::Execute("muster", Command::CreateTenant { id, config })));
    }
    actions
}

fn submit_at(at: i64, spec: JobSpec, attempts: Vec<WorkAttempt>) -> (i64, ScriptedAction) {
    (at, ScriptedAction::Submit(Box::new(spec), attempts))
}

/// The journal of scripted actions, with agents that take one second to start a job and two to stop one.
fn journal_of_actions(actions: Vec<(i64, ScriptedAction)>, until_s: i64) -> Vec<Entry> {
    let delays = AgentDelays { launch_ms: SECOND, stop_ms: 2 * SECOND, ..AgentDelays::IMMEDIATE };
    let mut sim_loop = SimLoop::new(State::empty(), Timestamp(0), delays);
    sim_loop.recorded_events = Some(Vec::new());
    let mut entries: Vec<Entry> = Vec::new();
    let mut actions = actions.into_iter().peekable();
    loop {
        let next_action_ms = actions.peek().map(|(at, _)| at * SECOND);
        let next = [next_action_ms, sim_loop.next_event_ms()].into_iter().flatten().min();
        let Some(now_ms) = next.filter(|next_ms| *next_ms <= until_s * SECOND) else { break };
        sim_loop.advance_to(now_ms);
        while let Some((_, action)) = actions.next_if(|(at, _)| at * SECOND <= now_ms) {
            apply_scripted_action(&mut sim_loop, action);
        }
        sim_loop.plan_if_due();
        for event in sim_loop.recorded_events.replace(Vec::new()).into_iter().flatten() {
            let seq = entries.len() as u64 + 1;
            entries.push(Entry { seq, epoch: 1, at: Timestamp(now_ms), event });
        }
    }
    entries
}

fn apply_scripted_action(sim_loop: &mut SimLoop, action: ScriptedAction) {
    let by = |name: &str| Actor::local(name);
    match action {
        ScriptedAction::Execute(name, command) => {
            let (events, _) = sim_loop.state.decide_audited(&by(name), &command, sim_loop.now);
            let audit = events.into_iter().filter(|event| matches!(event, muster_core::Event::Acted { .. }));
            sim_loop.execute(&by(name), &command).unwrap();
            for event in audit {
                sim_loop.state.apply(&event);
                sim_loop.recorded_events.as_mut().unwrap().push(event);
            }
            sim_loop.mark_changed();
        }
        ScriptedAction::Submit(spec, attempts) => {
            let (hold, key, known_outcomes) = (false, None, Default::default());
            let submission = SubmitJob {
                spec: Arc::from(spec),
                array: None,
                hold,
                key,
                known_outcomes,
                known_key: None,
                is_operator: true,
            };
            let answer = sim_loop.execute(&by("someone"), &Command::SubmitJob(submission)).unwrap();
            let muster_core::facts::command::Answer::Job(job) = answer else { panic!("{answer:?}") };
            sim_loop.set_behaviour(job, JobBehaviour::new(attempts, 0));
        }
    }
}

/// Answers a query about the time from the 10th second to an hour after the last event.
fn ask_what_if(entries: &[Entry], submission: WhatIfRequest) -> Result<WhatIf, WhatIfError> {
    let now = entries.last().unwrap().at.plus(HOUR);
    let since = Some("1970-01-01T00:00:10Z".to_string());
    let query = WhatIfQuery::from_request(&WhatIfRequest { since, ..submission }, now)?;
    answer(&JournalHistory::from_entries(entries.to_vec(), query.since)?, &query, None)
}

fn setting_change(key: &str, value: &str) -> WhatIfRequest {
    WhatIfRequest { set: [(key.to_string(), Setting::from(value))].into(), ..WhatIfRequest::default() }
}

/// The start and end of a job under the change, in seconds.
fn start_and_end_s(answer: &WhatIf, job: &str) -> (Option<i64>, Option<i64>) {
    let found = answer.jobs.iter().find(|found| found.job_id == job);
    let times = &found.unwrap_or_else(|| panic!("{job} gains nothing: {answer:#?}")).changed;
    let seconds =
        |text: &Option<String>| text.as_ref().map(|text| text.parse::<jiff::Timestamp>().unwrap().as_second());
    (seconds(&times.started_at), seconds(&times.ended_at))
}

/// Tenant `a` has a quota of four GPUs and two jobs of four: the second waits for the first.
fn quota_blocks_second_job() -> Vec<Entry> {
    let mut actions = cluster_with_quotas([Some(4), None]);
    actions.push(submit_at(20, job("a", 4), completes_after_s(600)));
    actions.push(submit_at(30, job("a", 4), completes_after_s(600)));
    actions.push(submit_at(40, job("b", 4), completes_after_s(1_000)));
    journal_of_actions(actions, 3 * 3_600)
}

#[test]
fn a_larger_quota_lets_a_job_start_at_once() {
    let entries = quota_blocks_second_job();
    let changed = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    // The second job of `a` starts at its submission at 30, instead of at 621 when the first has ended; `b` waits
    // instead.
    assert_eq!(start_and_end_s(&changed, "job-2"), (Some(30), Some(631)));
    assert_eq!(start_and_end_s(&changed, "job-3"), (Some(621), Some(1_622)));
    assert_eq!((changed.sooner, changed.later, changed.guessed), (1, 1, 0));
    assert_eq!(changed.differs_from.as_deref(), Some("1970-01-01T00:00:30Z"));
    let tenant_figures = |name: &str| changed.tenants.iter().find(|tenant| tenant.tenant_id == name).unwrap().clone();
    let waits = |name: &str| (tenant_figures(name).really.wait_mean_s, tenant_figures(name).changed.wait_mean_s);
    assert_eq!(waits("a"), (295.5, 0.0));
    assert_eq!(waits("b"), (0.0, 581.0));
    assert_eq!(
        (
            (tenant_figures("a").sooner, tenant_figures("a").later),
            (tenant_figures("b").sooner, tenant_figures("b").later)
        ),
        ((1, 0), (0, 1))
    );
    assert_eq!(changed.really, changed.replayed, "the simulation reproduces the history");
    assert_eq!((changed.decisions, changed.decisions_different), (3, 0));
}

/// A changed tenant and a restarted server record all of their settings again.
#[test]
fn a_change_survives_later_reconfiguration() {
    let change_tenant = |name: &str, quotas| {
        let mut config = TenantConfig::unlimited(name);
        (config.maximum.gpus, config.email) = (quotas, "ann@example.org".to_string());
        ScriptedAction::Execute("ann", Command::ChangeTenant { id: name.parse().unwrap(), config: Box::new(config) })
    };
    let configure = || ScriptedAction::Execute("muster", Command::Configure { settings: Box::default() });
    let changed = |at_s: i64| {
        let mut actions = cluster_with_quotas([Some(4), None]);
        actions.push((at_s, change_tenant("a", Some(4))));
        actions.push((at_s, configure()));
        actions.push(submit_at(40, job("a", 4), completes_after_s(600)));
        actions.push(submit_at(50, job("a", 4), completes_after_s(600)));
        actions.sort_by_key(|(at, _)| *at);
        let entries = journal_of_actions(actions, 3 * 3_600);
        ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap()
    };
    // Recorded before the fork, and after it.
    assert_eq!(start_and_end_s(&changed(20), "job-2"), (Some(50), Some(651)));
    assert_eq!(start_and_end_s(&changed(45), "job-2"), (Some(50), Some(651)));
    let mut actions = cluster_with_quotas([None, None]);
    actions.push((15, ScriptedAction::Execute("muster", configure_with_other_aging())));
    actions.push(submit_at(20, job("a", 8), completes_after_s(600)));
    actions.push(submit_at(30, job("a", 8), completes_after_s(3_000)));
    actions.push(submit_at(31, JobSpec { time_limit_ms: Some(60 * SECOND), ..job("b", 8) }, completes_after_s(60)));
    let entries = journal_of_actions(actions, 3 * 3_600);
    let fast = ask_what_if(&entries, setting_change("scheduler.objective", "fast")).unwrap();
    assert!(fast.differs_from.is_some(), "the shortest job goes first");
}

fn configure_with_other_aging() -> Command {
    let settings = muster_core::Settings { aging_max: 400, ..muster_core::Settings::default() };
    Command::Configure { settings: Box::new(settings) }
}

#[test]
fn added_nodes_run_waiting_jobs() {
    let added = WhatIfRequest { add_nodes: vec!["1x8xV100".to_string()], ..WhatIfRequest::default() };
    let mut actions = cluster_with_quotas([None, None]);
    actions.push(submit_at(20, job("a", 8), completes_after_s(600)));
    actions.push(submit_at(30, job("b", 8), completes_after_s(600)));
    let entries = journal_of_actions(actions, 3_600);
    let changed = ask_what_if(&entries, added).unwrap();
    assert_eq!(start_and_end_s(&changed, "job-2"), (Some(30), Some(631)));
    assert_eq!((changed.sooner, changed.later), (1, 0));
    let part = |figures: &WhatIfFigures| figures.utilisation.unwrap();
    assert!(part(&changed.changed) < part(&changed.really) * 0.55, "twice the GPUs for the same work");
}

#[test]
fn removed_nodes_make_jobs_wait() {
    let mut actions = cluster_with_quotas([None, None]);
    actions.push(submit_at(5, job("a", 8), completes_after_s(600)));
    actions.push(submit_at(700, job("b", 8), completes_after_s(600)));
    let entries = journal_of_actions(actions, 3_600);
    let node = ReplayCluster::parse("1x8xV100").unwrap().nodes()[0].0.to_string();
    let changed = WhatIfRequest { remove_nodes: vec![node], ..WhatIfRequest::default() };
    let changed = ask_what_if(&entries, changed).unwrap();
    // The first job already runs and ends; the second never starts.
    assert_eq!(changed.changed.ended, 1);
    assert_eq!(start_and_end_s(&changed, "job-2"), (None, None));
    assert_eq!((changed.sooner, changed.later), (0, 1));
}

#[test]
fn a_node_registered_later_can_be_removed() {
    let mut actions = cluster_with_quotas([None, None]);
    let (_, facts) = ReplayCluster::parse("1x8xV100").unwrap().nodes()[0].clone();
    let (node, facts) = ("late".parse().unwrap(), Box::new(facts));
    actions.push((100, ScriptedAction::Execute("muster", Command::RegisterNode { node, facts })));
    actions.push(submit_at(20, job("a", 8), completes_after_s(600)));
    actions.push(submit_at(200, job("b", 8), completes_after_s(600)));
    actions.sort_by_key(|(at, _)| *at);
    let entries = journal_of_actions(actions, 3_600);
    let changed = WhatIfRequest { remove_nodes: vec!["late".to_string()], ..WhatIfRequest::default() };
    let changed = ask_what_if(&entries, changed).unwrap();
    assert_eq!(start_and_end_s(&changed, "job-2"), (Some(621), Some(1_222)));
    assert_eq!(changed.differs_from.as_deref(), Some("1970-01-01T00:03:20Z"));
}

#[test]
fn a_job_that_would_be_refused_is_listed() {
    let changed = ask_what_if(&quota_blocks_second_job(), setting_change("tenants.a.max_gpus", "2")).unwrap();
    let refused: Vec<&str> = changed.refused.iter().map(|refused| refused.job_id.as_str()).collect();
    assert_eq!(refused, ["job-1", "job-2"]);
    assert!(
        changed.refused[0].why.contains("max_gpus") || changed.refused[0].why.contains("GPU"),
        "{:?}",
        changed.refused
    );
    // The job of `b` keeps its id and starts at its submission, as it really did.
    assert_eq!((changed.changed.jobs, changed.changed.started, changed.later), (1, 1, 0));
}

#[test]
fn a_change_without_effect_reports_no_difference() {
    let entries = quota_blocks_second_job();
    for changed in [
        WhatIfRequest::default(),
        setting_change("tenants.b.max_gpus", "8"),
        setting_change("scheduler.aging_max", "400"),
    ] {
        let changed = ask_what_if(&entries, changed).unwrap();
        assert_eq!(changed.differs_from, None);
        assert_eq!((changed.sooner, changed.later, changed.jobs.len()), (0, 0, 0));
        assert_eq!((&changed.really, &changed.replayed), (&changed.changed, &changed.changed));
    }
}

#[test]
fn failed_attempts_fail_again_and_user_commands_are_repeated() {
    let mut actions = cluster_with_quotas([Some(4), None]);
    let failed = WorkAttempt { duration: WorkDuration::Known(100 * SECOND), exit: Exit::Code { code: 1 } };
    let restart = RestartRule { max_restarts: 3, ..RestartRule::default() };
    let twice = JobSpec { restart, ..job("a", 4) };
    actions.push(submit_at(20, job("a", 4), completes_after_s(600)));
    actions.push(submit_at(30, twice, vec![failed, WorkAttempt::completes_after(200 * SECOND)]));
    let endless = vec![WorkAttempt { duration: WorkDuration::UntilStopped, exit: Exit::Code { code: 0 } }];
    actions.push(submit_at(400, job("a", 4), endless));
    actions.push((2_000, ScriptedAction::Execute("ann", Command::CancelJob { job: "job-3".parse().unwrap() })));
    let entries = journal_of_actions(actions, 3_600);
    let changed = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    // The job fails at 131, is retried after five seconds, and then takes one second to start and 200 to complete.
    assert_eq!(start_and_end_s(&changed, "job-2"), (Some(30), Some(131 + 5 + 1 + 200)));
    // The third job starts at its submission and is cancelled at the recorded time; stopping takes two seconds.
    let (really, changed) =
        (&changed.jobs.iter().find(|job| job.job_id == "job-3").unwrap().really, start_and_end_s(&changed, "job-3"));
    assert_eq!(changed, (Some(400), Some(2_002)));
    assert_eq!(really.ended_at.as_deref(), Some("1970-01-01T00:33:22Z"));
}

#[test]
fn gpus_held_at_the_end_are_counted() {
    let mut actions = cluster_with_quotas([Some(4), None]);
    let endless = vec![WorkAttempt { duration: WorkDuration::UntilStopped, exit: Exit::Code { code: 0 } }];
    actions.push(submit_at(100, job("a", 4), endless));
    let entries = journal_of_actions(actions, 3_600);
    let changed = ask_what_if(&entries, WhatIfRequest::default()).unwrap();
    // The job started to run at 101, the last event; the query reaches an hour further.
    assert_eq!((changed.really.gpu_hours, changed.really.ended), (4.001, 0));
    assert_eq!(changed.really.utilisation, Some(0.488), "half of the GPUs except for the first 90 of 3,691 s");
}

#[test]
fn jobs_that_never_ran_are_counted_as_guessed() {
    let mut actions = cluster_with_quotas([Some(4), None]);
    actions.push(submit_at(20, job("a", 4), completes_after_s(5_000)));
    actions.push(submit_at(30, job("a", 4), completes_after_s(10)));
    actions.push((1_000, ScriptedAction::Execute("ann", Command::CancelJob { job: "job-2".parse().unwrap() })));
    let entries = journal_of_actions(actions, 7_200);
    let changed = ask_what_if(&entries, setting_change("tenants.a.max_gpus", "8")).unwrap();
    assert_eq!(changed.guessed, 1);
    // The job runs for its runtime estimate and is cancelled before its end. No stop is recorded, so the stop is
    // taken to be immediate.
    assert_eq!(start_and_end_s(&changed, "job-2"), (Some(30), Some(1_000)));
}

#[test]
fn invalid_questions_are_refused_with_the_reason() {
    let entries = quota_blocks_second_job();
    let error_text = |query: WhatIfRequest| {
        let error = ask_what_if(&entries, query).unwrap_err();
        format!("{error} {}", error.hint().unwrap_or_default())
    };
    let added = |spec: &str| WhatIfRequest { add_nodes: vec![spec.to_string()], ..WhatIfRequest::default() };
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
    for (query, expected) in cases {
        let message = error_text(query);
        assert!(message.contains(expected), "`{message}` does not say `{expected}`");
    }
}

/// A history that continues without a change from any fork is the real history, except that the planner may run at
/// another time within the same second.
#[test]
fn a_continuation_without_change_reproduces_the_history() {
    let mut preemptions = 0;
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut actions = cluster_with_quotas([Some(6), None]);
        let mut at = 20;
        for _ in 0..60 {
            at += random.between(0, 200);
            let mut spec = job(random.choose::<&str>(&["a", "b"]), *random.choose(&[1, 1, 2, 4, 6]));
            spec.time_limit_ms = random.chance_per_mille(300).then(|| random.between(60, 1_200) * SECOND);
            spec.priority = *random.choose(&[100, 100, 500]);
            let every_ms = random.chance_per_mille(400).then(|| random.between(10, 100) * SECOND);
            spec.checkpoint = every_ms.map(|every| CheckpointRule { path: String::new(), every_ms: Some(every) });
            spec.restart.max_restarts = 2;
            let failed = WorkAttempt {
                duration: WorkDuration::Known(random.between(10, 300) * SECOND),
                exit: Exit::Code { code: 1 },
            };
            let tries = std::iter::repeat_n(failed, random.between(0, 3) as usize);
            actions.push(submit_at(at, spec, tries.chain(completes_after_s(random.between(10, 900))).collect()));
        }
        let entries = journal_of_actions(actions, at + 4 * 3_600);
        let journal = JournalHistory::from_entries(entries, Timestamp(10 * SECOND)).unwrap();
        let until = journal.entries.last().unwrap().at.plus(MINUTE);
        let at = |index: usize| journal.entries[index].at;
        let fork_index = (journal.entries.len() / 3..).find(|index| at(*index) > at(index - 1)).unwrap();
        let fork = divergence::fork_at(&journal, fork_index);
        let really = tally_of_journal(&journal, until);
        let none = AppliedChange::default();
        let replayed = continuation_of(&journal, &fork, &none, &fork.real).run_until(until).tally;
        let comparison = Comparison { really: &really, replayed: &really, changed: &replayed, until };
        let shifted: Vec<_> = comparison.jobs().into_iter().filter(|job| job.gained_s.abs() > 2.0).collect();
        assert!(shifted.is_empty(), "seed {seed}: {shifted:#?}");
        preemptions += comparison.figures(&replayed, None).preemptions;
    }
    assert!(preemptions > 0, "no job was preempted, so preemption was not tested");
}

/// A job that waits for a retry at the fork wakes at the recorded time, although no later event announces it.
#[test]
fn jobs_waiting_for_a_retry_at_the_fork_wake_in_time() {
    let mut actions = cluster_with_quotas([None, None]);
    let mut spec = job("a", 4);
    spec.restart.max_restarts = 1;
    let failed = WorkAttempt { duration: WorkDuration::Known(100 * SECOND), exit: Exit::Code { code: 1 } };
    actions.push(submit_at(20, spec, vec![failed, WorkAttempt::completes_after(200 * SECOND)]));
    let journal = JournalHistory::from_entries(journal_of_actions(actions, 3_600), Timestamp(10 * SECOND)).unwrap();
    let is_end = |entry: &Entry| matches!(entry.event, muster_core::Event::AttemptEnded { .. });
    let end = journal.entries.iter().position(is_end).unwrap();
    let mut fork = divergence::fork_at(&journal, end + 1);
    fork.at = journal.entries[end].at;
    let until = Timestamp(3_600 * SECOND);
    let really = tally_of_journal(&journal, until);
    let none = AppliedChange::default();
    let replayed = continuation_of(&journal, &fork, &none, &fork.real).run_until(until).tally;
    let comparison = Comparison { really: &really, replayed: &really, changed: &replayed, until };
    assert_eq!(comparison.jobs(), []);
    assert_eq!(comparison.figures(&replayed, None).ended, 1);
}

/// Any query about any history is answered, and the simulation breaks no law of the state.
#[test]
fn what_if_works_on_journals_of_fault_schedules() {
    let mut forks = 0;
    for seed in 0..24 {
        let entries = journal_of_schedule(&FaultSchedule::from_seed(seed, 1_500)).unwrap();
        let (first, last) = (entries[0].at, entries.last().unwrap().at);
        let since = first.plus(last.since(first) / 3);
        let journal = JournalHistory::from_entries(entries, since).unwrap();
        let tenant = journal.start_state.tenants.keys().next().cloned();
        let node = journal.start_state.nodes.keys().next().map(ToString::to_string);
        let questions = [
            WhatIfRequest { add_nodes: vec!["2x8xV100".to_string()], ..WhatIfRequest::default() },
            WhatIfRequest { remove_nodes: node.into_iter().collect(), ..WhatIfRequest::default() },
            setting_change(&format!("tenants.{}.max_gpus", tenant.unwrap()), "1"),
            setting_change("scheduler.objective", "fast"),
        ];
        for query in questions {
            let mut query = WhatIfQuery::from_request(&query, last).unwrap();
            query.since = journal.since;
            let found = answer(&journal, &query, None).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
            assert_eq!(found.decisions_different, 0, "seed {seed}");
            forks += u64::from(found.differs_from.is_some());
        }
    }
    assert!(forks > 30, "{forks} queries made a difference");
}
