//! Workers for policies: one process for each tenant or bundle, and not too many of them.
//!
//! Who asks is never held up for long, whatever a policy does. A question has a clock, [`Confinement::call_time`]: one for
//! all files and calls of a tenant, one for each letter of a batch of the cluster's own. A process that is not there yet
//! is started beside, and waited for no longer than [`Patience::start`]; a bundle whose process was ended rests for a while,
//! each time longer, and is suspended where that happens again and again; and all tenants together have a share of the
//! time. Who is not asked for one of these reasons gets an error that says so, and the same one as long as nothing changes.

mod account;
mod seat;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::policy::Bundle;

use crate::bundle::hash_of;
use crate::calls::Calls;
use crate::error::PolicyError;
use crate::hooks::Caller;
use crate::plain::Plain;
use crate::testing::is_test;
use crate::worker::{Confinement, Launch, Loaded, Worker};
use seat::Seat;

/// A tenant that nobody asked for so long has no part of the time any more, and no process.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// How long those who ask put up with the policies of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patience {
    /// Processes at a time. Who was asked longest ago makes room.
    pub processes: usize,
    /// Of each span, so much for all tenants together. Each has an equal part of it.
    pub share: Duration,
    /// How long a span is.
    pub span: Duration,
    /// How long a tenant rests whose process was ended. Twice as long each time, up to 64 times.
    pub rest: Duration,
    /// How long a process is waited for that has to be started first; nothing for no longer than the question may take.
    pub start: Option<Duration>,
    /// Whether a question has one clock for all of its letters, or each letter its own.
    pub clock: Clock,
    /// When a bundle is suspended.
    pub suspend: Suspend,
}

/// What [`Confinement::call_time`] bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// A question, with all of its files and calls.
    OfQuestion,
    /// Each letter of a batch.
    OfLetter,
}

/// When a bundle is suspended: its worker was ended so often within a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspend {
    /// How often.
    pub ends: usize,
    /// How long the span is.
    pub span: Duration,
    /// How long a suspended bundle is not asked. Then one question tries it again.
    pub rest: Duration,
}

impl Default for Suspend {
    fn default() -> Suspend {
        Suspend { ends: 3, span: Duration::from_secs(600), rest: Duration::from_secs(60) }
    }
}

impl Suspend {
    /// The suspension in words that stay the same: an answer that differs would be put on record each time.
    fn told(&self, last: &PolicyError) -> PolicyError {
        let last = match last {
            PolicyError::Ended { what } => what.clone(),
            other => other.to_string(),
        };
        let (ends, minutes) = (self.ends, self.span.as_secs() / 60);
        let what = format!(
            "the bundle is suspended: its worker was ended {ends} times within {minutes} minutes, the last time {last}"
        );
        PolicyError::Ended { what }
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            processes: 8,
            share: Duration::from_millis(600),
            span: Duration::from_secs(3),
            rest: Duration::from_secs(1),
            start: None,
            clock: Clock::OfQuestion,
            suspend: Suspend::default(),
        }
    }
}

impl Patience {
    /// Of the cluster's own bundles: they have no share to keep to, and are asked in batches.
    pub fn of_cluster() -> Patience {
        let start = Some(Duration::from_secs(5));
        Patience { processes: 4, share: Duration::MAX, start, clock: Clock::OfLetter, ..Patience::default() }
    }

    /// Of those whom nobody waits for: each question is asked, as long as starting and answering take.
    pub fn endless() -> Patience {
        let long = Duration::from_secs(60);
        Patience { share: Duration::MAX, start: Some(long), ..Patience::default() }
    }
}

/// The processes for policies, of all tenants or of all bundles of the cluster.
#[derive(Debug)]
pub struct Workers {
    launch: Launch,
    confinement: Confinement,
    patience: Patience,
    /// By tenant. Whoever holds one may look at the others, but waits for none of them.
    seats: Mutex<BTreeMap<String, Arc<Mutex<Seat>>>>,
    /// Why each is suspended that is.
    suspended: Mutex<BTreeMap<String, String>>,
    /// One bundle is compiled at a time: compiling takes a process too.
    compiling: Mutex<()>,
}

impl Workers {
    /// None yet.
    pub fn new(launch: Launch, confinement: Confinement, patience: Patience) -> Workers {
        let (seats, suspended, compiling) = (Mutex::default(), Mutex::default(), Mutex::default());
        Workers { launch, confinement, patience, seats, suspended, compiling }
    }

    /// Compile files by name, in a process of its own that ends with it.
    pub fn compile(&self, files: BTreeMap<String, String>) -> Result<Bundle, PolicyError> {
        let hash = hash_of(&files);
        if files.is_empty() {
            return Ok(Bundle { hash, ..Bundle::default() });
        }
        let _one_at_a_time = lock(&self.compiling);
        let loaded = Worker::new(self.launch.clone(), self.confinement.clone()).load(&files)?;
        let Loaded { rules, hooks, mentions, .. } = loaded;
        Ok(Bundle { hash, files, rules, hooks, mentions })
    }

    /// Run the tests of files by name, in a process of its own that ends with it, and say which fail.
    pub fn test(&self, files: &BTreeMap<String, String>) -> Result<Vec<String>, PolicyError> {
        if !files.keys().any(|name| is_test(name)) {
            return Ok(Vec::new());
        }
        let _one_at_a_time = lock(&self.compiling);
        Worker::new(self.launch.clone(), self.confinement.clone()).test(files)
    }

    /// Ask the policies of a tenant.
    pub fn ask<T>(
        &self,
        tenant: &str,
        bundle: &Bundle,
        question: impl FnOnce(&Guest) -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let (seat, tenants) = self.seat(tenant);
        let mut seat = lock(&seat);
        let began = Instant::now();
        seat.serve(bundle, began);
        seat.account.may_ask(&self.patience, tenants, began)?;
        let answer = self.be_ready(&mut seat, bundle, began).and_then(|until| {
            let guest = Guest { seat: RefCell::new(&mut seat), until };
            question(&guest)
        });
        seat.settle(&self.patience, began, answer.as_ref().err());
        self.note_suspension(tenant, &seat);
        answer
    }

    /// Why a tenant or a bundle is suspended, if it is. Nobody waits for one that is being asked.
    pub fn suspended(&self, tenant: &str) -> Option<String> {
        lock(&self.suspended).get(tenant).cloned()
    }

    fn note_suspension(&self, tenant: &str, seat: &Seat) {
        let mut suspended = lock(&self.suspended);
        match seat.account.suspension() {
            Some(why) => drop(suspended.insert(tenant.to_string(), why.to_string())),
            None => drop(suspended.remove(tenant)),
        }
    }

    /// The processes there are now, by tenant.
    pub fn processes(&self) -> BTreeMap<String, u32> {
        let seats = lock(&self.seats).clone();
        let process = |(tenant, seat): (String, Arc<Mutex<Seat>>)| Some((tenant, lock(&seat).process_id()?));
        seats.into_iter().filter_map(process).collect()
    }

    /// Where a tenant sits, and how many there are.
    fn seat(&self, tenant: &str) -> (Arc<Mutex<Seat>>, u32) {
        let mut seats = lock(&self.seats);
        if !seats.contains_key(tenant) {
            let is_asked = |seat: &Mutex<Seat>| {
                seat.try_lock().map_or(true, |seat| seat.asked_at().is_none_or(|at| at.elapsed() < FORGOTTEN))
            };
            seats.retain(|_, seat| is_asked(seat));
            lock(&self.suspended).retain(|tenant, _| seats.contains_key(tenant));
        }
        let seat = seats.entry(tenant.to_string()).or_default().clone();
        (seat, u32::try_from(seats.len()).unwrap_or(u32::MAX))
    }

    /// Have a process with the bundle, started if there is none. Says until when it may answer, where the question has a
    /// clock of its own.
    fn be_ready(
        &self,
        seat: &mut Seat,
        bundle: &Bundle,
        began: Instant,
    ) -> Result<Option<Instant>, PolicyError> {
        if !seat.has_process() {
            self.make_room()?;
            seat.start(Worker::new(self.launch.clone(), self.confinement.clone()), bundle);
        }
        let Some(start) = self.patience.start else {
            let until = began + self.confinement.call_time;
            return seat.wait_until(until).map(|()| Some(until));
        };
        seat.wait_until(began + start)?;
        match self.patience.clock {
            Clock::OfQuestion => Ok(Some(Instant::now() + self.confinement.call_time)),
            Clock::OfLetter => Ok(None),
        }
    }

    /// End the process that was asked longest ago if there would be too many. One that is starting or at work is left
    /// alone, or whoever starts slowly could have any number of them.
    fn make_room(&self) -> Result<(), PolicyError> {
        let seats = lock(&self.seats).clone();
        // Who cannot be looked at is at work, as is the one that asks for room.
        let free: Vec<MutexGuard<Seat>> = seats.values().filter_map(|seat| seat.try_lock().ok()).collect();
        let at_work = seats.len() - free.len();
        let mut held: Vec<MutexGuard<Seat>> = free.into_iter().filter(|seat| seat.has_process()).collect();
        if at_work + held.len() <= self.patience.processes {
            return Ok(());
        }
        held.retain(|seat| seat.process_id().is_some());
        match held.iter_mut().min_by_key(|seat| seat.asked_at()) {
            Some(seat) => seat.leave(),
            None => return Err(no_answer("too many policies are at work; it is asked again")),
        }
        Ok(())
    }
}

/// The policies of a tenant while a question is asked.
#[derive(Debug)]
pub struct Guest<'a> {
    seat: RefCell<&'a mut Seat>,
    /// Nothing where each letter has a clock of its own.
    until: Option<Instant>,
}

impl Caller for Guest<'_> {
    fn files_with(&self, function: &str) -> Vec<String> {
        self.seat.borrow().files_with(function)
    }

    fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let within = self.until.map_or(Duration::MAX, left);
        self.seat.borrow_mut().call_each(file, function, calls, within)
    }
}

fn no_answer(what: &str) -> PolicyError {
    PolicyError::Ended { what: what.to_string() }
}

/// Nothing is left half done by one who panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
