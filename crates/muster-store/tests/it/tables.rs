//! What the tables say after a story.

use std::collections::BTreeMap;

use muster_core::command::JobChange;
use muster_core::event::{Back, Held, Next};
use muster_core::job::{Exit, Outcome, StopCause};
use muster_core::node::{GpuWord, NodeWord};
use muster_core::policy::{Bundle, Scope, Version};
use muster_core::share::ShareMode;
use muster_core::verdict::Reason;
use muster_core::window::Window;
use muster_core::{Event, JobId, Timestamp};
use muster_store::queries::{AllocationFilter, Order, Page, Start, UsageBy, UsageSpan};
use muster_store::rows::{CountRow, JobState, UsageRow};

use crate::bench::Bench;
use crate::story::*;

contract!(
    a_job_from_queue_to_end,
    a_preempted_job_waits_again,
    a_restarted_job_counts_its_restarts,
    a_stopped_job_says_why,
    a_declared_node_becomes_real_and_keeps_its_labels,
    a_held_job_is_released,
    a_changed_job_keeps_its_spec_once,
    tasks_of_an_array_share_a_spec,
    outcomes_of_jobs_and_arrays,
    events_of_a_job,
    allocations_are_attempts_with_leases,
    a_lease_tells_what_is_held_of_a_gpu,
    usage_ends_with_the_processes_and_leases_with_the_news,
    usage_adds_up,
    counts_follow_the_jobs,
    acts_are_listed,
    nodes_come_change_and_go,
    reservations_begin_and_end,
    waits_are_read_by_bucket_and_time,
    windows_open_and_close,
    tokens_keep_only_the_hash,
    policies_are_kept_with_who_and_why,
    settings_are_kept,
);

fn begin(bench: &dyn Bench) -> Book {
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), tenant("blue", None), node("n1", 8), node("n2", 8)]);
    book
}

fn a_job_from_queue_to_end(bench: &dyn Bench) {
    let mut book = begin(bench);
    let mut asked = spec("red", "train", 2);
    asked.labels.insert("team".to_string(), "vision".to_string());
    asked.start_after = Some(Timestamp(77));
    book.add(&[submitted(1, asked.clone())]);
    let row = |book: &Book| book.store.tables.job(job(1)).unwrap().unwrap().row;
    let queued = row(&book);
    assert_eq!((queued.state, queued.phase.as_str()), (JobState::Pending, "Queued"));
    assert_eq!((queued.gpus, queued.gpu_memory_mib, queued.cpus, queued.memory_mib), (2, 2_000, 4, 8_192));
    assert_eq!((queued.submitted_at, queued.wakes_at, queued.time_limit_ms), (11, Some(77), Some(60_000)));
    assert_eq!(queued.labels, BTreeMap::from([("team".to_string(), "vision".to_string())]));

    book.add(&[Event::JobWoken { job: job(1), at: Timestamp(78) }, placed(job(1), 1, "n1", &[3, 4])]);
    let starting = row(&book);
    assert_eq!((starting.state, starting.phase.as_str()), (JobState::Pending, "Starting"));
    assert_eq!(
        (starting.attempt, starting.nodes.clone(), starting.placed_at),
        (1, vec!["n1".to_string()], Some(100))
    );
    assert_eq!((starting.wakes_at, starting.started_at), (None, None));

    book.add(&[started(job(1), 1, "n1")]);
    let running = row(&book);
    assert_eq!(
        (running.state, running.phase.as_str(), running.started_at),
        (JobState::Running, "Running", Some(200))
    );

    book.add(&[done(job(1), 1)]);
    let ended = row(&book);
    assert_eq!(
        (ended.state, ended.phase.as_str(), ended.ended_at),
        (JobState::Completed, "Done", Some(1_000))
    );
    assert_eq!((ended.exit_code, ended.signal, ended.why.as_str()), (Some(0), None, "exit code 0"));
    assert_eq!((ended.gpu_ms, ended.cpu_ms, ended.cost_micro), (900, 3_600, 5));

    let detail = book.store.tables.job(job(1)).unwrap().unwrap();
    assert_eq!(detail.spec, asked);
    assert!(book.store.tables.job(job(2)).unwrap().is_none());
    assert!(muster_json::to_string(&detail).contains("\"id\":\"job-1\""));
}

fn a_preempted_job_waits_again(bench: &dyn Bench) {
    let mut book = begin(bench);
    let next = Next::Queued { because: Back::Preempted, wakes_at: Some(Timestamp(5_000)) };
    book.add(&[submit(1, "red", 2), placed(job(1), 1, "n1", &[0, 1]), started(job(1), 1, "n1")]);
    book.add(&[attempt_ended(job(1), 1, 143, next)]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.state, row.phase.as_str()), (JobState::Preempted, "Queued"));
    assert_eq!((row.preemptions, row.wakes_at, row.ended_at), (1, Some(5_000), None));
    book.add(&[placed(job(1), 2, "n2", &[0, 1]), started(job(1), 2, "n2"), done(job(1), 2)]);
    let attempts = book.store.tables.attempts(job(1)).unwrap();
    let words: Vec<(u32, &str)> = attempts.iter().map(|row| (row.attempt, row.state.as_str())).collect();
    assert_eq!(words, vec![(1, "Preempted"), (2, "Done")]);
    assert_eq!(attempts[1].nodes, vec!["n2".to_string()]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.gpu_ms, row.attempt, row.preemptions), (1_800, 2, 1));
}

fn a_restarted_job_counts_its_restarts(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 1)]);
    let backs = [Back::Restarted, Back::Requeued, Back::Requeued, Back::Restarted, Back::Restarted];
    for (attempt, because) in (1..).zip(backs) {
        let next = Next::Queued { because, wakes_at: None };
        book.add(&[placed(job(1), attempt, "n1", &[0]), attempt_ended(job(1), attempt, 1, next)]);
    }
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.restarts, row.requeues, row.preemptions), (3, 2, 0));
    assert_eq!((row.state, row.phase.as_str()), (JobState::Pending, "Queued"));
    assert_eq!(bench.sql("SELECT sum(used_milli) FROM gpus"), "0");
}

fn a_stopped_job_says_why(bench: &dyn Bench) {
    let mut book = begin(bench);
    let cause = StopCause::Preempted { by: job(9) };
    let stopping =
        Event::AttemptStopping { job: job(1), attempt: 1, cause, grace_ms: 30, at: Timestamp(150) };
    book.add(&[submit(1, "red", 2), placed(job(1), 1, "n1", &[0, 1]), stopping]);
    // It had not been seen running when it was told to stop; a late word changes the time, not the phase.
    book.add(&[started(job(1), 1, "n1")]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.state, row.phase.as_str(), row.started_at), (JobState::Running, "Stopping", Some(200)));
    let attempt = &book.store.tables.attempts(job(1)).unwrap()[0];
    assert_eq!((attempt.state.as_str(), attempt.stopping_at), ("Stopping", Some(150)));
    assert!(attempt.stop_cause.as_deref().unwrap().contains("job-9"));

    let next = Next::Held { by: "ada".to_string(), why: "too many comebacks".to_string() };
    let exit = Exit::Signal { signal: 9 };
    let Event::AttemptEnded { charge, at, .. } = done(job(1), 1) else { unreachable!() };
    let held = Held { cpus: 4, memory_mib: 5_000, planned_ms: Some(1_800), cost_per_hour_micro: 20 };
    book.add(&[Event::AttemptEnded {
        job: job(1),
        attempt: 1,
        exit,
        next,
        charge,
        receipt: None,
        held: Some(held),
        charged_until: None,
        at,
    }]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str(), row.signal), ("Held", "too many comebacks", Some(9)));
    assert_eq!(bench.sql("SELECT held_by FROM jobs"), "ada");
    let attempt = &book.store.tables.attempts(job(1)).unwrap()[0];
    assert_eq!((attempt.exit.as_deref(), attempt.signal, attempt.exit_code), (Some("signal"), Some(9), None));
    assert_eq!((attempt.cpus, attempt.memory_mib), (Some(4), Some(5_000)));
    assert_eq!((attempt.planned_ms, attempt.cost_per_hour_micro), (Some(1_800), Some(20)));
}

fn a_declared_node_becomes_real_and_keeps_its_labels(bench: &dyn Bench) {
    let mut book = begin(bench);
    let Event::NodeRegistered { facts, .. } = node("n9", 2) else { unreachable!() };
    let (n9, by, at) = (|| "n9".parse().unwrap(), "ada".to_string(), Timestamp(5));
    let labels = Some(BTreeMap::from([("zone".to_string(), "b".to_string())]));
    book.add(&[
        Event::NodeDeclared { node: n9(), facts, by: by.clone(), at },
        Event::NodeLabelled { node: n9(), labels, taints: None, by, at },
    ]);
    let told = "SELECT CAST(declared AS TEXT) || ' ' || labels FROM nodes WHERE id = 'n9'";
    let declared = bench.sql(told);
    assert!(["1 {\"zone\":\"b\"}", "true {\"zone\":\"b\"}"].contains(&declared.as_str()), "{declared}");
    book.add(&[node("n9", 2)]);
    let joined = bench.sql(told);
    assert!(["0 {\"zone\":\"b\"}", "false {\"zone\":\"b\"}"].contains(&joined.as_str()), "{joined}");
}

fn a_held_job_is_released(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 1)]);
    book.add(&[Event::JobHeld { job: job(1), by: "ada".into(), why: "wait".into(), at: Timestamp(1) }]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str()), ("Held", "wait"));
    book.add(&[Event::JobReleased { job: job(1), by: "ada".into(), at: Timestamp(2) }]);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str()), ("Queued", ""));
}

fn a_changed_job_keeps_its_spec_once(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit_array(1, "red", 3)]);
    let task = JobId::of_array(1, 1);
    let change = JobChange {
        name: Some("renamed".to_string()),
        priority: Some(900),
        time_limit_ms: Some(None),
        labels: Some(BTreeMap::from([("a".to_string(), "b".to_string())])),
    };
    book.add(&[Event::JobChanged { job: task, change, at: Timestamp(5) }]);
    let detail = book.store.tables.job(task).unwrap().unwrap();
    assert_eq!(
        (detail.spec.name.as_str(), detail.spec.priority, detail.spec.time_limit_ms),
        ("renamed", 900, None)
    );
    assert_eq!(detail.spec.labels["a"], "b");
    let other = book.store.tables.job(JobId::of_array(1, 2)).unwrap().unwrap();
    assert_eq!((other.spec.name.as_str(), other.spec.time_limit_ms), ("train-1", Some(60_000)));
    // What is not said stays.
    let change = JobChange { priority: Some(7), ..JobChange::default() };
    book.add(&[Event::JobChanged { job: task, change, at: Timestamp(6) }]);
    let row = book.store.tables.job(task).unwrap().unwrap().row;
    assert_eq!((row.name.as_str(), row.priority, row.time_limit_ms), ("renamed", 7, None));
    assert_eq!(bench.sql("SELECT count(*) FROM specs"), "1");
}

fn tasks_of_an_array_share_a_spec(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit_array(1, "red", 50), submit(2, "red", 1)]);
    assert_eq!(bench.sql("SELECT count(*) FROM specs"), "2");
    assert_eq!(bench.sql("SELECT count(*) FROM jobs"), "51");
    let task = JobId::of_array(1, 49);
    assert_eq!(book.store.tables.job(task).unwrap().unwrap().row.id, task);
    assert!(book.store.tables.job(job(1)).unwrap().is_none(), "an array is no job");
}

fn outcomes_of_jobs_and_arrays(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 1), submit(2, "red", 1), submit(3, "red", 1), submit(4, "red", 1)]);
    book.add(&[submit_array(5, "red", 2), submit_array(6, "red", 2), submit_array(7, "red", 1)]);
    let task = JobId::of_array;
    let run = |id: JobId, end: fn(JobId, u32) -> Event| [placed(id, 1, "n1", &[0]), end(id, 1)];
    for pair in [run(job(1), done), run(job(2), failed), run(task(5, 0), done), run(task(5, 1), done)] {
        book.add(&pair);
    }
    book.add(&[cancelled(job(3)), cancelled(task(6, 0)), cancelled(task(7, 0))]);
    let ids = [1, 2, 3, 4, 5, 6, 7, 8].map(job).into_iter().chain([task(6, 0), task(6, 1), task(5, 1)]);
    let outcomes = book.store.tables.outcomes(&ids.collect::<Vec<JobId>>()).unwrap();
    let wanted = BTreeMap::from([
        (job(1), Outcome::Done),
        (job(2), Outcome::Failed),
        (job(3), Outcome::Cancelled),
        (job(5), Outcome::Done),
        (task(6, 0), Outcome::Cancelled),
        (task(5, 1), Outcome::Done),
        (job(7), Outcome::Failed),
    ]);
    assert_eq!(outcomes, wanted);
}

fn events_of_a_job(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[
        submit_array(1, "red", 2),
        submit(2, "red", 1),
        cancelled(JobId::of_array(1, 0)),
        cancelled(job(2)),
    ]);
    let kinds = |after, limit, job| -> Vec<(u64, String)> {
        let rows = book.store.tables.events(after, limit, job).unwrap();
        rows.into_iter().map(|row| (row.seq, row.kind)).collect()
    };
    let row = |seq, kind: &str| (seq, kind.to_string());
    assert_eq!(kinds(0, 2, None), vec![row(1, "TenantCreated"), row(2, "TenantCreated")]);
    assert_eq!(kinds(6, 9, None), vec![row(7, "JobEnded"), row(8, "JobEnded")]);
    assert_eq!(kinds(0, 9, Some(job(1))), vec![row(5, "JobSubmitted"), row(7, "JobEnded")]);
    assert_eq!(kinds(0, 9, Some(JobId::of_array(1, 0))), vec![row(5, "JobSubmitted"), row(7, "JobEnded")]);
    assert_eq!(kinds(0, 9, Some(JobId::of_array(1, 1))), vec![row(5, "JobSubmitted")]);
    assert_eq!(kinds(6, 9, Some(job(2))), vec![row(8, "JobEnded")]);
}

fn gang(job: JobId, tasks: &[(&str, &[u8])]) -> Event {
    placed_tasks(job, 1, tasks.iter().map(|(node, gpus)| placed_task(node, gpus)).collect())
}

fn allocations_are_attempts_with_leases(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 4), submit(2, "blue", 1), submit(3, "red", 0), submit(4, "red", 1)]);
    book.add(&[gang(job(1), &[("n2", &[0, 1]), ("n1", &[5, 4])]), gang(job(2), &[("n1", &[0])])]);
    book.add(&[gang(job(3), &[("n1", &[])]), gang(job(4), &[("n2", &[7])]), done(job(2), 1)]);
    let list = |filter: &AllocationFilter, page: &Page<u64>| {
        let found = book.store.tables.allocations(filter, page).unwrap();
        let jobs: Vec<u64> = found.rows.iter().map(|row| row.attempt.job.number).collect();
        (jobs, found.total, found.next)
    };
    let all = AllocationFilter::default();
    assert_eq!(list(&all, &Page::first(10)), (vec![4, 3, 2, 1], 4, None));
    assert_eq!(list(&all, &Page::first(2)), (vec![4, 3], 4, Some(11)));
    assert_eq!(list(&all, &Page::after(11, 2)), (vec![2, 1], 4, Some(9)));
    let oldest = Page { start: Start::Offset(1), limit: 2, order: Order::Oldest };
    assert_eq!(list(&all, &oldest), (vec![2, 3], 4, Some(11)));
    let filter = |change: fn(&mut AllocationFilter)| {
        let mut filter = AllocationFilter::default();
        change(&mut filter);
        list(&filter, &Page::first(10)).0
    };
    assert_eq!(filter(|filter| filter.tenants = Some(vec!["blue".to_string()])), vec![2]);
    assert_eq!(filter(|filter| filter.tenants = Some(Vec::new())), Vec::<u64>::new());
    assert_eq!(filter(|filter| filter.node = Some("n2".to_string())), vec![4, 1]);
    assert_eq!(filter(|filter| filter.live_only = true), vec![4, 3, 1]);
    assert_eq!(filter(|filter| filter.job = Some(job(3))), vec![3]);

    let found = book.store.tables.allocations(&all, &Page::first(10)).unwrap();
    let first = &found.rows[3];
    let leases: Vec<(u32, &str, u8)> =
        first.leases.iter().map(|lease| (lease.rank, lease.node.as_str(), lease.gpu)).collect();
    assert_eq!(leases, vec![(0, "n2", 0), (0, "n2", 1), (1, "n1", 4), (1, "n1", 5)]);
    assert_eq!((first.attempt.gpus, first.attempt.nodes.len(), first.attempt.tenant.as_str()), (4, 2, "red"));
    assert!(found.rows[1].leases.is_empty());
    assert_eq!(found.rows[2].leases[0].to_ms, Some(1_000));
    assert_eq!(found.rows[0].leases[0].to_ms, None);
}

fn a_lease_tells_what_is_held_of_a_gpu(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submitted(1, shared_spec("red", 3, 250)), submit(2, "red", 1)]);
    let mig = ShareMode::Mig { profile: "2g.35gb".to_string(), start: 4 };
    let tasks = vec![
        part(("n1", 3), (250, 300), ShareMode::Mps),
        part(("n1", 3), (250, 400), ShareMode::TimeSlice),
        part(("n1", 4), (250, 250), mig),
    ];
    book.add(&[placed_tasks(job(1), 1, tasks), placed(job(2), 1, "n1", &[0])]);
    let found = book.store.tables.allocations(&AllocationFilter::default(), &Page::first(10)).unwrap();
    let leases = |at: usize| -> Vec<(u8, &str, u32, u32, Option<u64>)> {
        let held = found.rows[at].leases.iter();
        held.map(|one| (one.gpu, one.slot.as_str(), one.compute_milli, one.memory_milli, one.memory_mib))
            .collect()
    };
    assert_eq!(leases(0), vec![(0, "", 1_000, 1_000, None)]);
    let wanted = vec![
        (3, "mps", 250, 300, Some(42_900)),
        (3, "time-slice", 250, 400, Some(57_200)),
        (4, "mig:2g.35gb@4", 250, 250, Some(35_750)),
    ];
    assert_eq!(leases(1), wanted);
    let row = book.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.gpus, row.gpu_milli), (3, 750));
    assert_eq!(book.store.tables.job(job(2)).unwrap().unwrap().row.gpu_milli, 1_000);
}

/// The server knew at 9 s that an attempt was over, and it had been over at 1 s.
fn usage_ends_with_the_processes_and_leases_with_the_news(bench: &dyn Bench) {
    let mut book = begin(bench);
    let mut end = done(job(1), 1);
    if let Event::AttemptEnded { at, charged_until, .. } = &mut end {
        (*at, *charged_until) = (Timestamp(9_000), Some(Timestamp(1_000)));
    }
    book.add(&[submit(1, "red", 1), placed(job(1), 1, "n1", &[0]), end]);
    let attempts = "SELECT charged_until || ' ' || ended_at FROM attempts";
    assert_eq!(bench.sql(attempts), "1000 9000");
    assert_eq!(bench.sql("SELECT to_ms FROM leases"), "9000");
    assert_eq!(bench.sql("SELECT to_ms FROM usage"), "1000");
    let attempts = book.store.tables.attempts(job(1)).unwrap();
    assert_eq!(attempts[0].charged_until, Some(1_000));
}

fn usage_adds_up(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 1), submit(2, "red", 1), submit(3, "blue", 1)]);
    for number in 1..=3 {
        let mut end = done(job(number), 1);
        if let Event::AttemptEnded { at, .. } = &mut end {
            *at = Timestamp(1_000 * number as i64);
        }
        book.add(&[placed(job(number), 1, "n1", &[0]), end]);
    }
    let usage = |from_ms, to_ms, tenants, by| {
        let span = UsageSpan { from_ms, to_ms, tenants };
        let rows = book.store.tables.usage(&span, by).unwrap();
        rows.into_iter().map(|row| (row.key, row.attempts, row.gpu_ms)).collect::<Vec<_>>()
    };
    let row = |key: &str, attempts, gpu_ms| (key.to_string(), attempts, gpu_ms);
    assert_eq!(usage(0, 9_000, None, UsageBy::Tenant), vec![row("blue", 1, 900), row("red", 2, 1_800)]);
    assert_eq!(usage(0, 2_000, None, UsageBy::Tenant), vec![row("red", 1, 900)]);
    assert_eq!(usage(2_000, 3_001, None, UsageBy::User), vec![row("ada", 2, 1_800)]);
    let red = Some(vec!["red".to_string()]);
    assert_eq!(usage(0, 9_000, red, UsageBy::Job), vec![row("job-1", 1, 900), row("job-2", 1, 900)]);
    assert_eq!(usage(0, 9_000, Some(Vec::new()), UsageBy::Job), Vec::new());
    let span = UsageSpan { from_ms: 0, to_ms: 9_000, tenants: None };
    let whole = UsageRow {
        key: "ada".to_string(),
        attempts: 3,
        gpu_ms: 2_700,
        cpu_ms: 10_800,
        memory_gib_ms: 21_600,
        cost_micro: 15,
        energy_mj: 0,
    };
    assert_eq!(book.store.tables.usage(&span, UsageBy::User).unwrap(), vec![whole]);
}

fn counts_follow_the_jobs(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit_array(1, "red", 5), submit(2, "blue", 1), cancelled(JobId::of_array(1, 4))]);
    let task = JobId::of_array(1, 0);
    book.add(&[placed(task, 1, "n1", &[0]), started(task, 1, "n1")]);
    let count = |tenant: &str, state, jobs| CountRow { tenant: tenant.to_string(), state, jobs };
    let wanted = vec![
        count("blue", JobState::Pending, 1),
        count("red", JobState::Cancelled, 1),
        count("red", JobState::Pending, 3),
        count("red", JobState::Running, 1),
    ];
    assert_eq!(book.store.tables.counts().unwrap(), wanted);
}

fn acts_are_listed(bench: &dyn Bench) {
    let mut book = begin(bench);
    let act = |object: &str, refused: Option<&str>| Event::Acted {
        times: 1,
        by: "ada".to_string(),
        by_kind: Some("token".to_string()),
        act: "tenant.change".to_string(),
        object: object.to_string(),
        refused: refused.map(str::to_string),
        at: Timestamp(8),
    };
    book.add(&[act("a", None), act("b", Some("unknown-tenant")), act("c", None)]);
    let page = book.store.tables.audit(&Page::first(2)).unwrap();
    assert_eq!((page.total, page.next), (3, Some(6)));
    let objects: Vec<&str> = page.rows.iter().map(|row| row.object.as_str()).collect();
    assert_eq!(objects, vec!["c", "b"]);
    assert_eq!(page.rows[1].refused.as_deref(), Some("unknown-tenant"));
    let rest = book.store.tables.audit(&Page::after(6, 2)).unwrap();
    assert_eq!((rest.rows.len(), rest.next, rest.rows[0].actor.as_str()), (1, None, "ada"));
    assert_eq!(rest.rows[0].actor_kind.as_deref(), Some("token"));
}

fn nodes_come_change_and_go(bench: &dyn Bench) {
    let mut book = begin(bench);
    let n1 = || "n1".parse().unwrap();
    let gpu = muster_core::GpuId { node: n1(), index: 2 };
    let (why, cooling_until) = ("hot".to_string(), Some(Timestamp(99)));
    book.add(&[Event::GpuHealthChanged {
        gpu,
        word: GpuWord::Degraded,
        why,
        cooling_until,
        temperature_c: None,
        declared: None,
        read: None,
        jobs: Vec::new(),
        at: Timestamp(5),
    }]);
    let (by, why) = ("ada".to_string(), "new fan".to_string());
    book.add(&[Event::NodeStateChanged { node: n1(), word: NodeWord::Draining, by, why, at: Timestamp(6) }]);
    let health = || bench.sql("SELECT health FROM gpus WHERE node = 'n1' AND idx = 2");
    let state = || bench.sql("SELECT state FROM nodes WHERE id = 'n1'");
    let present = || bench.sql("SELECT count(*) FROM gpus WHERE node = 'n1' AND removed_at IS NULL");
    assert_eq!((health().as_str(), state().as_str(), present().as_str()), ("degraded", "Draining", "8"));
    // Saying anew what it is keeps what was said about it; a device that is gone is gone.
    book.add(&[node("n1", 4)]);
    assert_eq!((health().as_str(), state().as_str(), present().as_str()), ("degraded", "Draining", "4"));
    book.add(&[node("n1", 2), node("n1", 4)]);
    assert_eq!((health().as_str(), present().as_str()), ("healthy", "4"));
    book.add(&[Event::NodeRemoved { node: n1(), at: Timestamp(9) }]);
    assert_eq!(
        (bench.sql("SELECT removed_at FROM nodes WHERE id = 'n1'").as_str(), present().as_str()),
        ("9", "0")
    );
    book.add(&[node("n1", 8)]);
    assert_eq!((state().as_str(), present().as_str()), ("Ready", "8"));
}

fn windows_open_and_close(bench: &dyn Bench) {
    let mut book = begin(bench);
    let open = || Event::WindowOpened {
        window: Box::new(Window {
            name: "repair".to_string(),
            nodes: ["n1", "n2"].map(|node| node.parse().unwrap()).into(),
            from: Timestamp(10),
            until: Timestamp(20),
            tenant: Some("red".parse().unwrap()),
            why: "a new fan".to_string(),
            by: "ada".to_string(),
        }),
        at: Timestamp(5),
    };
    let close =
        || Event::WindowClosed { name: "repair".to_string(), why: "over".to_string(), at: Timestamp(21) };
    book.add(&[open()]);
    assert!(book.try_add(&[open()]).is_err(), "two windows of one name");
    assert_eq!(bench.sql("SELECT nodes FROM windows WHERE tenant = 'red'"), r#"["n1","n2"]"#);
    book.add(&[close(), open(), close()]);
    assert!(book.try_add(&[close()]).is_err(), "no window to close");
    assert_eq!(bench.sql("SELECT count(*) FROM windows WHERE closed_at = 21 AND closed_why = 'over'"), "2");
}

/// What was noted last before a span counts at its beginning, and other buckets do not count at all.
fn waits_are_read_by_bucket_and_time(bench: &dyn Bench) {
    let mut book = begin(bench);
    let note = |bucket: &str, job: u64, at: i64| {
        let reasons = vec![Reason::Reservation { job: JobId::single(job) }];
        Event::WaitNoted { bucket: bucket.to_string(), reasons, at: Timestamp(at) }
    };
    book.add(&[note("a", 1, 10), note("a", 2, 20), note("b", 3, 25), note("a", 4, 30), note("a", 5, 40)]);
    let read = |buckets: &[&str], from, to| -> Vec<i64> {
        let buckets: Vec<String> = buckets.iter().map(|bucket| bucket.to_string()).collect();
        book.store.tables.waits(&buckets, from, to).unwrap().iter().map(|row| row.at_ms).collect()
    };
    assert_eq!(read(&["a"], 22, 40), [20, 30]);
    assert_eq!(read(&["a"], 5, 15), [10]);
    assert_eq!(read(&["a", "b"], 22, 30), [20, 25]);
    assert_eq!(read(&["c"], 0, 100), [0i64; 0]);
    assert_eq!(
        bench.sql("SELECT reasons FROM waits WHERE bucket = 'b'"),
        r#"[{"reason":"Reservation","job":"job-3"}]"#
    );
}

fn reservations_begin_and_end(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[submit(1, "red", 2)]);
    let claim = || Event::ClaimMade {
        job: job(1),
        tasks: ["n1", "n2"].map(|node| placed_task(node, &[0, 1])).to_vec(),
        victims: vec![job(9)],
        at: Timestamp(5),
        until: Timestamp(50),
    };
    book.add(&[claim()]);
    assert!(book.try_add(&[claim()]).is_err(), "two claims of one job");
    assert_eq!(bench.sql("SELECT victims FROM reservations"), r#"["job-9"]"#);
    assert_eq!(bench.sql("SELECT node FROM reservations"), "n1, n2");
    let gpus = r#"["n1/gpu-0","n1/gpu-1","n2/gpu-0","n2/gpu-1"]"#;
    assert_eq!(bench.sql("SELECT gpus FROM reservations"), gpus);
    let end = || Event::ClaimEnded { job: job(1), why: "started".to_string(), at: Timestamp(9) };
    book.add(&[end(), claim(), end()]);
    assert!(book.try_add(&[end()]).is_err(), "no claim to end");
    assert_eq!(bench.sql("SELECT count(*) FROM reservations WHERE ended_at = 9"), "2");
}

fn tokens_keep_only_the_hash(bench: &dyn Bench) {
    let mut book = begin(bench);
    book.add(&[token("t-1"), Event::TokenRevoked { id: "t-1".into(), at: Timestamp(9) }]);
    assert_eq!(bench.sql("SELECT revoked_at FROM tokens WHERE id = 't-1'"), "9");
    assert_eq!(bench.sql("SELECT length(hash) FROM tokens"), "64");
    assert_eq!(bench.sql("SELECT role FROM tokens"), "member");
}

fn policies_are_kept_with_who_and_why(bench: &dyn Bench) {
    let mut book = begin(bench);
    let applied = |number, source: &str| {
        let files = [("a.gsky".to_string(), source.to_string())].into();
        let bundle = Bundle { hash: format!("h{number}"), files, ..Bundle::default() };
        let (scope, by, why) = (Scope::Cluster, "ada".to_string(), "nights".to_string());
        let version = Version { number, scope, bundle: bundle.into(), by, why, at: Timestamp(9) };
        Event::PolicyApplied { version: Box::new(version) }
    };
    book.add(&[applied(1, "x = 1"), applied(2, "x = 2")]);
    let newest = "FROM policies WHERE version = 2";
    assert_eq!(bench.sql(&format!("SELECT scope {newest}")), "cluster");
    assert_eq!(bench.sql(&format!("SELECT files {newest}")), r#"{"a.gsky":"x = 2"}"#);
    assert_eq!(bench.sql(&format!("SELECT applied_by {newest}")), "ada");
    assert_eq!(bench.sql("SELECT count(*) FROM policies WHERE why = 'nights' AND applied_at = 9"), "2");
}

fn settings_are_kept(bench: &dyn Bench) {
    let mut book = begin(bench);
    let settings = |priority| {
        let settings = muster_core::Settings { default_priority: priority, ..Default::default() };
        Event::Configured { settings: Box::new(settings), at: Timestamp(5) }
    };
    book.add(&[settings(7), settings(8)]);
    assert!(
        bench.sql("SELECT value FROM settings WHERE name = 'cluster'").contains("\"default_priority\":8")
    );
}
