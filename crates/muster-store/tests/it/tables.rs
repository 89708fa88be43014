//! Projection of events into the tables, and queries over them.

use std::collections::BTreeMap;

use muster_core::facts::command::JobChange;
use muster_core::facts::event::{NextPhase, RequeueCause};
use muster_core::facts::verdict::Reason;
use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::gpu_share::ShareMode;
use muster_core::objects::charge::HeldResources;
use muster_core::objects::job::{Exit, Outcome, StopCause};
use muster_core::objects::node::NodeStatus;
use muster_core::objects::policy::{BundleVersion, PolicyBundle, PolicyScope};
use muster_core::objects::window::Window;
use muster_core::{Event, JobId, Timestamp};
use muster_store::queries::{AllocationFilter, PageOrder, PageRequest, PageStart, UsageFilter, UsageGrouping};
use muster_store::rows::{CountRow, JobState, UsageRow};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    a_job_row_follows_the_job_from_queue_to_end,
    a_preempted_job_waits_again,
    a_restarted_job_counts_its_restarts,
    a_stopping_attempt_stores_its_cause,
    a_declared_node_registers_and_keeps_its_labels,
    a_held_job_is_released,
    a_changed_array_task_does_not_copy_the_spec,
    tasks_of_an_array_share_a_spec,
    outcomes_of_jobs_and_arrays,
    events_are_filtered_by_job,
    allocations_are_attempts_with_leases,
    a_lease_stores_its_slot_and_its_part_of_the_gpu,
    usage_ends_with_the_processes_and_leases_end_with_the_report,
    usage_is_summed_by_tenant_user_and_job,
    job_counts_match_the_jobs,
    audit_entries_are_listed_newest_first,
    nodes_are_registered_changed_and_removed,
    claims_begin_and_end,
    waits_are_read_by_bucket_and_time,
    windows_open_and_close,
    tokens_keep_only_the_hash,
    policy_versions_are_stored_with_author_and_reason,
    settings_are_kept,
);

fn begin(database: &dyn TestDatabase) -> JournalWriter {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None), tenant("blue", None), node("n1", 8), node("n2", 8)]);
    writer
}

fn a_job_row_follows_the_job_from_queue_to_end(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let mut job_spec = spec("red", "train", 2);
    job_spec.labels.insert("team".to_string(), "vision".to_string());
    job_spec.start_after = Some(Timestamp(77));
    writer.append(&[submitted(1, job_spec.clone())]);
    let row = |writer: &JournalWriter| writer.store.tables.job(job(1)).unwrap().unwrap().row;
    let queued = row(&writer);
    assert_eq!((queued.state, queued.phase.as_str()), (JobState::Pending, "Queued"));
    assert_eq!((queued.gpus, queued.gpu_memory_mib, queued.cpus, queued.memory_mib), (2, 2_000, 4, 8_192));
    assert_eq!((queued.submitted_at, queued.wakes_at, queued.time_limit_ms), (11, Some(77), Some(60_000)));
    assert_eq!(queued.labels, BTreeMap::from([("team".to_string(), "vision".to_string())]));

    writer.append(&[Event::JobWoken { job: job(1), at: Timestamp(78) }, placed(job(1), 1, "n1", &[3, 4])]);
    let starting = row(&writer);
    assert_eq!((starting.state, starting.phase.as_str()), (JobState::Pending, "Starting"));
    assert_eq!((starting.attempt, starting.nodes.clone(), starting.placed_at), (1, vec!["n1".to_string()], Some(100)));
    assert_eq!((starting.wakes_at, starting.started_at), (None, None));

    writer.append(&[started(job(1), 1, "n1")]);
    let running = row(&writer);
    assert_eq!((running.state, running.phase.as_str(), running.started_at), (JobState::Running, "Running", Some(200)));

    writer.append(&[done(job(1), 1)]);
    let ended = row(&writer);
    assert_eq!((ended.state, ended.phase.as_str(), ended.ended_at), (JobState::Completed, "Done", Some(1_000)));
    assert_eq!((ended.exit_code, ended.signal, ended.why.as_str()), (Some(0), None, "exit code 0"));
    assert_eq!((ended.gpu_ms, ended.cpu_ms, ended.cost_micro), (900, 3_600, 5));

    let detail = writer.store.tables.job(job(1)).unwrap().unwrap();
    assert_eq!(detail.spec, job_spec);
    assert!(writer.store.tables.job(job(2)).unwrap().is_none());
    assert!(muster_json::to_string(&detail).contains("\"id\":\"job-1\""));
}

fn a_preempted_job_waits_again(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let next = NextPhase::Queued { cause: RequeueCause::Preempted, wakes_at: Some(Timestamp(5_000)) };
    writer.append(&[submit(1, "red", 2), placed(job(1), 1, "n1", &[0, 1]), started(job(1), 1, "n1")]);
    writer.append(&[attempt_ended(job(1), 1, 143, next)]);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.state, row.phase.as_str()), (JobState::Preempted, "Queued"));
    assert_eq!((row.preemptions, row.wakes_at, row.ended_at), (1, Some(5_000), None));
    writer.append(&[placed(job(1), 2, "n2", &[0, 1]), started(job(1), 2, "n2"), done(job(1), 2)]);
    let attempts = writer.store.tables.attempts(job(1)).unwrap();
    let states: Vec<(u32, &str)> = attempts.iter().map(|row| (row.attempt, row.state.as_str())).collect();
    assert_eq!(states, vec![(1, "Preempted"), (2, "Done")]);
    assert_eq!(attempts[1].nodes, vec!["n2".to_string()]);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.gpu_ms, row.attempt, row.preemptions), (1_800, 2, 1));
}

fn a_restarted_job_counts_its_restarts(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 1)]);
    let causes = [
        RequeueCause::Restarted,
        RequeueCause::Requeued,
        RequeueCause::Requeued,
        RequeueCause::Restarted,
        RequeueCause::Restarted,
    ];
    for (attempt, cause) in (1..).zip(causes) {
        let next = NextPhase::Queued { cause, wakes_at: None };
        writer.append(&[placed(job(1), attempt, "n1", &[0]), attempt_ended(job(1), attempt, 1, next)]);
    }
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.restarts, row.requeues, row.preemptions), (3, 2, 0));
    assert_eq!((row.state, row.phase.as_str()), (JobState::Pending, "Queued"));
    assert_eq!(database.sql("SELECT sum(used_milli) FROM gpus"), "0");
}

fn a_stopping_attempt_stores_its_cause(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let cause = StopCause::Preempted { by: job(9) };
    let stopping = Event::AttemptStopping { job: job(1), attempt: 1, cause, grace_ms: 30, at: Timestamp(150) };
    writer.append(&[submit(1, "red", 2), placed(job(1), 1, "n1", &[0, 1]), stopping]);
    // It was ordered to stop before its start was reported; the late report sets the start time, not the phase.
    writer.append(&[started(job(1), 1, "n1")]);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.state, row.phase.as_str(), row.started_at), (JobState::Running, "Stopping", Some(200)));
    let attempt = &writer.store.tables.attempts(job(1)).unwrap()[0];
    assert_eq!((attempt.state.as_str(), attempt.stopping_at), ("Stopping", Some(150)));
    assert!(attempt.stop_cause.as_deref().unwrap().contains("job-9"));

    let next = NextPhase::Held { by: "ada".to_string(), why: "too many comebacks".to_string() };
    let exit = Exit::Signal { signal: 9 };
    let Event::AttemptEnded { charge, at, .. } = done(job(1), 1) else { unreachable!() };
    let held = HeldResources { cpus: 4, memory_mib: 5_000, planned_ms: Some(1_800), cost_per_hour_micro: 20 };
    writer.append(&[Event::AttemptEnded {
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
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str(), row.signal), ("Held", "too many comebacks", Some(9)));
    assert_eq!(database.sql("SELECT held_by FROM jobs"), "ada");
    let attempt = &writer.store.tables.attempts(job(1)).unwrap()[0];
    assert_eq!((attempt.exit.as_deref(), attempt.signal, attempt.exit_code), (Some("signal"), Some(9), None));
    assert_eq!((attempt.cpus, attempt.memory_mib), (Some(4), Some(5_000)));
    assert_eq!((attempt.planned_ms, attempt.cost_per_hour_micro), (Some(1_800), Some(20)));
}

fn a_declared_node_registers_and_keeps_its_labels(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let Event::NodeRegistered { facts, .. } = node("n9", 2) else { unreachable!() };
    let (n9, by, at) = (|| "n9".parse().unwrap(), "ada".to_string(), Timestamp(5));
    let labels = Some(BTreeMap::from([("zone".to_string(), "b".to_string())]));
    writer.append(&[
        Event::NodeDeclared { node: n9(), facts, by: by.clone(), at },
        Event::NodeLabelled { node: n9(), labels, taints: None, by, at },
    ]);
    let declared_and_labels = "SELECT CAST(declared AS TEXT) || ' ' || labels FROM nodes WHERE id = 'n9'";
    let declared = database.sql(declared_and_labels);
    assert!(["1 {\"zone\":\"b\"}", "true {\"zone\":\"b\"}"].contains(&declared.as_str()), "{declared}");
    writer.append(&[node("n9", 2)]);
    let joined = database.sql(declared_and_labels);
    assert!(["0 {\"zone\":\"b\"}", "false {\"zone\":\"b\"}"].contains(&joined.as_str()), "{joined}");
}

fn a_held_job_is_released(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 1)]);
    writer.append(&[Event::JobHeld { job: job(1), by: "ada".into(), why: "wait".into(), at: Timestamp(1) }]);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str()), ("Held", "wait"));
    writer.append(&[Event::JobReleased { job: job(1), by: "ada".into(), at: Timestamp(2) }]);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.phase.as_str(), row.why.as_str()), ("Queued", ""));
}

fn a_changed_array_task_does_not_copy_the_spec(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit_array(1, "red", 3)]);
    let task = JobId::of_array(1, 1);
    let change = JobChange {
        name: Some("renamed".to_string()),
        priority: Some(900),
        time_limit_ms: Some(None),
        labels: Some(BTreeMap::from([("a".to_string(), "b".to_string())])),
    };
    writer.append(&[Event::JobChanged { job: task, change, at: Timestamp(5) }]);
    let detail = writer.store.tables.job(task).unwrap().unwrap();
    assert_eq!((detail.spec.name.as_str(), detail.spec.priority, detail.spec.time_limit_ms), ("renamed", 900, None));
    assert_eq!(detail.spec.labels["a"], "b");
    let other = writer.store.tables.job(JobId::of_array(1, 2)).unwrap().unwrap();
    assert_eq!((other.spec.name.as_str(), other.spec.time_limit_ms), ("train-1", Some(60_000)));
    // A field that is not set stays unchanged.
    let change = JobChange { priority: Some(7), ..JobChange::default() };
    writer.append(&[Event::JobChanged { job: task, change, at: Timestamp(6) }]);
    let row = writer.store.tables.job(task).unwrap().unwrap().row;
    assert_eq!((row.name.as_str(), row.priority, row.time_limit_ms), ("renamed", 7, None));
    assert_eq!(database.sql("SELECT count(*) FROM specs"), "1");
}

fn tasks_of_an_array_share_a_spec(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit_array(1, "red", 50), submit(2, "red", 1)]);
    assert_eq!(database.sql("SELECT count(*) FROM specs"), "2");
    assert_eq!(database.sql("SELECT count(*) FROM jobs"), "51");
    let task = JobId::of_array(1, 49);
    assert_eq!(writer.store.tables.job(task).unwrap().unwrap().row.id, task);
    assert!(writer.store.tables.job(job(1)).unwrap().is_none(), "an array is not a job");
}

fn outcomes_of_jobs_and_arrays(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 1), submit(2, "red", 1), submit(3, "red", 1), submit(4, "red", 1)]);
    writer.append(&[submit_array(5, "red", 2), submit_array(6, "red", 2), submit_array(7, "red", 1)]);
    let task = JobId::of_array;
    let run = |id: JobId, end: fn(JobId, u32) -> Event| [placed(id, 1, "n1", &[0]), end(id, 1)];
    for pair in [run(job(1), done), run(job(2), failed), run(task(5, 0), done), run(task(5, 1), done)] {
        writer.append(&pair);
    }
    writer.append(&[cancelled(job(3)), cancelled(task(6, 0)), cancelled(task(7, 0))]);
    let ids = [1, 2, 3, 4, 5, 6, 7, 8].map(job).into_iter().chain([task(6, 0), task(6, 1), task(5, 1)]);
    let outcomes = writer.store.tables.outcomes(&ids.collect::<Vec<JobId>>()).unwrap();
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

fn events_are_filtered_by_job(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[
        submit_array(1, "red", 2),
        submit(2, "red", 1),
        cancelled(JobId::of_array(1, 0)),
        cancelled(job(2)),
    ]);
    let kinds = |after, limit, job| -> Vec<(u64, String)> {
        let rows = writer.store.tables.events(after, limit, job).unwrap();
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

fn allocations_are_attempts_with_leases(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 4), submit(2, "blue", 1), submit(3, "red", 0), submit(4, "red", 1)]);
    writer.append(&[gang(job(1), &[("n2", &[0, 1]), ("n1", &[5, 4])]), gang(job(2), &[("n1", &[0])])]);
    writer.append(&[gang(job(3), &[("n1", &[])]), gang(job(4), &[("n2", &[7])]), done(job(2), 1)]);
    let list = |filter: &AllocationFilter, page: &PageRequest<u64>| {
        let found = writer.store.tables.allocations(filter, page).unwrap();
        let jobs: Vec<u64> = found.rows.iter().map(|row| row.attempt.job.number).collect();
        (jobs, found.total, found.next)
    };
    let all = AllocationFilter::default();
    assert_eq!(list(&all, &PageRequest::first(10)), (vec![4, 3, 2, 1], 4, None));
    assert_eq!(list(&all, &PageRequest::first(2)), (vec![4, 3], 4, Some(11)));
    assert_eq!(list(&all, &PageRequest::after(11, 2)), (vec![2, 1], 4, Some(9)));
    let oldest = PageRequest { start: PageStart::Offset(1), limit: 2, order: PageOrder::OldestFirst };
    assert_eq!(list(&all, &oldest), (vec![2, 3], 4, Some(11)));
    let filter = |change: fn(&mut AllocationFilter)| {
        let mut filter = AllocationFilter::default();
        change(&mut filter);
        list(&filter, &PageRequest::first(10)).0
    };
    assert_eq!(filter(|filter| filter.tenants = Some(vec!["blue".to_string()])), vec![2]);
    assert_eq!(filter(|filter| filter.tenants = Some(Vec::new())), Vec::<u64>::new());
    assert_eq!(filter(|filter| filter.node = Some("n2".to_string())), vec![4, 1]);
    assert_eq!(filter(|filter| filter.live_only = true), vec![4, 3, 1]);
    assert_eq!(filter(|filter| filter.job = Some(job(3))), vec![3]);

    let found = writer.store.tables.allocations(&all, &PageRequest::first(10)).unwrap();
    let first = &found.rows[3];
    let leases: Vec<(u32, &str, u8)> =
        first.leases.iter().map(|lease| (lease.rank, lease.node.as_str(), lease.gpu)).collect();
    assert_eq!(leases, vec![(0, "n2", 0), (0, "n2", 1), (1, "n1", 4), (1, "n1", 5)]);
    assert_eq!((first.attempt.gpus, first.attempt.nodes.len(), first.attempt.tenant.as_str()), (4, 2, "red"));
    assert!(found.rows[1].leases.is_empty());
    assert_eq!(found.rows[2].leases[0].to_ms, Some(1_000));
    assert_eq!(found.rows[0].leases[0].to_ms, None);
}

fn a_lease_stores_its_slot_and_its_part_of_the_gpu(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submitted(1, shared_spec("red", 3, 250)), submit(2, "red", 1)]);
    let mig = ShareMode::Mig { profile: "2g.35gb".to_string(), start: 4 };
    let tasks = vec![
        placed_share(("n1", 3), (250, 300), ShareMode::Mps),
        placed_share(("n1", 3), (250, 400), ShareMode::TimeSlice),
        placed_share(("n1", 4), (250, 250), mig),
    ];
    writer.append(&[placed_tasks(job(1), 1, tasks), placed(job(2), 1, "n1", &[0])]);
    let found = writer.store.tables.allocations(&AllocationFilter::default(), &PageRequest::first(10)).unwrap();
    let leases = |at: usize| -> Vec<(u8, &str, u32, u32, Option<u64>)> {
        let held = found.rows[at].leases.iter();
        held.map(|one| (one.gpu, one.slot.as_str(), one.compute_milli, one.memory_milli, one.memory_mib)).collect()
    };
    assert_eq!(leases(0), vec![(0, "", 1_000, 1_000, None)]);
    let wanted = vec![
        (3, "mps", 250, 300, Some(42_900)),
        (3, "time-slice", 250, 400, Some(57_200)),
        (4, "mig:2g.35gb@4", 250, 250, Some(35_750)),
    ];
    assert_eq!(leases(1), wanted);
    let row = writer.store.tables.job(job(1)).unwrap().unwrap().row;
    assert_eq!((row.gpus, row.gpu_milli), (3, 750));
    assert_eq!(writer.store.tables.job(job(2)).unwrap().unwrap().row.gpu_milli, 1_000);
}

/// The processes ended at 1 s; the server received the report at 9 s.
fn usage_ends_with_the_processes_and_leases_end_with_the_report(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let mut end = done(job(1), 1);
    if let Event::AttemptEnded { at, charged_until, .. } = &mut end {
        (*at, *charged_until) = (Timestamp(9_000), Some(Timestamp(1_000)));
    }
    writer.append(&[submit(1, "red", 1), placed(job(1), 1, "n1", &[0]), end]);
    let attempts = "SELECT charged_until || ' ' || ended_at FROM attempts";
    assert_eq!(database.sql(attempts), "1000 9000");
    assert_eq!(database.sql("SELECT to_ms FROM leases"), "9000");
    assert_eq!(database.sql("SELECT to_ms FROM usage"), "1000");
    let attempts = writer.store.tables.attempts(job(1)).unwrap();
    assert_eq!(attempts[0].charged_until, Some(1_000));
}

fn usage_is_summed_by_tenant_user_and_job(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 1), submit(2, "red", 1), submit(3, "blue", 1)]);
    for number in 1..=3 {
        let mut end = done(job(number), 1);
        if let Event::AttemptEnded { at, .. } = &mut end {
            *at = Timestamp(1_000 * number as i64);
        }
        writer.append(&[placed(job(number), 1, "n1", &[0]), end]);
    }
    let usage = |from_ms, to_ms, tenants, by| {
        let span = UsageFilter { from_ms, to_ms, tenants };
        let rows = writer.store.tables.usage(&span, by).unwrap();
        rows.into_iter().map(|row| (row.key, row.attempts, row.gpu_ms)).collect::<Vec<_>>()
    };
    let row = |key: &str, attempts, gpu_ms| (key.to_string(), attempts, gpu_ms);
    assert_eq!(usage(0, 9_000, None, UsageGrouping::Tenant), vec![row("blue", 1, 900), row("red", 2, 1_800)]);
    assert_eq!(usage(0, 2_000, None, UsageGrouping::Tenant), vec![row("red", 1, 900)]);
    assert_eq!(usage(2_000, 3_001, None, UsageGrouping::User), vec![row("ada", 2, 1_800)]);
    let red = Some(vec!["red".to_string()]);
    assert_eq!(usage(0, 9_000, red, UsageGrouping::Job), vec![row("job-1", 1, 900), row("job-2", 1, 900)]);
    assert_eq!(usage(0, 9_000, Some(Vec::new()), UsageGrouping::Job), Vec::new());
    let span = UsageFilter { from_ms: 0, to_ms: 9_000, tenants: None };
    let whole = UsageRow {
        key: "ada".to_string(),
        attempts: 3,
        gpu_ms: 2_700,
        cpu_ms: 10_800,
        memory_gib_ms: 21_600,
        cost_micro: 15,
        energy_mj: 0,
    };
    assert_eq!(writer.store.tables.usage(&span, UsageGrouping::User).unwrap(), vec![whole]);
}

fn job_counts_match_the_jobs(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit_array(1, "red", 5), submit(2, "blue", 1), cancelled(JobId::of_array(1, 4))]);
    let task = JobId::of_array(1, 0);
    writer.append(&[placed(task, 1, "n1", &[0]), started(task, 1, "n1")]);
    let count = |tenant: &str, state, jobs| CountRow { tenant: tenant.to_string(), state, jobs };
    let wanted = vec![
        count("blue", JobState::Pending, 1),
        count("red", JobState::Cancelled, 1),
        count("red", JobState::Pending, 3),
        count("red", JobState::Running, 1),
    ];
    assert_eq!(writer.store.tables.job_counts().unwrap(), wanted);
}

fn audit_entries_are_listed_newest_first(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let act = |object: &str, refused: Option<&str>| Event::Acted {
        times: 1,
        by: "ada".to_string(),
        by_kind: Some("token".to_string()),
        act: "tenant.change".to_string(),
        object: object.to_string(),
        refused: refused.map(str::to_string),
        at: Timestamp(8),
    };
    writer.append(&[act("a", None), act("b", Some("unknown-tenant")), act("c", None)]);
    let page = writer.store.tables.audit(&PageRequest::first(2)).unwrap();
    assert_eq!((page.total, page.next), (3, Some(6)));
    let objects: Vec<&str> = page.rows.iter().map(|row| row.object.as_str()).collect();
    assert_eq!(objects, vec!["c", "b"]);
    assert_eq!(page.rows[1].refused.as_deref(), Some("unknown-tenant"));
    let rest = writer.store.tables.audit(&PageRequest::after(6, 2)).unwrap();
    assert_eq!((rest.rows.len(), rest.next, rest.rows[0].actor.as_str()), (1, None, "ada"));
    assert_eq!(rest.rows[0].actor_kind.as_deref(), Some("token"));
}

fn nodes_are_registered_changed_and_removed(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let n1 = || "n1".parse().unwrap();
    let gpu = muster_core::GpuId { node: n1(), index: 2 };
    let (why, cooling_until) = ("hot".to_string(), Some(Timestamp(99)));
    writer.append(&[Event::GpuHealthChanged {
        gpu,
        status: GpuStatus::Degraded,
        why,
        cooling_until,
        temperature_c: None,
        declared: None,
        reading: None,
        jobs: Vec::new(),
        at: Timestamp(5),
    }]);
    let (by, why) = ("ada".to_string(), "new fan".to_string());
    writer.append(&[Event::NodeStateChanged { node: n1(), status: NodeStatus::Draining, by, why, at: Timestamp(6) }]);
    let health = || database.sql("SELECT health FROM gpus WHERE node = 'n1' AND idx = 2");
    let state = || database.sql("SELECT state FROM nodes WHERE id = 'n1'");
    let present = || database.sql("SELECT count(*) FROM gpus WHERE node = 'n1' AND removed_at IS NULL");
    assert_eq!((health().as_str(), state().as_str(), present().as_str()), ("degraded", "Draining", "8"));
    // A new registration keeps health and state; GPUs that it does not list are removed.
    writer.append(&[node("n1", 4)]);
    assert_eq!((health().as_str(), state().as_str(), present().as_str()), ("degraded", "Draining", "4"));
    writer.append(&[node("n1", 2), node("n1", 4)]);
    assert_eq!((health().as_str(), present().as_str()), ("healthy", "4"));
    writer.append(&[Event::NodeRemoved { node: n1(), at: Timestamp(9) }]);
    assert_eq!((database.sql("SELECT removed_at FROM nodes WHERE id = 'n1'").as_str(), present().as_str()), ("9", "0"));
    writer.append(&[node("n1", 8)]);
    assert_eq!((state().as_str(), present().as_str()), ("Ready", "8"));
}

fn windows_open_and_close(database: &dyn TestDatabase) {
    let mut writer = begin(database);
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
    let close = || Event::WindowClosed { name: "repair".to_string(), why: "over".to_string(), at: Timestamp(21) };
    writer.append(&[open()]);
    assert!(writer.try_append(&[open()]).is_err(), "two windows of one name");
    assert_eq!(database.sql("SELECT nodes FROM windows WHERE tenant = 'red'"), r#"["n1","n2"]"#);
    writer.append(&[close(), open(), close()]);
    assert!(writer.try_append(&[close()]).is_err(), "no window to close");
    assert_eq!(database.sql("SELECT count(*) FROM windows WHERE closed_at = 21 AND closed_why = 'over'"), "2");
}

/// The last reasons before the time span apply at its beginning; other buckets are ignored.
fn waits_are_read_by_bucket_and_time(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let note = |bucket: &str, job: u64, at: i64| {
        let reasons = vec![Reason::Reservation { job: JobId::single(job), claimed: false }];
        Event::WaitNoted { bucket: bucket.to_string(), reasons, at: Timestamp(at) }
    };
    writer.append(&[note("a", 1, 10), note("a", 2, 20), note("b", 3, 25), note("a", 4, 30), note("a", 5, 40)]);
    let read = |buckets: &[&str], from, to| -> Vec<i64> {
        let buckets: Vec<String> = buckets.iter().map(|bucket| bucket.to_string()).collect();
        writer.store.tables.wait_reasons(&buckets, from, to).unwrap().iter().map(|row| row.at_ms).collect()
    };
    assert_eq!(read(&["a"], 22, 40), [20, 30]);
    assert_eq!(read(&["a"], 5, 15), [10]);
    assert_eq!(read(&["a", "b"], 22, 30), [20, 25]);
    assert_eq!(read(&["c"], 0, 100), [0i64; 0]);
    assert_eq!(
        database.sql("SELECT reasons FROM waits WHERE bucket = 'b'"),
        r#"[{"reason":"Reservation","job":"job-3"}]"#
    );
}

fn claims_begin_and_end(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[submit(1, "red", 2)]);
    let claim = || Event::ClaimMade {
        job: job(1),
        tasks: ["n1", "n2"].map(|node| placed_task(node, &[0, 1])).to_vec(),
        victims: vec![job(9)],
        at: Timestamp(5),
        until: Timestamp(50),
    };
    writer.append(&[claim()]);
    assert!(writer.try_append(&[claim()]).is_err(), "two claims of one job");
    assert_eq!(database.sql("SELECT victims FROM claims"), r#"["job-9"]"#);
    assert_eq!(database.sql("SELECT node FROM claims"), "n1, n2");
    let gpus = r#"["n1/gpu-0","n1/gpu-1","n2/gpu-0","n2/gpu-1"]"#;
    assert_eq!(database.sql("SELECT gpus FROM claims"), gpus);
    let end = || Event::ClaimEnded { job: job(1), why: "started".to_string(), at: Timestamp(9) };
    writer.append(&[end(), claim(), end()]);
    assert!(writer.try_append(&[end()]).is_err(), "no claim to end");
    assert_eq!(database.sql("SELECT count(*) FROM claims WHERE ended_at = 9"), "2");
}

fn tokens_keep_only_the_hash(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    writer.append(&[token("t-1"), Event::TokenRevoked { id: "t-1".into(), at: Timestamp(9) }]);
    assert_eq!(database.sql("SELECT revoked_at FROM tokens WHERE id = 't-1'"), "9");
    assert_eq!(database.sql("SELECT length(hash) FROM tokens"), "64");
    assert_eq!(database.sql("SELECT role FROM tokens"), "member");
}

fn policy_versions_are_stored_with_author_and_reason(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let applied = |number, source: &str| {
        let files = [("a.gsky".to_string(), source.to_string())].into();
        let bundle = PolicyBundle { hash: format!("h{number}"), files, ..PolicyBundle::default() };
        let (scope, by, why) = (PolicyScope::Cluster, "ada".to_string(), "nights".to_string());
        let version = BundleVersion { number, scope, bundle: bundle.into(), by, why, at: Timestamp(9) };
        Event::PolicyApplied { version: Box::new(version) }
    };
    writer.append(&[applied(1, "x = 1"), applied(2, "x = 2")]);
    let newest = "FROM policies WHERE version = 2";
    assert_eq!(database.sql(&format!("SELECT scope {newest}")), "cluster");
    assert_eq!(database.sql(&format!("SELECT files {newest}")), r#"{"a.gsky":"x = 2"}"#);
    assert_eq!(database.sql(&format!("SELECT applied_by {newest}")), "ada");
    assert_eq!(database.sql("SELECT count(*) FROM policies WHERE why = 'nights' AND applied_at = 9"), "2");
}

fn settings_are_kept(database: &dyn TestDatabase) {
    let mut writer = begin(database);
    let settings = |priority| {
        let settings = muster_core::Settings { default_priority: priority, ..Default::default() };
        Event::Configured { settings: Box::new(settings), at: Timestamp(5) }
    };
    writer.append(&[settings(7), settings(8)]);
    assert!(database.sql("SELECT value FROM settings WHERE name = 'cluster'").contains("\"default_priority\":8"));
}
