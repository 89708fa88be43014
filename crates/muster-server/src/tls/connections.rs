//! How many connections may be open, in all and from one address, and which one gives way.
//!
//! A connection that has not sent a request yet costs its client nothing, so it has no claim to its place: when a bound is
//! reached the oldest such connection is closed for the new one. Only when all are in use a new one is refused. A few
//! places beyond the bound are for loopback, so that the administrator of this machine always gets in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

/// Descriptors that are enough for any site. Jobs started by this process inherit the limit, and some programs look at
/// each possible descriptor.
const DESCRIPTORS_MAX: u64 = 65_536;
/// Most connections by default.
const CONNECTIONS_MAX: u64 = 10_000;
/// Places beyond the bounds that only loopback may use.
const KEPT_FOR_LOOPBACK: usize = 16;

/// How many connections may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub all: usize,
    /// From one address.
    pub per_address: usize,
}

impl Bounds {
    /// The configured bounds; where there are none, as many as the descriptors of this process allow.
    pub fn new(all: Option<u32>, per_address: Option<u32>, descriptors: u64) -> Bounds {
        // A quarter of the descriptors is for the database, logs of jobs and agents.
        let usual = (descriptors - descriptors / 4).min(CONNECTIONS_MAX) as usize;
        let all = all.map_or(usual, |all| all as usize);
        let per_address = per_address.map_or((all / 4).max(1), |one| one as usize);
        Bounds { all, per_address }
    }
}

/// Let this process open as many descriptors as the system allows it. Returns how many.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(DESCRIPTORS_MAX);
    let wanted = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if wanted <= soft {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, soft, "the limit of open descriptors could not be raised");
            soft
        }
    }
}

/// The connections that are open. Cheap to clone.
#[derive(Clone)]
pub struct Connections {
    bounds: Bounds,
    open: Arc<Mutex<Open>>,
    refused: Arc<AtomicU64>,
}

#[derive(Default)]
struct Open {
    next: u64,
    all: usize,
    by_address: HashMap<IpAddr, OfAddress>,
    /// Those without a request so far, oldest first.
    silent: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

#[derive(Default)]
struct OfAddress {
    open: usize,
    silent: BTreeSet<u64>,
}

/// One open connection, until it is dropped.
pub struct Connection {
    number: u64,
    address: IpAddr,
    has_asked: AtomicBool,
    gives_way: Arc<Notify>,
    open: Arc<Mutex<Open>>,
}

impl Connections {
    /// None yet.
    pub fn new(bounds: Bounds) -> Connections {
        Connections { bounds, open: Arc::default(), refused: Arc::default() }
    }

    /// Take a place for a connection from an address; `None` if every place is in use.
    pub fn admit(&self, address: IpAddr) -> Option<Connection> {
        let address = address.to_canonical();
        let kept = if address.is_loopback() { KEPT_FOR_LOOPBACK } else { 0 };
        let mut open = lock(&self.open);
        let has_place = open.make_place_of(address, self.bounds.per_address + kept)
            && open.make_place(self.bounds.all + kept);
        if !has_place {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(open.add(address, self.open.clone()))
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        lock(&self.open).all
    }

    /// How many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Open {
    fn add(&mut self, address: IpAddr, open: Arc<Mutex<Open>>) -> Connection {
        let (number, gives_way) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        self.all += 1;
        let own = self.by_address.entry(address).or_default();
        own.open += 1;
        own.silent.insert(number);
        self.silent.insert(number, (address, gives_way.clone()));
        Connection { number, address, has_asked: AtomicBool::new(false), gives_way, open }
    }

    fn make_place_of(&mut self, address: IpAddr, most: usize) -> bool {
        let Some(own) = self.by_address.get(&address).filter(|own| own.open >= most) else { return true };
        let oldest = own.silent.first().copied();
        oldest.is_some_and(|number| self.close(number))
    }

    fn make_place(&mut self, most: usize) -> bool {
        if self.all < most {
            return true;
        }
        let oldest = self.silent.keys().next().copied();
        oldest.is_some_and(|number| self.close(number))
    }

    /// Close a silent connection. Its place is free at once.
    fn close(&mut self, number: u64) -> bool {
        let Some((_, gives_way)) = self.silent.get(&number) else { return false };
        gives_way.notify_one();
        self.end_silence(number);
        true
    }

    /// A connection that closes while it is silent gives its place back here, any other in `end`.
    fn end_silence(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.silent.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.silent.remove(&number);
        }
        self.end(address);
        true
    }

    fn end(&mut self, address: IpAddr) {
        self.all -= 1;
        if let Some(own) = self.by_address.get_mut(&address) {
            own.open -= 1;
            if own.open == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn ask(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.silent.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.silent.remove(&number);
        }
        true
    }
}

impl Connection {
    /// A request has come: the connection keeps its place from now on.
    pub fn asks(&self) {
        if !self.has_asked.load(Ordering::Relaxed) && lock(&self.open).ask(self.number) {
            self.has_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Wait until the connection is to be closed: another needs its place, or no request came in time.
    pub async fn closes(&self, without_request_after: Duration) {
        tokio::select! {
            () = self.gives_way.notified() => {}
            () = tokio::time::sleep(without_request_after) => {
                if self.has_asked.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        match self.has_asked.load(Ordering::Relaxed) {
            true => open.end(self.address),
            // One that gave way is no longer among the silent.
            false => drop(open.end_silence(self.number)),
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn admit(connections: &Connections, address: &str, times: usize) -> Vec<Connection> {
        (0..times).filter_map(|_| connections.admit(ip(address))).collect()
    }

    #[test]
    fn silent_connections_give_way_and_used_ones_do_not() {
        let connections = Connections::new(Bounds { all: 10, per_address: 4 });
        let silent = admit(&connections, "10.0.0.1", 1_100);
        assert_eq!((silent.len(), connections.open()), (1_100, 4), "each takes the place of the oldest");
        drop(silent);
        assert_eq!(connections.open(), 0);
        let used = admit(&connections, "10.0.0.1", 4);
        used.iter().for_each(Connection::asks);
        assert!(connections.admit(ip("10.0.0.1")).is_none());
        assert!(connections.admit(ip("10.0.0.2")).is_some(), "another address has its own");
        assert_eq!(connections.refused(), 1);
    }

    #[test]
    fn loopback_gets_in_when_all_places_are_in_use() {
        let connections = Connections::new(Bounds { all: 6, per_address: 3 });
        let (one, other) = (admit(&connections, "10.0.0.1", 3), admit(&connections, "10.0.0.2", 3));
        one.iter().chain(&other).for_each(Connection::asks);
        assert!(connections.admit(ip("10.0.0.3")).is_none());
        let local = admit(&connections, "127.0.0.1", KEPT_FOR_LOOPBACK);
        local.iter().for_each(Connection::asks);
        assert_eq!(local.len(), KEPT_FOR_LOOPBACK);
        assert!(connections.admit(ip("::ffff:127.0.0.1")).is_none());
    }

    #[test]
    fn a_place_is_given_back_once() {
        let connections = Connections::new(Bounds { all: 2, per_address: 2 });
        let first = admit(&connections, "10.0.0.1", 2);
        let second = admit(&connections, "10.0.0.1", 2);
        drop(first);
        assert_eq!(connections.open(), 2);
        second[0].asks();
        drop(second);
        assert_eq!(connections.open(), 0);
        assert!(lock(&connections.open).by_address.is_empty());
    }

    #[test]
    fn bounds_follow_the_descriptors() {
        assert_eq!(Bounds::new(None, None, 1_024), Bounds { all: 768, per_address: 192 });
        assert_eq!(Bounds::new(None, None, 1 << 20), Bounds { all: 10_000, per_address: 2_500 });
        assert_eq!(Bounds::new(Some(40), Some(7), 1_024), Bounds { all: 40, per_address: 7 });
        assert!(raise_descriptor_limit() >= 256);
    }
}
