//! Histories that are worked out by hand, and those of stories with every misfortune.

use std::sync::Arc;

use muster_core::command::{Actor, Command, SubmitJob};
use muster_core::job::{CheckpointRule, Exit, RestartRule};
use muster_core::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::{JobSpec, State};
use muster_protocol::whatif::{Setting, WhatIfAsk, WhatIfFigures};
use muster_server::whatif::Question;
use muster_store::Entry;

use super::*;
use crate::jobs::{Gang, LoggedJob};
use crate::random::Random;
use crate::rehearsal::{Assumptions, Site, job_spec};
use crate::stage::{Delays, Lasts, Player, Stage, Trial};
use crate::story::Story;
use crate::world::journal_of;

/// What a history is made of: a moment in seconds, and what someone asks then.
enum Deed {
    Ask(&'static str, Command),
    Submit(Box<JobSpec>, Vec<Trial>),
}

/// A job of a tenant with so many GPUs.
fn job(tenant: &str, gpus: u32) -> JobSpec {
    let logged = LoggedJob::new("", 0, 0, Gang::Total(gpus));
    let site = Site::of_words("1x8xV100").unwrap();
    job_spec(&logged, tenant.parse().unwrap(), &site, &Assumptions::default())
}

fn works(seconds: i64) -> Vec<Trial> {
    vec![Trial::done_after(seconds * SECOND)]
}

/// One node of eight GPUs, and the tenants `a` and `b` with at most so many of them.
fn cluster(most: [Option<u64>; 2]) -> Vec<(i64, Deed)> {
    let mut deeds = Vec::new();
    for (node, facts) in Site::of_words("1x8xV100").unwrap().nodes() {
        let (node, facts) = (node.clone(), Box::new(facts.clone()));
        deeds.push((0, Deed::Ask("muster", Command::RegisterNode { node, facts })));
    }
    for (name, most) in ["a", "b"].into_iter().zip(most) {
        let mut config = TenantConfig::unlimited(name);
        config.maximum.gpus = most;
        let (id, config) = (name.parse().unwrap(), Box::new(config));
        deeds.push((0, Deed::Ask("muster", Command::CreateTenant { id, config })));
    }
    deeds
}

fn submits(at: i64, spec: JobSpec, trials: Vec<Trial>) -> (i64, Deed) {
    (at, Deed::Submit(Box::new(spec), trials))
}

/// Let it happen, with agents that take a second to start a job and two to stop one.
fn journal(deeds: Vec<(i64, Deed)>, until_s: i64) -> Vec<Entry> {
    let delays = Delays { launch_ms: SECOND, stop_ms: 2 * SECOND, ..Delays::NONE };
    let mut stage = Stage::new(State::empty(), Timestamp(0), delays);
    stage.events = Some(Vec::new());
    let mut entries: Vec<Entry> = Vec::new();
    let mut deeds = deeds.into_iter().peekable();
    loop {
        let act = deeds.peek().map(|(at, _)| at * SECOND);
        let next = [act, stage.next_ms()].into_iter().flatten().min();
        let Some(now_ms) = next.filter(|next_ms| *next_ms <= until_s * SECOND) else { break };
        stage.go_to(now_ms);
        while let Some((_, deed)) = deeds.next_if(|(at, _)| at * SECOND <= now_ms) {
            act_out(&mut stage, deed);
        }
        stage.plan();
        for event in stage.events.replace(Vec::new()).into_iter().flatten() {
            let seq = entries.len() as u64 + 1;
            entries.push(Entry { seq, epoch: 1, at: Timestamp(now_ms), event });
        }
    }
    entries
}

fn act_out(stage: &mut Stage, deed: Deed) {
    let by = |name: &str| Actor::local(name);
    match deed {
        Deed::Ask(name, command) => {
            let (events, _) = stage.state.decide_audited(&by(name), &command, stage.now);
            let audit = events.into_iter().filter(|event| matches!(event, muster_core::Event::Acted { .. }));
            stage.ask(&by(name), &command).unwrap();
            for event in audit {
                stage.state.apply(&event);
                stage.events.as_mut().unwrap().push(event);
            }
            stage.stir();
        }
        Deed::Submit(spec, trials) => {
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
            let answer = stage.ask(&by("someone"), &Command::SubmitJob(ask)).unwrap();
            let muster_core::command::Answer::Job(job) = answer else { panic!("{answer:?}") };
            stage.play(job, Player::new(trials, 0));
        }
    }
}

/// Ask about the time from the 10th second to an hour after the last event.
fn ask(entries: &[Entry], ask: WhatIfAsk) -> Result<WhatIf, Fault> {
    let now = entries.last().unwrap().at.plus(HOUR);
    let since = Some("1970-01-01T00:00:10Z".to_string());
    let question = Question::of(&WhatIfAsk { since, ..ask }, now)?;
    answer(&Chronicle::of(entries.to_vec(), question.since)?, &question, None)
}

fn set(key: &str, value: &str) -> WhatIfAsk {
    WhatIfAsk { set: [(key.to_string(), Setting::from(value))].into(), ..WhatIfAsk::default() }
}

/// When jobs started and ended under the change, in seconds.
fn told(answer: &WhatIf, job: &str) -> (Option<i64>, Option<i64>) {
    let found = answer.jobs.iter().find(|found| found.job_id == job);
    let times = &found.unwrap_or_else(|| panic!("{job} gains nothing: {answer:#?}")).changed;
    let seconds = |text: &Option<String>| {
        text.as_ref().map(|text| text.parse::<jiff::Timestamp>().unwrap().as_second())
    };
    (seconds(&times.started_at), seconds(&times.ended_at))
}

/// `a` may have four GPUs and has two jobs of four: the second waits for the first.
fn two_in_a_row() -> Vec<Entry> {
    let mut deeds = cluster([Some(4), None]);
    deeds.push(submits(20, job("a", 4), works(600)));
    deeds.push(submits(30, job("a", 4), works(600)));
    deeds.push(submits(40, job("b", 4), works(1_000)));
    journal(deeds, 3 * 3_600)
}

#[test]
fn a_larger_quota_lets_a_job_start_at_once() {
    let entries = two_in_a_row();
    let more = ask(&entries, set("tenants.a.max_gpus", "8")).unwrap();
    // The second of `a` comes at 30 and starts then, instead of at 621 when the first has ended; `b` waits instead.
    assert_eq!(told(&more, "job-2"), (Some(30), Some(631)));
    assert_eq!(told(&more, "job-3"), (Some(621), Some(1_622)));
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
fn a_change_outlasts_what_is_said_later() {
    let quiet = |name: &str, most| {
        let mut config = TenantConfig::unlimited(name);
        (config.maximum.gpus, config.email) = (most, "ann@example.org".to_string());
        Deed::Ask("ann", Command::ChangeTenant { id: name.parse().unwrap(), config: Box::new(config) })
    };
    let started = || Deed::Ask("muster", Command::Configure { settings: Box::default() });
    let more = |early: i64| {
        let mut deeds = cluster([Some(4), None]);
        deeds.push((early, quiet("a", Some(4))));
        deeds.push((early, started()));
        deeds.push(submits(40, job("a", 4), works(600)));
        deeds.push(submits(50, job("a", 4), works(600)));
        deeds.sort_by_key(|(at, _)| *at);
        let entries = journal(deeds, 3 * 3_600);
        ask(&entries, set("tenants.a.max_gpus", "8")).unwrap()
    };
    // Said before the two part, and after.
    assert_eq!(told(&more(20), "job-2"), (Some(50), Some(651)));
    assert_eq!(told(&more(45), "job-2"), (Some(50), Some(651)));
    let mut deeds = cluster([None, None]);
    deeds.push((15, Deed::Ask("muster", started_fair())));
    deeds.push(submits(20, job("a", 8), works(600)));
    deeds.push(submits(30, job("a", 8), works(3_000)));
    deeds.push(submits(31, JobSpec { time_limit_ms: Some(60 * SECOND), ..job("b", 8) }, works(60)));
    let entries = journal(deeds, 3 * 3_600);
    let fast = ask(&entries, set("scheduler.objective", "fast")).unwrap();
    assert!(fast.differs_from.is_some(), "the shortest goes first");
}

fn started_fair() -> Command {
    let settings = muster_core::Settings { aging_max: 400, ..muster_core::Settings::default() };
    Command::Configure { settings: Box::new(settings) }
}

#[test]
fn more_nodes_take_who_waits() {
    let added = WhatIfAsk { add_nodes: vec!["1x8xV100".to_string()], ..WhatIfAsk::default() };
    let mut deeds = cluster([None, None]);
    deeds.push(submits(20, job("a", 8), works(600)));
    deeds.push(submits(30, job("b", 8), works(600)));
    let entries = journal(deeds, 3_600);
    let more = ask(&entries, added).unwrap();
    assert_eq!(told(&more, "job-2"), (Some(30), Some(631)));
    assert_eq!((more.sooner, more.later), (1, 0));
    let part = |figures: &WhatIfFigures| figures.utilisation.unwrap();
    assert!(part(&more.changed) < part(&more.really) * 0.55, "twice the GPUs for the same work");
}

#[test]
fn fewer_nodes_make_others_wait() {
    let mut deeds = cluster([None, None]);
    deeds.push(submits(5, job("a", 8), works(600)));
    deeds.push(submits(700, job("b", 8), works(600)));
    let entries = journal(deeds, 3_600);
    let node = Site::of_words("1x8xV100").unwrap().nodes()[0].0.to_string();
    let fewer = WhatIfAsk { remove_nodes: vec![node], ..WhatIfAsk::default() };
    let fewer = ask(&entries, fewer).unwrap();
    // The first runs already and ends; the second never starts.
    assert_eq!(fewer.changed.ended, 1);
    assert_eq!(told(&fewer, "job-2"), (None, None));
    assert_eq!((fewer.sooner, fewer.later), (0, 1));
}

#[test]
fn a_node_that_comes_later_can_be_taken_away() {
    let mut deeds = cluster([None, None]);
    let (_, facts) = Site::of_words("1x8xV100").unwrap().nodes()[0].clone();
    let (node, facts) = ("late".parse().unwrap(), Box::new(facts));
    deeds.push((100, Deed::Ask("muster", Command::RegisterNode { node, facts })));
    deeds.push(submits(20, job("a", 8), works(600)));
    deeds.push(submits(200, job("b", 8), works(600)));
    deeds.sort_by_key(|(at, _)| *at);
    let entries = journal(deeds, 3_600);
    let without = WhatIfAsk { remove_nodes: vec!["late".to_string()], ..WhatIfAsk::default() };
    let without = ask(&entries, without).unwrap();
    assert_eq!(told(&without, "job-2"), (Some(621), Some(1_222)));
    assert_eq!(without.differs_from.as_deref(), Some("1970-01-01T00:03:20Z"));
}

#[test]
fn a_job_that_would_not_be_accepted_is_named() {
    let fewer = ask(&two_in_a_row(), set("tenants.a.max_gpus", "2")).unwrap();
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
fn what_changes_nothing_is_said_to_change_nothing() {
    let entries = two_in_a_row();
    for same in [WhatIfAsk::default(), set("tenants.b.max_gpus", "8"), set("scheduler.aging_max", "400")] {
        let same = ask(&entries, same).unwrap();
        assert_eq!(same.differs_from, None);
        assert_eq!((same.sooner, same.later, same.jobs.len()), (0, 0, 0));
        assert_eq!((&same.really, &same.replayed), (&same.changed, &same.changed));
    }
}

#[test]
fn tries_that_failed_fail_again_and_people_do_what_they_did() {
    let mut deeds = cluster([Some(4), None]);
    let failed = Trial { lasts: Lasts::For(100 * SECOND), exit: Exit::Code { code: 1 } };
    let restart = RestartRule { max_restarts: 3, ..RestartRule::default() };
    let twice = JobSpec { restart, ..job("a", 4) };
    deeds.push(submits(20, job("a", 4), works(600)));
    deeds.push(submits(30, twice, vec![failed, Trial::done_after(200 * SECOND)]));
    let endless = vec![Trial { lasts: Lasts::On, exit: Exit::Code { code: 0 } }];
    deeds.push(submits(400, job("a", 4), endless));
    deeds.push((2_000, Deed::Ask("ann", Command::CancelJob { job: "job-3".parse().unwrap() })));
    let entries = journal(deeds, 3_600);
    let more = ask(&entries, set("tenants.a.max_gpus", "8")).unwrap();
    // It fails at 131, pauses for five seconds, and then takes one to start and 200 to be done.
    assert_eq!(told(&more, "job-2"), (Some(30), Some(131 + 5 + 1 + 200)));
    // The third starts when it comes, and is cancelled when it was; stopping takes two seconds.
    let (really, changed) =
        (&more.jobs.iter().find(|job| job.job_id == "job-3").unwrap().really, told(&more, "job-3"));
    assert_eq!(changed, (Some(400), Some(2_002)));
    assert_eq!(really.ended_at.as_deref(), Some("1970-01-01T00:33:22Z"));
}

#[test]
fn what_is_still_held_at_the_end_counts() {
    let mut deeds = cluster([Some(4), None]);
    let endless = vec![Trial { lasts: Lasts::On, exit: Exit::Code { code: 0 } }];
    deeds.push(submits(100, job("a", 4), endless));
    let entries = journal(deeds, 3_600);
    let same = ask(&entries, WhatIfAsk::default()).unwrap();
    // It started to run at 101, which is the last that happened; the question reaches an hour further.
    assert_eq!((same.really.gpu_hours, same.really.ended), (4.001, 0));
    assert_eq!(same.really.utilisation, Some(0.488), "half of the GPUs but for the first 90 of 3,691 s");
}

#[test]
fn who_never_ran_is_guessed() {
    let mut deeds = cluster([Some(4), None]);
    deeds.push(submits(20, job("a", 4), works(5_000)));
    deeds.push(submits(30, job("a", 4), works(10)));
    deeds.push((1_000, Deed::Ask("ann", Command::CancelJob { job: "job-2".parse().unwrap() })));
    let entries = journal(deeds, 7_200);
    let more = ask(&entries, set("tenants.a.max_gpus", "8")).unwrap();
    assert_eq!(more.guessed, 1);
    // It runs for as long as such jobs are expected to, and is cancelled before that. Nobody was ever stopped, so that is
    // taken to be done at once.
    assert_eq!(told(&more, "job-2"), (Some(30), Some(1_000)));
}

#[test]
fn bad_questions_are_answered_with_what_is_wrong() {
    let entries = two_in_a_row();
    let wrong = |question: WhatIfAsk| {
        let problem = ask(&entries, question).unwrap_err().problem();
        format!("{} {}", problem.detail, problem.hint.unwrap_or_default())
    };
    let added = |words: &str| WhatIfAsk { add_nodes: vec![words.to_string()], ..WhatIfAsk::default() };
    let removed = WhatIfAsk { remove_nodes: vec!["nowhere".to_string()], ..WhatIfAsk::default() };
    let cases = [
        (set("tenants.c.max_gpus", "8"), "there was no tenant `c`"),
        (set("tenants.a.max_gpu", "8"), "max_gpus"),
        (set("tenants.a.max_gpus", "many"), "max_gpus"),
        (set("tenants.a", "8"), "tenants.NAME.FIELD"),
        (set("scheduler.objectiv", "fast"), "did you mean `scheduler.objective`"),
        (added("fourxV100"), "no number of nodes"),
        (removed, "nowhere"),
        (WhatIfAsk { until: Some("30d".to_string()), ..WhatIfAsk::default() }, "must be before"),
    ];
    for (question, expected) in cases {
        let said = wrong(question);
        assert!(said.contains(expected), "`{said}` does not say `{expected}`");
    }
}

/// Cut anywhere, a history that is played on without a change is the history that was: only the planner may look at
/// another moment of the same second.
#[test]
fn a_history_that_is_played_on_is_the_same() {
    let mut displaced = 0;
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut deeds = cluster([Some(6), None]);
        let mut at = 20;
        for _ in 0..60 {
            at += random.between(0, 200);
            let mut spec = job(random.of::<&str>(&["a", "b"]), *random.of(&[1, 1, 2, 4, 6]));
            spec.time_limit_ms = random.happens(300).then(|| random.between(60, 1_200) * SECOND);
            spec.priority = *random.of(&[100, 100, 500]);
            let every_ms = random.happens(400).then(|| random.between(10, 100) * SECOND);
            spec.checkpoint =
                every_ms.map(|every| CheckpointRule { path: String::new(), every_ms: Some(every) });
            spec.restart.max_restarts = 2;
            let failed =
                Trial { lasts: Lasts::For(random.between(10, 300) * SECOND), exit: Exit::Code { code: 1 } };
            let tries = std::iter::repeat_n(failed, random.between(0, 3) as usize);
            deeds.push(submits(at, spec, tries.chain(works(random.between(10, 900))).collect()));
        }
        let entries = journal(deeds, at + 4 * 3_600);
        let chronicle = Chronicle::of(entries, Timestamp(10 * SECOND)).unwrap();
        let until = chronicle.entries.last().unwrap().at.plus(MINUTE);
        let at = |index: usize| chronicle.entries[index].at;
        let cut = (chronicle.entries.len() / 3..).find(|index| at(*index) > at(index - 1)).unwrap();
        let fork = track::fork_at(&chronicle, cut);
        let really = what_happened(&chronicle, until);
        let none = Otherwise::default();
        let replayed = future(&chronicle, &fork, &none, &fork.real).play(until).tally;
        let compared = Compared { really: &really, replayed: &really, changed: &replayed, until };
        let off: Vec<_> = compared.jobs().into_iter().filter(|job| job.gained_s.abs() > 2.0).collect();
        assert!(off.is_empty(), "seed {seed}: {off:#?}");
        displaced += compared.figures(&replayed, None).preemptions;
    }
    assert!(displaced > 0, "nobody was ever displaced, so nothing was asked of that");
}

/// Who sleeps when the two part wakes when it was to wake, though nobody says so again.
#[test]
fn who_sleeps_at_the_fork_wakes_in_time() {
    let mut deeds = cluster([None, None]);
    let mut spec = job("a", 4);
    spec.restart.max_restarts = 1;
    let failed = Trial { lasts: Lasts::For(100 * SECOND), exit: Exit::Code { code: 1 } };
    deeds.push(submits(20, spec, vec![failed, Trial::done_after(200 * SECOND)]));
    let chronicle = Chronicle::of(journal(deeds, 3_600), Timestamp(10 * SECOND)).unwrap();
    let is_end = |entry: &Entry| matches!(entry.event, muster_core::Event::AttemptEnded { .. });
    let end = chronicle.entries.iter().position(is_end).unwrap();
    let mut fork = track::fork_at(&chronicle, end + 1);
    fork.at = chronicle.entries[end].at;
    let until = Timestamp(3_600 * SECOND);
    let really = what_happened(&chronicle, until);
    let none = Otherwise::default();
    let replayed = future(&chronicle, &fork, &none, &fork.real).play(until).tally;
    let compared = Compared { really: &really, replayed: &really, changed: &replayed, until };
    assert_eq!(compared.jobs(), []);
    assert_eq!(compared.figures(&replayed, None).ended, 1);
}

/// Whatever happened, any question is answered, and no law of the state is broken by it.
#[test]
fn stories_with_every_misfortune_can_be_asked_about() {
    let mut forks = 0;
    for seed in 0..24 {
        let entries = journal_of(&Story::of_seed(seed, 1_500)).unwrap();
        let (first, last) = (entries[0].at, entries.last().unwrap().at);
        let since = first.plus(last.since(first) / 3);
        let chronicle = Chronicle::of(entries, since).unwrap();
        let tenant = chronicle.start.tenants.keys().next().cloned();
        let node = chronicle.start.nodes.keys().next().map(ToString::to_string);
        let questions = [
            WhatIfAsk { add_nodes: vec!["2x8xV100".to_string()], ..WhatIfAsk::default() },
            WhatIfAsk { remove_nodes: node.into_iter().collect(), ..WhatIfAsk::default() },
            set(&format!("tenants.{}.max_gpus", tenant.unwrap()), "1"),
            set("scheduler.objective", "fast"),
        ];
        for question in questions {
            let mut question = Question::of(&question, last).unwrap();
            question.since = chronicle.since;
            let found =
                answer(&chronicle, &question, None).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
            assert_eq!(found.decisions_different, 0, "seed {seed}");
            forks += u64::from(found.differs_from.is_some());
        }
    }
    assert!(forks > 30, "{forks} questions made a difference");
}
