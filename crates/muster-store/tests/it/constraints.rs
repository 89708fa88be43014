//! What the tables refuse even if the engine does not.

use muster_core::Event;
use muster_core::Timestamp;
use muster_core::event::{Back, Next};
use muster_core::share::ShareMode;
use muster_store::StoreError;

use crate::bench::Bench;
use crate::story::*;

contract!(
    a_gpu_has_one_holder,
    a_freed_gpu_may_be_given_out_again,
    two_holders_in_one_run_are_noticed,
    shares_of_a_gpu_never_exceed_it,
    parts_that_fit_share_a_gpu,
    parts_never_exceed_the_compute_of_a_gpu,
    parts_never_exceed_the_memory_of_a_gpu,
    parts_of_one_run_are_added_up,
    nothing_fits_beside_a_whole_gpu,
    an_instance_has_one_holder,
    seven_sevenths_are_one,
    tasks_of_a_gang_share_a_gpu,
    a_quota_counts_parts,
    the_highest_quota_is_a_quota,
    a_quota_cannot_be_passed,
    a_quota_counts_a_whole_run,
    a_lowered_quota_breaks_nothing_and_sinks,
    a_lifted_quota_is_no_limit,
    a_job_has_one_live_attempt,
    a_job_is_placed_from_the_queue_only,
    an_ended_job_never_changes,
    a_job_needs_its_tenant,
    a_gpu_must_exist,
    an_attempt_is_charged_once,
    a_busy_tenant_cannot_be_deleted,
    a_token_cannot_be_added_twice,
);

fn begin(bench: &dyn Bench, quota: Option<u64>) -> Book {
    let mut book = Book::lead(bench.open());
    let jobs = (1..=6).map(|number| submit(number, "red", 2));
    let events: Vec<Event> = [tenant("red", quota), node("n1", 8)].into_iter().chain(jobs).collect();
    book.add(&events);
    book
}

#[track_caller]
fn refused(book: &mut Book, events: &[Event], word: &str) {
    let error = book.try_add(events).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
    assert!(error.to_string().contains(word), "{error}");
    assert!(!error.heals_by_reload());
}

fn place(number: u64, gpus: &[u8]) -> Event {
    placed(job(number), 1, "n1", gpus)
}

fn a_gpu_has_one_holder(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    book.add(&[place(1, &[0, 1])]);
    refused(&mut book, &[place(2, &[1, 2])], "add a lease");
    book.add(&[place(2, &[2, 3])]);
}

fn a_freed_gpu_may_be_given_out_again(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    // All in one batch: the lease must end before the next one begins.
    book.add(&[place(1, &[0, 1]), done(job(1), 1), place(2, &[0, 1]), done(job(2), 1), place(3, &[0, 1])]);
    assert_eq!(bench.sql("SELECT count(*) FROM leases WHERE to_ms IS NULL"), "2");
    assert_eq!(bench.sql("SELECT sum(used_milli) FROM gpus"), "2000");
}

fn two_holders_in_one_run_are_noticed(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    refused(&mut book, &[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[3, 4])], "lease");
}

/// The unique index would notice it too, so it is taken away here.
fn shares_of_a_gpu_never_exceed_it(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    bench.sql("DROP INDEX leases_live");
    book.add(&[place(1, &[0, 1])]);
    refused(&mut book, &[place(2, &[1, 2])], "take a GPU");
}

const MPS: ShareMode = ShareMode::Mps;

/// Jobs that ask for half a GPU each, on a node with two.
fn begin_shared(bench: &dyn Bench, quota: Option<u64>) -> Book {
    let mut book = Book::lead(bench.open());
    let jobs = (1..=6).map(|number| submitted(number, shared_spec("red", 1, 500)));
    book.add(&[tenant("red", quota), node("n1", 2)].into_iter().chain(jobs).collect::<Vec<Event>>());
    book
}

/// A job gets these thousandths of the compute and the memory of a GPU.
fn place_on(gpu: u8, number: u64, thousandths: (u32, u32)) -> Event {
    placed_tasks(job(number), 1, vec![part(("n1", gpu), thousandths, MPS)])
}

/// And here of the first one.
fn place_part(number: u64, thousandths: (u32, u32)) -> Event {
    place_on(0, number, thousandths)
}

fn used(bench: &dyn Bench) -> (String, String) {
    let of = |column: &str| bench.sql(&format!("SELECT {column} FROM gpus WHERE node = 'n1' AND idx = 0"));
    (of("used_milli"), of("used_memory_milli"))
}

fn parts_that_fit_share_a_gpu(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    book.add(&[place_part(1, (500, 100))]);
    book.add(&[place_part(2, (300, 600)), place_part(3, (200, 300))]);
    assert_eq!(used(bench), ("1000".to_string(), "1000".to_string()));
    book.add(&[done(job(2), 1), done(job(3), 1), place_part(4, (400, 900))]);
    assert_eq!(used(bench), ("900".to_string(), "1000".to_string()));
    book.add(&[done(job(1), 1), done(job(4), 1)]);
    assert_eq!(used(bench), ("0".to_string(), "0".to_string()));
}

fn parts_never_exceed_the_compute_of_a_gpu(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    book.add(&[place_part(1, (500, 100))]);
    refused(&mut book, &[place_part(2, (501, 100))], "take a GPU");
    book.add(&[place_part(2, (500, 100))]);
}

fn parts_never_exceed_the_memory_of_a_gpu(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    book.add(&[place_part(1, (100, 500))]);
    refused(&mut book, &[place_part(2, (100, 501))], "take a GPU");
    book.add(&[place_part(2, (100, 500))]);
}

fn parts_of_one_run_are_added_up(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    let run = [place_part(1, (400, 300)), place_part(2, (400, 300)), place_part(3, (400, 300))];
    refused(&mut book, &run, "take a GPU");
    book.add(&run[..2]);
    assert_eq!(used(bench), ("800".to_string(), "600".to_string()));
}

fn nothing_fits_beside_a_whole_gpu(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    book.add(&[place(1, &[0]), place_on(1, 2, (21, 1))]);
    refused(&mut book, &[place_part(3, (21, 1))], "take a GPU");
    refused(&mut book, &[place(3, &[1])], "take a GPU");
    refused(&mut book, &[done(job(1), 1), place(3, &[0]), place_part(4, (21, 1))], "take a GPU");
    book.add(&[done(job(1), 1), place_part(3, (21, 1)), done(job(2), 1), place(4, &[1])]);
}

fn an_instance_has_one_holder(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    let instance = |number, gpu, start| {
        let mode = ShareMode::Mig { profile: "1g.18gb".to_string(), start };
        placed_tasks(job(number), 1, vec![part(("n1", gpu), (142, 125), mode)])
    };
    book.add(&[instance(1, 0, 0), instance(2, 0, 1), instance(3, 1, 0)]);
    refused(&mut book, &[instance(4, 0, 1)], "add a lease");
    refused(&mut book, &[instance(4, 1, 1), instance(5, 1, 1)], "add a lease");
    book.add(&[done(job(2), 1), instance(4, 0, 1)]);
}

/// Each is rounded up to 143 thousandths, and all of them fit.
fn seven_sevenths_are_one(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    book.add(&[submitted(7, shared_spec("red", 7, 143))]);
    let seventh = |start: u8| {
        let mode = ShareMode::Mig { profile: "1g.18gb".to_string(), start };
        part(("n1", 0), (143, 143), mode)
    };
    book.add(&[placed_tasks(job(7), 1, (0..7).map(seventh).collect())]);
    refused(&mut book, &[place(1, &[0])], "take a GPU");
    book.add(&[done(job(7), 1)]);
    assert_eq!(used(bench), ("0".to_string(), "0".to_string()));
}

fn tasks_of_a_gang_share_a_gpu(bench: &dyn Bench) {
    let mut book = begin_shared(bench, None);
    let gang = |each: &[u32]| {
        let tasks = each.iter().map(|milli| part(("n1", 0), (*milli, *milli), MPS));
        placed_tasks(job(7), 1, tasks.collect())
    };
    book.add(&[submitted(7, shared_spec("red", 3, 300))]);
    refused(&mut book, &[gang(&[400, 300, 400])], "take a GPU");
    book.add(&[gang(&[300, 300, 300])]);
    assert_eq!(bench.sql("SELECT count(*) FROM leases WHERE number = 7 AND to_ms IS NULL"), "3");
    assert_eq!(used(bench), ("900".to_string(), "900".to_string()));
    book.add(&[done(job(7), 1)]);
    assert_eq!(used(bench), ("0".to_string(), "0".to_string()));
}

fn a_quota_counts_parts(bench: &dyn Bench) {
    let mut book = begin_shared(bench, Some(1));
    let of = |column: &str| bench.sql(&format!("SELECT {column} FROM tenants WHERE id = 'red'"));
    book.add(&[place_part(1, (500, 500))]);
    assert_eq!((of("gpu_milli_used"), of("gpu_milli_ceiling")), ("500".to_string(), "1000".to_string()));
    book.add(&[place_part(2, (500, 500))]);
    refused(&mut book, &[place_on(1, 3, (500, 500))], "quota");
    book.add(&[done(job(1), 1), place_part(3, (500, 500))]);
    assert_eq!(of("gpu_milli_used"), "1000");
}

/// Someone's way to say "as many as there are"; its thousandths are more than a table can hold.
fn the_highest_quota_is_a_quota(bench: &dyn Bench) {
    let mut book = begin_shared(bench, Some(u64::MAX));
    book.add(&[tenant_changed("red", Some(u64::MAX / 2)), place_part(1, (500, 500)), done(job(1), 1)]);
    assert_eq!(bench.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "0");
}

fn a_quota_cannot_be_passed(bench: &dyn Bench) {
    let mut book = begin(bench, Some(4));
    book.add(&[place(1, &[0, 1]), place(2, &[2, 3])]);
    refused(&mut book, &[place(3, &[4, 5])], "quota");
    book.add(&[done(job(1), 1), place(3, &[4, 5])]);
}

fn a_quota_counts_a_whole_run(bench: &dyn Bench) {
    let mut book = begin(bench, Some(4));
    refused(&mut book, &[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[4, 5])], "quota");
}

fn a_lowered_quota_breaks_nothing_and_sinks(bench: &dyn Bench) {
    let mut book = begin(bench, Some(8));
    book.add(&[place(1, &[0, 1]), place(2, &[2, 3]), place(3, &[4, 5])]);
    book.add(&[tenant_changed("red", Some(1))]);
    let ceiling = || bench.sql("SELECT gpu_milli_ceiling FROM tenants WHERE id = 'red'");
    assert_eq!(ceiling(), "6000");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
    book.add(&[done(job(1), 1)]);
    assert_eq!(ceiling(), "4000");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
    book.add(&[done(job(2), 1), done(job(3), 1)]);
    assert_eq!(ceiling(), "1000");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
}

fn a_lifted_quota_is_no_limit(bench: &dyn Bench) {
    let mut book = begin(bench, Some(2));
    book.add(&[place(1, &[0, 1]), tenant_changed("red", None), place(2, &[2, 3]), place(3, &[4, 5])]);
    book.add(&[done(job(1), 1), done(job(2), 1)]);
    assert_eq!(bench.sql("SELECT gpu_milli_ceiling FROM tenants WHERE id = 'red'"), "");
    assert_eq!(bench.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "2000");
}

fn a_job_has_one_live_attempt(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    book.add(&[place(1, &[0, 1])]);
    refused(&mut book, &[placed(job(1), 2, "n1", &[2, 3])], "attempt");
}

fn a_job_is_placed_from_the_queue_only(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    let held = Event::JobHeld { job: job(1), by: "ada".into(), why: "lunch".into(), at: Timestamp(1) };
    book.add(&[held]);
    refused(&mut book, &[place(1, &[0, 1])], "place a queued job");
    refused(&mut book, &[started(job(2), 1, "n1")], "start");
    refused(&mut book, &[done(job(2), 1)], "entry 10");
}

fn an_ended_job_never_changes(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    book.add(&[place(1, &[0, 1]), done(job(1), 1), cancelled(job(2))]);
    refused(&mut book, &[placed(job(1), 2, "n1", &[0, 1])], "place a queued job");
    refused(&mut book, &[cancelled(job(2))], "end a waiting job");
    let woken = Event::JobWoken { job: job(2), at: Timestamp(1) };
    refused(&mut book, &[woken], "ended job");
}

fn a_job_needs_its_tenant(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    refused(&mut book, &[submit(7, "blue", 1)], "add a job");
    refused(&mut book, &[submit(7, "red", 1), submit(8, "blue", 1)], "add a job");
    book.add(&[tenant("blue", None), submit(7, "blue", 1), cancelled(job(7))]);
    book.add(&[Event::TenantDeleted { id: "blue".parse().unwrap(), at: Timestamp(9) }]);
    refused(&mut book, &[submit(8, "blue", 1)], "add a job");
    // History stays.
    assert_eq!(bench.sql("SELECT count(*) FROM jobs WHERE tenant = 'blue'"), "1");
    book.add(&[tenant("blue", None), submit(8, "blue", 1)]);
}

fn a_gpu_must_exist(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    refused(&mut book, &[place(1, &[7, 8])], "add a lease");
    refused(&mut book, &[placed(job(1), 1, "n2", &[0, 1])], "add a lease");
}

fn an_attempt_is_charged_once(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    let again = |attempt| {
        let next = Next::Queued { because: Back::Requeued, wakes_at: None };
        attempt_ended(job(1), attempt, 1, next)
    };
    book.add(&[place(1, &[0, 1]), again(1), placed(job(1), 2, "n1", &[0, 1])]);
    refused(&mut book, &[again(1)], "charge an attempt");
    book.add(&[again(2)]);
    assert_eq!(bench.sql("SELECT gpu_ms FROM jobs WHERE number = 1"), "1800");
    assert_eq!(bench.sql("SELECT count(*) FROM usage"), "2");
}

fn a_busy_tenant_cannot_be_deleted(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    book.add(&[place(1, &[0, 1])]);
    refused(
        &mut book,
        &[Event::TenantDeleted { id: "red".parse().unwrap(), at: Timestamp(9) }],
        "delete a tenant",
    );
    refused(&mut book, &[tenant("red", None)], "create a tenant");
}

fn a_token_cannot_be_added_twice(bench: &dyn Bench) {
    let mut book = begin(bench, None);
    let add = || token("t-1");
    book.add(&[add()]);
    refused(&mut book, &[add()], "add a token");
    let revoke = || Event::TokenRevoked { id: "t-1".into(), at: Timestamp(9) };
    book.add(&[revoke()]);
    refused(&mut book, &[revoke()], "revoke a token");
    book.add(&[add()]);
}
