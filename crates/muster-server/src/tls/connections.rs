//! Limits on open connections, in total and per address, and which connection is closed at a limit.
//!
//! A connection without a request so far costs its client nothing, so it may be closed: when a limit is reached, the
//! oldest such connection is closed for the new one. Only if all connections are in use, the new one is refused. A few
//! connections beyond the limits are reserved for loopback, so that the administrator of this machine can always connect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

/// Most descriptors that the server requests. Jobs started by this process inherit the limit, and some programs visit
/// every possible descriptor.
const DESCRIPTORS_MAX: u64 = 65_536;
const DEFAULT_CONNECTIONS_MAX: u64 = 10_000;
/// Connections beyond the limits that only loopback may use.
const LOOPBACK_EXTRA_CONNECTIONS: usize = 16;

/// Most open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total_max: usize,
    pub per_address_max: usize,
}

impl ConnectionLimits {
    /// The configured limits; by default as many connections as the descriptor limit of this process allows.
    pub fn new(total_max: Option<u32>, per_address_max: Option<u32>, descriptors: u64) -> ConnectionLimits {
        // A quarter of the descriptors is for the database, logs of jobs and agents.
        let default = (descriptors - descriptors / 4).min(DEFAULT_CONNECTIONS_MAX) as usize;
        let total_max = total_max.map_or(default, |most| most as usize);
        let per_address_max = per_address_max.map_or((total_max / 4).max(1), |most| most as usize);
        ConnectionLimits { total_max, per_address_max }
    }
}

/// Raise the soft limit of open descriptors as far as the system allows. Returns the limit.
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
            tracing::warn!(%error, soft, "cannot raise the limit of open descriptors");
            soft
        }
    }
}

/// The connections that are open. Cheap to clone.
#[derive(Clone)]
pub struct Connections {
    limits: ConnectionLimits,
    table: Arc<Mutex<ConnectionTable>>,
    refused: Arc<AtomicU64>,
}

#[derive(Default)]
struct ConnectionTable {
    next_number: u64,
    open_count: usize,
    by_address: HashMap<IpAddr, AddressConnections>,
    /// Connections without a request so far, oldest first.
    without_request: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

#[derive(Default)]
struct AddressConnections {
    open_count: usize,
    without_request: BTreeSet<u64>,
}

/// One open connection, until it is dropped.
pub struct Connection {
    number: u64,
    address: IpAddr,
    has_sent_request: AtomicBool,
    close_signal: Arc<Notify>,
    table: Arc<Mutex<ConnectionTable>>,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Connections {
        Connections { limits, table: Arc::default(), refused: Arc::default() }
    }

    /// Register a connection from an address; `None` if a limit is reached and all connections are in use.
    pub fn admit(&self, address: IpAddr) -> Option<Connection> {
        let address = address.to_canonical();
        let extra = if address.is_loopback() { LOOPBACK_EXTRA_CONNECTIONS } else { 0 };
        let mut table = lock(&self.table);
        let is_admitted = table.make_room_for_address(address, self.limits.per_address_max + extra)
            && table.make_room(self.limits.total_max + extra);
        if !is_admitted {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(table.add(address, self.table.clone()))
    }

    pub fn open_count(&self) -> usize {
        lock(&self.table).open_count
    }

    /// Connections refused since the start.
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl ConnectionTable {
    fn add(&mut self, address: IpAddr, table: Arc<Mutex<ConnectionTable>>) -> Connection {
        let (number, close_signal) = (self.next_number, Arc::new(Notify::new()));
        self.next_number += 1;
        self.open_count += 1;
        let own = self.by_address.entry(address).or_default();
        own.open_count += 1;
        own.without_request.insert(number);
        self.without_request.insert(number, (address, close_signal.clone()));
        Connection { number, address, has_sent_request: AtomicBool::new(false), close_signal, table }
    }

    fn make_room_for_address(&mut self, address: IpAddr, most: usize) -> bool {
        let Some(own) = self.by_address.get(&address).filter(|own| own.open_count >= most) else {
            return true;
        };
        let oldest = own.without_request.first().copied();
        oldest.is_some_and(|number| self.close_without_request(number))
    }

    fn make_room(&mut self, most: usize) -> bool {
        if self.open_count < most {
            return true;
        }
        let oldest = self.without_request.keys().next().copied();
        oldest.is_some_and(|number| self.close_without_request(number))
    }

    /// Close a connection without a request. It no longer counts from now on.
    fn close_without_request(&mut self, number: u64) -> bool {
        let Some((_, close_signal)) = self.without_request.get(&number) else { return false };
        close_signal.notify_one();
        self.remove_without_request(number);
        true
    }

    /// Release a connection that closes without a request; any other is released in `release`.
    fn remove_without_request(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.without_request.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.without_request.remove(&number);
        }
        self.release(address);
        true
    }

    fn release(&mut self, address: IpAddr) {
        self.open_count -= 1;
        if let Some(own) = self.by_address.get_mut(&address) {
            own.open_count -= 1;
            if own.open_count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn mark_used(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.without_request.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.without_request.remove(&number);
        }
        true
    }
}

impl Connection {
    /// Mark the connection as used: it is not closed for other connections from now on.
    pub fn note_request(&self) {
        if !self.has_sent_request.load(Ordering::Relaxed) && lock(&self.table).mark_used(self.number) {
            self.has_sent_request.store(true, Ordering::Relaxed);
        }
    }

    /// Wait until the connection is to be closed: another connection needs its slot, or no request came in time.
    pub async fn wait_until_closed(&self, without_request_after: Duration) {
        tokio::select! {
            () = self.close_signal.notified() => {}
            () = tokio::time::sleep(without_request_after) => {
                if self.has_sent_request.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        match self.has_sent_request.load(Ordering::Relaxed) {
            true => table.release(self.address),
            // A connection that was closed for another one has been removed already.
            false => drop(table.remove_without_request(self.number)),
        }
    }
}

fn lock(table: &Mutex<ConnectionTable>) -> MutexGuard<'_, ConnectionTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn connections_without_a_request_are_closed_for_new_ones_and_used_ones_are_kept() {
        let connections = Connections::new(ConnectionLimits { total_max: 10, per_address_max: 4 });
        let unused = admit(&connections, "10.0.0.1", 1_100);
        assert_eq!((unused.len(), connections.open_count()), (1_100, 4), "each new one closes the oldest");
        drop(unused);
        assert_eq!(connections.open_count(), 0);
        let used = admit(&connections, "10.0.0.1", 4);
        used.iter().for_each(Connection::note_request);
        assert!(connections.admit(ip("10.0.0.1")).is_none());
        assert!(connections.admit(ip("10.0.0.2")).is_some(), "another address has its own limit");
        assert_eq!(connections.refused_count(), 1);
    }

    #[test]
    fn loopback_connects_when_all_other_connections_are_in_use() {
        let connections = Connections::new(ConnectionLimits { total_max: 6, per_address_max: 3 });
        let (one, other) = (admit(&connections, "10.0.0.1", 3), admit(&connections, "10.0.0.2", 3));
        one.iter().chain(&other).for_each(Connection::note_request);
        assert!(connections.admit(ip("10.0.0.3")).is_none());
        let local = admit(&connections, "127.0.0.1", LOOPBACK_EXTRA_CONNECTIONS);
        local.iter().for_each(Connection::note_request);
        assert_eq!(local.len(), LOOPBACK_EXTRA_CONNECTIONS);
        assert!(connections.admit(ip("::ffff:127.0.0.1")).is_none());
    }

    #[test]
    fn a_closed_connection_is_released_once() {
        let connections = Connections::new(ConnectionLimits { total_max: 2, per_address_max: 2 });
        let first = admit(&connections, "10.0.0.1", 2);
        let second = admit(&connections, "10.0.0.1", 2);
        drop(first);
        assert_eq!(connections.open_count(), 2);
        second[0].note_request();
        drop(second);
        assert_eq!(connections.open_count(), 0);
        assert!(lock(&connections.table).by_address.is_empty());
    }

    #[test]
    fn connection_limits_follow_the_descriptor_limit() {
        assert_eq!(ConnectionLimits::new(None, None, 1_024), ConnectionLimits { total_max: 768, per_address_max: 192 });
        assert_eq!(
            ConnectionLimits::new(None, None, 1 << 20),
            ConnectionLimits { total_max: 10_000, per_address_max: 2_500 }
        );
        assert_eq!(
            ConnectionLimits::new(Some(40), Some(7), 1_024),
            ConnectionLimits { total_max: 40, per_address_max: 7 }
        );
        assert!(raise_descriptor_limit() >= 256);
    }
}
