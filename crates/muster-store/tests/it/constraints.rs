//! What the tables refuse even if the engine does not.

use muster_core::Event;
use muster_core::Timestamp;
use muster_core::event::{Back, Next};
use muster_store::StoreError;

use crate::bench::Bench;
use crate::story::*;

contract!(
    a_gpu_has_one_holder,
    a_freed_gpu_may_be_given_out_again,
    two_holders_in_one_run_are_noticed,
    shares_of_a_gpu_never_exceed_it,
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
    let ceiling = || bench.sql("SELECT gpus_ceiling FROM tenants WHERE id = 'red'");
    assert_eq!(ceiling(), "6");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
    book.add(&[done(job(1), 1)]);
    assert_eq!(ceiling(), "4");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
    book.add(&[done(job(2), 1), done(job(3), 1)]);
    assert_eq!(ceiling(), "1");
    refused(&mut book, &[place(4, &[6, 7])], "quota");
}

fn a_lifted_quota_is_no_limit(bench: &dyn Bench) {
    let mut book = begin(bench, Some(2));
    book.add(&[place(1, &[0, 1]), tenant_changed("red", None), place(2, &[2, 3]), place(3, &[4, 5])]);
    book.add(&[done(job(1), 1), done(job(2), 1)]);
    assert_eq!(bench.sql("SELECT gpus_ceiling FROM tenants WHERE id = 'red'"), "");
    assert_eq!(bench.sql("SELECT gpus_used FROM tenants WHERE id = 'red'"), "2");
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
    refused(&mut book, &[place(1, &[7, 8])], "take a GPU");
    refused(&mut book, &[placed(job(1), 1, "n2", &[0, 1])], "take a GPU");
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
