//! Limits on open connections, in total and per address, and which connection is closed at a limit.
//!
//! A connection whose client has not authenticated costs that client nothing, so it may be closed: when a limit is reached,
//! the oldest such connection is closed for the new one, and none stays open for long. Only if the clients of all
//! connections have authenticated, the new one is refused. A few connections beyond the limits are reserved for loopback, so
//! that the administrator of this machine can always connect.

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
    needs_tokens: bool,
    table: Arc<Mutex<ConnectionTable>>,
    refused: Arc<AtomicU64>,
}

#[derive(Default)]
struct ConnectionTable {
    next_number: u64,
    open_count: usize,
    by_address: HashMap<IpAddr, AddressConnections>,
    /// Connections whose clients have not authenticated, oldest first.
    anonymous: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

#[derive(Default)]
struct AddressConnections {
    open_count: usize,
    anonymous: BTreeSet<u64>,
}

/// When a connection is closed whose client has not authenticated, from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct AnonymousTimeouts {
    /// Without a request.
    pub first_request: Duration,
    pub authentication: Duration,
}

/// The connection of a request, as an extension of it.
#[derive(Clone)]
pub struct ClientConnection(pub(super) Arc<Connection>);

impl ClientConnection {
    /// The client has authenticated: its connection is not closed for other ones from now on.
    pub fn note_authenticated(&self) {
        self.0.note_authenticated();
    }
}

/// One open connection, until it is dropped.
pub struct Connection {
    number: u64,
    address: IpAddr,
    has_sent_request: AtomicBool,
    is_authenticated: AtomicBool,
    needs_token: bool,
    close_signal: Arc<Notify>,
    table: Arc<Mutex<ConnectionTable>>,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Connections {
        Connections { limits, needs_tokens: true, table: Arc::default(), refused: Arc::default() }
    }

    /// Connections of clients that need no token: whoever sends a request counts as authenticated.
    pub fn without_tokens(self) -> Connections {
        Connections { needs_tokens: false, ..self }
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
        Some(table.add(address, self.needs_tokens, self.table.clone()))
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
    fn add(&mut self, address: IpAddr, needs_token: bool, table: Arc<Mutex<ConnectionTable>>) -> Connection {
        let (number, close_signal) = (self.next_number, Arc::new(Notify::new()));
        self.next_number += 1;
        self.open_count += 1;
        let own = self.by_address.entry(address).or_default();
        own.open_count += 1;
        own.anonymous.insert(number);
        self.anonymous.insert(number, (address, close_signal.clone()));
        let (has_sent_request, is_authenticated) = (AtomicBool::new(false), AtomicBool::new(false));
        Connection { number, address, has_sent_request, is_authenticated, needs_token, close_signal, table }
    }

    fn make_room_for_address(&mut self, address: IpAddr, most: usize) -> bool {
        let Some(own) = self.by_address.get(&address).filter(|own| own.open_count >= most) else {
            return true;
        };
        let oldest = own.anonymous.first().copied();
        oldest.is_some_and(|number| self.close_anonymous(number))
    }

    fn make_room(&mut self, most: usize) -> bool {
        if self.open_count < most {
            return true;
        }
        let oldest = self.anonymous.keys().next().copied();
        oldest.is_some_and(|number| self.close_anonymous(number))
    }

    /// Close a connection whose client has not authenticated. It no longer counts from now on.
    fn close_anonymous(&mut self, number: u64) -> bool {
        let Some((_, close_signal)) = self.anonymous.get(&number) else { return false };
        close_signal.notify_one();
        self.remove_anonymous(number);
        true
    }

    /// Release a connection that closes before its client has authenticated; any other is released in `release`.
    fn remove_anonymous(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.anonymous.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.anonymous.remove(&number);
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

    fn mark_authenticated(&mut self, number: u64) -> bool {
        let Some((address, _)) = self.anonymous.remove(&number) else { return false };
        if let Some(own) = self.by_address.get_mut(&address) {
            own.anonymous.remove(&number);
        }
        true
    }
}

impl Connection {
    pub fn note_request(&self) {
        self.has_sent_request.store(true, Ordering::Relaxed);
        if !self.needs_token {
            self.note_authenticated();
        }
    }

    /// The connection is not closed for other connections from now on.
    pub fn note_authenticated(&self) {
        if !self.is_authenticated.load(Ordering::Relaxed) && lock(&self.table).mark_authenticated(self.number) {
            self.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Wait until the connection is to be closed: another connection needs its slot, or its client has not sent a request
    /// or not authenticated in time.
    pub async fn wait_until_closed(&self, timeouts: AnonymousTimeouts) {
        tokio::select! {
            () = self.close_signal.notified() => {}
            () = self.wait_until_overdue(timeouts) => {}
        }
    }

    async fn wait_until_overdue(&self, timeouts: AnonymousTimeouts) {
        tokio::time::sleep(timeouts.first_request).await;
        if !self.has_sent_request.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(timeouts.authentication.saturating_sub(timeouts.first_request)).await;
        if self.is_authenticated.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        match self.is_authenticated.load(Ordering::Relaxed) {
            true => table.release(self.address),
            // A connection that was closed for another one has been removed already.
            false => drop(table.remove_anonymous(self.number)),
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
    fn connections_of_clients_that_have_not_authenticated_are_closed_for_new_ones_and_others_are_kept() {
        let connections = Connections::new(ConnectionLimits { total_max: 10, per_address_max: 4 });
        let unused = admit(&connections, "10.0.0.1", 1_100);
        assert_eq!((unused.len(), connections.open_count()), (1_100, 4), "each new one closes the oldest");
        drop(unused);
        assert_eq!(connections.open_count(), 0);
        let probing = admit(&connections, "10.0.0.1", 4);
        probing.iter().for_each(Connection::note_request);
        assert!(connections.admit(ip("10.0.0.1")).is_some(), "a request alone keeps no slot");
        drop(probing);
        let used = admit(&connections, "10.0.0.1", 4);
        used.iter().for_each(Connection::note_authenticated);
        assert!(connections.admit(ip("10.0.0.1")).is_none());
        assert!(connections.admit(ip("10.0.0.2")).is_some(), "another address has its own limit");
        assert_eq!(connections.refused_count(), 1);
    }

    #[tokio::test]
    async fn only_an_authenticated_client_keeps_its_connection_open() {
        let connections = Connections::new(ConnectionLimits { total_max: 4, per_address_max: 4 });
        let open = admit(&connections, "10.0.0.1", 3);
        open[1..].iter().for_each(Connection::note_request);
        open[2].note_authenticated();
        let short = Duration::from_millis(20);
        let timeouts = AnonymousTimeouts { first_request: short, authentication: 2 * short };
        open[0].wait_until_closed(timeouts).await;
        open[1].wait_until_closed(timeouts).await;
        let kept = tokio::time::timeout(10 * short, open[2].wait_until_closed(timeouts)).await;
        assert!(kept.is_err(), "closed although its client has authenticated");
    }

    #[test]
    fn without_tokens_a_request_keeps_its_connection() {
        let connections = Connections::new(ConnectionLimits { total_max: 4, per_address_max: 2 }).without_tokens();
        let used = admit(&connections, "10.0.0.1", 2);
        used.iter().for_each(Connection::note_request);
        assert!(connections.admit(ip("10.0.0.1")).is_none());
    }

    #[test]
    fn loopback_connects_when_all_other_connections_are_in_use() {
        let connections = Connections::new(ConnectionLimits { total_max: 6, per_address_max: 3 });
        let (one, other) = (admit(&connections, "10.0.0.1", 3), admit(&connections, "10.0.0.2", 3));
        one.iter().chain(&other).for_each(Connection::note_authenticated);
        assert!(connections.admit(ip("10.0.0.3")).is_none());
        let local = admit(&connections, "127.0.0.1", LOOPBACK_EXTRA_CONNECTIONS);
        local.iter().for_each(Connection::note_authenticated);
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
        second[0].note_authenticated();
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
