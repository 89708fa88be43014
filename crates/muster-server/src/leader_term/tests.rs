//! Recovery that takes longer than the lease.

use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::Timestamp;
use muster_store::journal::EntryVisitor;
use muster_store::memory::{MemoryConnection, MemoryDatabase};
use muster_store::{Entry, Leadership};

use super::*;

/// The monotonic time in milliseconds; the wall clock is the same.
#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed) as i64)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A journal of which each entry takes a second to replay.
struct SlowJournal {
    connection: MemoryConnection,
    database: MemoryDatabase,
    clock: Arc<ManualClock>,
    /// Another server that tries to lead after each entry.
    other: MemoryConnection,
    other_leads: bool,
}

impl Journal for SlowJournal {
    fn acquire_leadership(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        self.connection.acquire_leadership(holder, lease_ms)
    }

    fn renew_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        self.connection.renew_lease(lease_ms)
    }

    fn resume_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        self.connection.resume_lease(lease_ms)
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        self.connection.resign()
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        self.connection.append(batch)
    }

    fn replay(&mut self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64, StoreError> {
        for entry in self.database.entries()?.into_iter().filter(|entry| entry.seq > after) {
            let now_ms = self.clock.0.fetch_add(1_000, Ordering::Relaxed) + 1_000;
            self.database.set_clock_ms(now_ms as i64);
            let attempted = self.other.acquire_leadership("other", 1_000)?;
            self.other_leads |= matches!(attempted, Leadership::Leading { .. });
            visit(entry)?;
        }
        Ok(self.database.len())
    }
}

fn slow_journal(database: &MemoryDatabase) -> (SlowJournal, Arc<dyn Clock>) {
    let clock = Arc::new(ManualClock::default());
    let (connection, other) = (database.connect(), database.connect());
    let journal =
        SlowJournal { connection, database: database.clone(), clock: clock.clone(), other, other_leads: false };
    (journal, clock)
}

fn recover(journal: &mut SlowJournal, clock: &Arc<dyn Clock>, database: &MemoryDatabase) -> LeaderTerm {
    let acquired = journal.acquire_leadership("a", LEADER_LEASE.as_millis() as i64).unwrap();
    let Leadership::Leading { epoch, nonce } = acquired else { panic!("{acquired:?}") };
    LeaderTerm::recover(journal, &database.connect(), clock, LeaderEpoch { epoch, nonce }, clock.elapsed()).unwrap()
}

#[test]
fn a_recovery_longer_than_the_lease_succeeds_and_keeps_the_lease_meanwhile() {
    let database = MemoryDatabase::default();
    let (mut journal, clock) = slow_journal(&database);
    let mut term = recover(&mut journal, &clock, &database);
    term.apply_initial_commands(&mut journal, &Settings::default(), None).unwrap();
    for index in 0..60 {
        let id = format!("t{index}").parse().unwrap();
        let config = Box::new(TenantConfig::unlimited("t"));
        let request = system_request(Command::CreateTenant { id, config });
        term.engine.process_requests(&mut journal, vec![request]).unwrap();
    }
    journal.resign().unwrap();
    assert!(database.len() >= 60);
    let before = clock.elapsed();
    let term = recover(&mut journal, &clock, &database);
    assert!(clock.elapsed() - before > 5 * LEADER_LEASE, "longer than the lease");
    assert!(!journal.other_leads, "a standby has taken over");
    assert_eq!(term.state().seq, database.len());
    assert_eq!(term.state().tenants.len(), 61);
    journal.renew_lease(1_000).unwrap();
}
