//! Constraints of the database: what the tables refuse even if the engine does not.

use muster_core::facts::event::{NextPhase, RequeueCause};
use muster_core::gpu::gpu_share::ShareMode;
use muster_core::{Event, Timestamp};
use muster_store::StoreError;

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    a_gpu_has_one_holder,
    a_freed_gpu_may_be_given_out_again,
    two_holders_of_a_gpu_in_one_batch_are_refused,
    gpu_usage_never_exceeds_the_device_without_the_unique_index,
    gpu_shares_that_fit_are_accepted,
    gpu_shares_never_exceed_the_compute_of_a_gpu,
    gpu_shares_never_exceed_the_memory_of_a_gpu,
    gpu_shares_of_one_batch_are_summed,
    nothing_fits_beside_a_whole_gpu,
    a_mig_instance_has_one_holder,
    seven_mig_instances_fit_although_each_is_rounded_up,
    tasks_of_a_gang_share_a_gpu,
    a_quota_counts_gpu_shares,
    a_quota_of_u64_max_does_not_overflow,
    a_quota_is_never_exceeded,
    a_quota_counts_every_placement_of_a_batch,
    a_quota_below_current_usage_blocks_placements_and_takes_effect_as_jobs_end,
    a_removed_quota_is_unlimited,
    a_job_has_one_live_attempt,
    a_master_port_has_one_holder,
    a_job_is_placed_from_the_queue_only,
    an_ended_job_never_changes,
    a_job_needs_its_tenant,
    a_gpu_must_exist,
    an_attempt_is_charged_once,
    a_busy_tenant_cannot_be_deleted,
    a_token_cannot_be_added_twice,
);

fn begin(database: &dyn TestDatabase, quota: Option<u64>) -> JournalWriter {
    let mut writer = JournalWriter::lead(database.open());
    let jobs = (1..=6).map(|number| submit(number, "red", 2));
    let events: Vec<Event> = [tenant("red", quota), node("n1", 8)].into_iter().chain(jobs).collect();
    writer.append(&events);
    writer
}

#[track_caller]
fn assert_refused(writer: &mut JournalWriter, events: &[Event], part: &str) {
    let error = writer.try_append(events).unwrap_err();
    assert!(matches!(error, StoreError::InvariantViolated { .. }), "{error}");
    assert!(error.to_string().contains(part), "{error}");
    assert!(!error.is_recoverable_by_reload());
}

fn place(number: u64, gpus: &[u8]) -> Event {
    placed(job(number), 1, "n1", gpus)
}

fn a_gpu_has_one_holder(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    writer.append(&[place(1, &[0, 1])]);
    assert_refused(&mut writer, &[place(2, &[1, 2])], "add a lease");
    writer.append(&[place(2, &[2, 3])]);
}

fn a_freed_gpu_may_be_given_out_again(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    // All in one batch: each lease must end before the next one begins.
    writer.append(&[place(1, &[0, 1]), done(job(1), 1), place(2, &[0, 1]), done(job(2), 1), place(3, &[0, 1])]);
    assert_eq!(database.sql("SELECT count(*) FROM leases WHERE to_ms IS NULL"), "2");
    assert_eq!(database.sql("SELECT sum(used_milli) FROM gpus"), "2000");
}

fn two_holders_of_a_gpu_in_one_batch_are_refused(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    assert_refused(&mut writer, &[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[3, 4])], "lease");
}

/// The unique index would refuse this too, so it is dropped.
fn gpu_usage_never_exceeds_the_device_without_the_unique_index(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    database.sql("DROP INDEX leases_live");
    writer.append(&[place(1, &[0, 1])]);
    assert_refused(&mut writer, &[place(2, &[1, 2])], "add to the usage of a GPU");
}

const MPS: ShareMode = ShareMode::Mps;

/// Jobs that ask for half a GPU each, on a node with two GPUs.
fn begin_shared(database: &dyn TestDatabase, quota: Option<u64>) -> JournalWriter {
    let mut writer = JournalWriter::lead(database.open());
    let jobs = (1..=6).map(|number| submitted(number, shared_spec("red", 1, 500)));
    writer.append(&[tenant("red", quota), node("n1", 2)].into_iter().chain(jobs).collect::<Vec<Event>>());
    writer
}

/// Place a job with these thousandths of compute and memory of a GPU.
fn place_share_on(gpu: u8, number: u64, thousandths: (u32, u32)) -> Event {
    placed_tasks(job(number), 1, vec![placed_share(("n1", gpu), thousandths, MPS)])
}

/// The same on GPU 0.
fn place_share(number: u64, thousandths: (u32, u32)) -> Event {
    place_share_on(0, number, thousandths)
}

fn used(database: &dyn TestDatabase) -> (String, String) {
    let of = |column: &str| database.sql(&format!("SELECT {column} FROM gpus WHERE node = 'n1' AND idx = 0"));
    (of("used_milli"), of("used_memory_milli"))
}

fn gpu_shares_that_fit_are_accepted(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    writer.append(&[place_share(1, (500, 100))]);
    writer.append(&[place_share(2, (300, 600)), place_share(3, (200, 300))]);
    assert_eq!(used(database), ("1000".to_string(), "1000".to_string()));
    writer.append(&[done(job(2), 1), done(job(3), 1), place_share(4, (400, 900))]);
    assert_eq!(used(database), ("900".to_string(), "1000".to_string()));
    writer.append(&[done(job(1), 1), done(job(4), 1)]);
    assert_eq!(used(database), ("0".to_string(), "0".to_string()));
}

fn gpu_shares_never_exceed_the_compute_of_a_gpu(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    writer.append(&[place_share(1, (500, 100))]);
    assert_refused(&mut writer, &[place_share(2, (501, 100))], "add to the usage of a GPU");
    writer.append(&[place_share(2, (500, 100))]);
}

fn gpu_shares_never_exceed_the_memory_of_a_gpu(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    writer.append(&[place_share(1, (100, 500))]);
    assert_refused(&mut writer, &[place_share(2, (100, 501))], "add to the usage of a GPU");
    writer.append(&[place_share(2, (100, 500))]);
}

fn gpu_shares_of_one_batch_are_summed(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    let run = [place_share(1, (400, 300)), place_share(2, (400, 300)), place_share(3, (400, 300))];
    assert_refused(&mut writer, &run, "add to the usage of a GPU");
    writer.append(&run[..2]);
    assert_eq!(used(database), ("800".to_string(), "600".to_string()));
}

fn nothing_fits_beside_a_whole_gpu(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    writer.append(&[place(1, &[0]), place_share_on(1, 2, (21, 1))]);
    assert_refused(&mut writer, &[place_share(3, (21, 1))], "add to the usage of a GPU");
    assert_refused(&mut writer, &[place(3, &[1])], "add to the usage of a GPU");
    assert_refused(
        &mut writer,
        &[done(job(1), 1), place(3, &[0]), place_share(4, (21, 1))],
        "add to the usage of a GPU",
    );
    writer.append(&[done(job(1), 1), place_share(3, (21, 1)), done(job(2), 1), place(4, &[1])]);
}

fn a_mig_instance_has_one_holder(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    let instance = |number, gpu, start| {
        let mode = ShareMode::Mig { profile: "1g.18gb".to_string(), start };
        placed_tasks(job(number), 1, vec![placed_share(("n1", gpu), (142, 125), mode)])
    };
    writer.append(&[instance(1, 0, 0), instance(2, 0, 1), instance(3, 1, 0)]);
    assert_refused(&mut writer, &[instance(4, 0, 1)], "add a lease");
    assert_refused(&mut writer, &[instance(4, 1, 1), instance(5, 1, 1)], "add a lease");
    writer.append(&[done(job(2), 1), instance(4, 0, 1)]);
}

/// One seventh is rounded up to 143 thousandths, and seven of them must fit.
fn seven_mig_instances_fit_although_each_is_rounded_up(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    writer.append(&[submitted(7, shared_spec("red", 7, 143))]);
    let seventh = |start: u8| {
        let mode = ShareMode::Mig { profile: "1g.18gb".to_string(), start };
        placed_share(("n1", 0), (143, 143), mode)
    };
    writer.append(&[placed_tasks(job(7), 1, (0..7).map(seventh).collect())]);
    assert_refused(&mut writer, &[place(1, &[0])], "add to the usage of a GPU");
    writer.append(&[done(job(7), 1)]);
    assert_eq!(used(database), ("0".to_string(), "0".to_string()));
}

fn tasks_of_a_gang_share_a_gpu(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, None);
    let gang = |each: &[u32]| {
        let tasks = each.iter().map(|milli| placed_share(("n1", 0), (*milli, *milli), MPS));
        placed_tasks(job(7), 1, tasks.collect())
    };
    writer.append(&[submitted(7, shared_spec("red", 3, 300))]);
    assert_refused(&mut writer, &[gang(&[400, 300, 400])], "add to the usage of a GPU");
    writer.append(&[gang(&[300, 300, 300])]);
    assert_eq!(database.sql("SELECT count(*) FROM leases WHERE number = 7 AND to_ms IS NULL"), "3");
    assert_eq!(used(database), ("900".to_string(), "900".to_string()));
    writer.append(&[done(job(7), 1)]);
    assert_eq!(used(database), ("0".to_string(), "0".to_string()));
}

fn a_quota_counts_gpu_shares(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, Some(1));
    let of = |column: &str| database.sql(&format!("SELECT {column} FROM tenants WHERE id = 'red'"));
    writer.append(&[place_share(1, (500, 500))]);
    assert_eq!((of("gpu_milli_used"), of("gpu_milli_ceiling")), ("500".to_string(), "1000".to_string()));
    writer.append(&[place_share(2, (500, 500))]);
    assert_refused(&mut writer, &[place_share_on(1, 3, (500, 500))], "quota");
    writer.append(&[done(job(1), 1), place_share(3, (500, 500))]);
    assert_eq!(of("gpu_milli_used"), "1000");
}

/// Some users write such a quota for "unlimited"; its thousandths exceed a database column.
fn a_quota_of_u64_max_does_not_overflow(database: &dyn TestDatabase) {
    let mut writer = begin_shared(database, Some(u64::MAX));
    writer.append(&[tenant_changed("red", Some(u64::MAX / 2)), place_share(1, (500, 500)), done(job(1), 1)]);
    assert_eq!(database.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "0");
}

fn a_quota_is_never_exceeded(database: &dyn TestDatabase) {
    let mut writer = begin(database, Some(4));
    writer.append(&[place(1, &[0, 1]), place(2, &[2, 3])]);
    assert_refused(&mut writer, &[place(3, &[4, 5])], "quota");
    writer.append(&[done(job(1), 1), place(3, &[4, 5])]);
}

fn a_quota_counts_every_placement_of_a_batch(database: &dyn TestDatabase) {
    let mut writer = begin(database, Some(4));
    assert_refused(&mut writer, &[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[4, 5])], "quota");
}

fn a_quota_below_current_usage_blocks_placements_and_takes_effect_as_jobs_end(database: &dyn TestDatabase) {
    let mut writer = begin(database, Some(8));
    writer.append(&[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[4, 5])]);
    writer.append(&[tenant_changed("red", Some(1))]);
    let ceiling = || database.sql("SELECT gpu_milli_ceiling FROM tenants WHERE id = 'red'");
    assert_eq!(ceiling(), "6000");
    assert_refused(&mut writer, &[place(4, &[6, 7])], "quota");
    writer.append(&[done(job(1), 1)]);
    assert_eq!(ceiling(), "4000");
    assert_refused(&mut writer, &[place(4, &[6, 7])], "quota");
    writer.append(&[done(job(2), 1), done(job(3), 1)]);
    assert_eq!(ceiling(), "1000");
    assert_refused(&mut writer, &[place(4, &[6, 7])], "quota");
}

fn a_removed_quota_is_unlimited(database: &dyn TestDatabase) {
    let mut writer = begin(database, Some(2));
    writer.append(&[place(1, &[0, 1]), tenant_changed("red", None), place(2, &[2, 3]), place(3, &[4, 5])]);
    writer.append(&[done(job(1), 1), done(job(2), 1)]);
    assert_eq!(database.sql("SELECT gpu_milli_ceiling FROM tenants WHERE id = 'red'"), "");
    assert_eq!(database.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "2000");
}

fn a_job_has_one_live_attempt(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    writer.append(&[place(1, &[0, 1])]);
    assert_refused(&mut writer, &[placed(job(1), 2, "n1", &[2, 3])], "attempt");
}

/// Also within a batch in which the former holder ends.
fn a_master_port_has_one_holder(database: &dyn TestDatabase) {
    let place = |number: u64, gpus: &[u8], port: u16| {
        let mut event = place(number, gpus);
        if let Event::JobPlaced { master_port, .. } = &mut event {
            *master_port = Some(port);
        }
        event
    };
    let mut writer = begin(database, None);
    writer.append(&[place(1, &[0, 1], 29_500), place(2, &[2, 3], 29_501)]);
    assert_refused(&mut writer, &[place(3, &[4, 5], 29_501)], "add an attempt");
    writer.append(&[done(job(2), 1), place(3, &[4, 5], 29_501)]);
    let live = "SELECT count(*) FROM attempts WHERE ended_at IS NULL AND master = 'n1' AND master_port >= 29500";
    assert_eq!(database.sql(live), "2");
}

fn a_job_is_placed_from_the_queue_only(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    let held = Event::JobHeld { job: job(1), by: "ada".into(), why: "lunch".into(), at: Timestamp(1) };
    writer.append(&[held]);
    assert_refused(&mut writer, &[place(1, &[0, 1])], "place a queued job");
    assert_refused(&mut writer, &[started(job(2), 1, "n1")], "start");
    assert_refused(&mut writer, &[done(job(2), 1)], "entry 10");
}

fn an_ended_job_never_changes(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    writer.append(&[place(1, &[0, 1]), done(job(1), 1), cancelled(job(2))]);
    assert_refused(&mut writer, &[placed(job(1), 2, "n1", &[0, 1])], "place a queued job");
    assert_refused(&mut writer, &[cancelled(job(2))], "end a waiting job");
    let woken = Event::JobWoken { job: job(2), at: Timestamp(1) };
    assert_refused(&mut writer, &[woken], "ended job");
}

fn a_job_needs_its_tenant(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    assert_refused(&mut writer, &[submit(7, "blue", 1)], "add a job");
    assert_refused(&mut writer, &[submit(7, "red", 1), submit(8, "blue", 1)], "add a job");
    writer.append(&[tenant("blue", None), submit(7, "blue", 1), cancelled(job(7))]);
    writer.append(&[Event::TenantDeleted { id: "blue".parse().unwrap(), at: Timestamp(9) }]);
    assert_refused(&mut writer, &[submit(8, "blue", 1)], "add a job");
    // History stays.
    assert_eq!(database.sql("SELECT count(*) FROM jobs WHERE tenant = 'blue'"), "1");
    writer.append(&[tenant("blue", None), submit(8, "blue", 1)]);
}

fn a_gpu_must_exist(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    assert_refused(&mut writer, &[place(1, &[7, 8])], "add a lease");
    assert_refused(&mut writer, &[placed(job(1), 1, "n2", &[0, 1])], "add a lease");
}

fn an_attempt_is_charged_once(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    let again = |attempt| {
        let next = NextPhase::Queued { cause: RequeueCause::Requeued, wakes_at: None };
        attempt_ended(job(1), attempt, 1, next)
    };
    writer.append(&[place(1, &[0, 1]), again(1), placed(job(1), 2, "n1", &[0, 1])]);
    assert_refused(&mut writer, &[again(1)], "charge an attempt");
    writer.append(&[again(2)]);
    assert_eq!(database.sql("SELECT gpu_ms FROM jobs WHERE number = 1"), "1800");
    assert_eq!(database.sql("SELECT count(*) FROM usage"), "2");
}

fn a_busy_tenant_cannot_be_deleted(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    writer.append(&[place(1, &[0, 1])]);
    assert_refused(
        &mut writer,
        &[Event::TenantDeleted { id: "red".parse().unwrap(), at: Timestamp(9) }],
        "delete a tenant",
    );
    assert_refused(&mut writer, &[tenant("red", None)], "create a tenant");
}

fn a_token_cannot_be_added_twice(database: &dyn TestDatabase) {
    let mut writer = begin(database, None);
    let add = || token("t-1");
    writer.append(&[add()]);
    assert_refused(&mut writer, &[add()], "add a token");
    let revoke = || Event::TokenRevoked { id: "t-1".into(), at: Timestamp(9) };
    writer.append(&[revoke()]);
    assert_refused(&mut writer, &[revoke()], "revoke a token");
    writer.append(&[add()]);
}
