//! Failover: the leader is frozen or disconnected from PostgreSQL during an operation. A standby takes over as soon as
//! the lease has expired, and no unfinished write of the former leader appears afterwards.
//!
//! A proxy between the leader and PostgreSQL counts the protocol messages; each case injects the fault at another
//! message.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use muster_store::{Leadership, PostgresConfig, Store, StoreConfig, open};

use crate::fixtures::*;
use crate::test_database::{PostgresTestDatabase, TestDatabase};

/// Short, to keep the tests short: the timeouts are fractions of the lease.
const SHORT_LEASE_MS: i64 = 3_000;
/// Goal for all leases in use.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);
/// Cases mostly wait, so many run at once.
const CASES_AT_ONCE: usize = 12;

/// Fault at the chosen message.
#[derive(Clone, Copy, PartialEq)]
enum ProxyFault {
    /// No byte passes in either direction, and no connection is closed.
    CutOff,
    /// The client gets SIGSTOP.
    Freeze,
}

/// A proxy in front of PostgreSQL.
struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
}

struct ProxyState {
    server: String,
    fault: ProxyFault,
    /// Messages of the client until the fault; negative for never.
    messages_until_fault: AtomicI64,
    messages_seen: AtomicI64,
    faulted: AtomicBool,
    is_test_over: AtomicBool,
    /// Process to freeze.
    client_pid: AtomicU32,
}

impl Proxy {
    fn start(config: &PostgresConfig, fault: ProxyFault) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ProxyState {
            server: format!("{}/.s.PGSQL.{}", config.host, config.port),
            fault,
            messages_until_fault: AtomicI64::new(-1),
            messages_seen: AtomicI64::new(0),
            faulted: AtomicBool::new(false),
            is_test_over: AtomicBool::new(false),
            client_pid: AtomicU32::new(0),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A new connection of a client that is cut off is not forwarded either.
                if accepting.is_test_over.load(Ordering::SeqCst) {
                    return;
                }
                accepting.clone().forward(client.unwrap());
            }
        });
        Proxy { port, state: shared }
    }

    /// Inject the fault at message `at`, counted from now.
    fn arm(&self, at: i64) {
        self.state.messages_seen.store(0, Ordering::SeqCst);
        self.state.messages_until_fault.store(at, Ordering::SeqCst);
    }

    fn config(&self, config: &PostgresConfig) -> PostgresConfig {
        PostgresConfig { host: "127.0.0.1".to_string(), port: self.port, ..config.clone() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_test_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl ProxyState {
    fn forward(self: Arc<ProxyState>, client: TcpStream) {
        let server = UnixStream::connect(&self.server).unwrap();
        let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
        let (mut to_server, mut from_server) = (server.try_clone().unwrap(), server);
        let shared = self.clone();
        std::thread::spawn(move || {
            let _ = shared.forward_requests(&mut from_client, &mut to_server);
            shared.hold_open_while_cut();
            let _ = to_server.shutdown(std::net::Shutdown::Both);
        });
        std::thread::spawn(move || {
            let _ = self.forward_replies(&mut from_server, &mut to_client);
            self.hold_open_while_cut();
            let _ = to_client.shutdown(std::net::Shutdown::Both);
        });
    }

    /// A cut connection stays open until the test is over.
    fn hold_open_while_cut(&self) {
        while self.is_cut() && !self.is_test_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_cut(&self) -> bool {
        self.fault == ProxyFault::CutOff && self.faulted.load(Ordering::SeqCst)
    }

    fn forward_requests(&self, client: &mut TcpStream, server: &mut UnixStream) -> io::Result<()> {
        // The first message has no type byte.
        let mut header = 4;
        loop {
            let message = read_message(client, header)?;
            header = 5;
            self.count_message();
            if self.is_cut() {
                return Ok(());
            }
            server.write_all(&message)?;
        }
    }

    fn count_message(&self) {
        self.messages_seen.fetch_add(1, Ordering::SeqCst);
        if self.messages_until_fault.fetch_sub(1, Ordering::SeqCst) == 0 {
            let client = self.client_pid.load(Ordering::SeqCst);
            if self.fault == ProxyFault::Freeze {
                signal(client, "STOP");
            }
            self.faulted.store(true, Ordering::SeqCst);
        }
    }

    fn forward_replies(&self, server: &mut UnixStream, client: &mut TcpStream) -> io::Result<()> {
        let mut bytes = [0; 8_192];
        loop {
            let count = server.read(&mut bytes)?;
            if count == 0 || self.is_cut() {
                return Ok(());
            }
            client.write_all(&bytes[..count])?;
        }
    }
}

/// One complete message of the client.
fn read_message(client: &mut TcpStream, header: usize) -> io::Result<Vec<u8>> {
    let mut message = vec![0; header];
    client.read_exact(&mut message)?;
    let length = u32::from_be_bytes(message[header - 4..].try_into().unwrap()) as usize;
    message.resize(header + length - 4, 0);
    client.read_exact(&mut message[header..])?;
    Ok(message)
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(sent.unwrap().success());
}

/// Retry to acquire leadership as a standby does. Returns the time it took, the store and its epoch.
fn take_over(config: &PostgresConfig) -> (Duration, Store, u64) {
    let (sender, receiver) = mpsc::channel();
    let config = StoreConfig::Postgres(config.clone());
    let begin = Instant::now();
    std::thread::spawn(move || {
        let mut store = open(&config).unwrap();
        loop {
            match store.journal.acquire_leadership("standby", SHORT_LEASE_MS) {
                Ok(Leadership::Leading { epoch, .. }) => {
                    let waited = begin.elapsed();
                    store.journal.renew_lease(LEASE_MS).unwrap();
                    break drop(sender.send((waited, store, epoch)));
                }
                Ok(Leadership::Standby { .. }) => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => panic!("the standby failed: {error}"),
            }
        }
    });
    let taken = receiver.recv_timeout(TAKEOVER_MAX);
    taken.unwrap_or_else(|_| panic!("nobody leads {TAKEOVER_MAX:?} after the leader was lost"))
}

/// Operation of the leader during which it is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LeaderOperation {
    Append,
    Renew,
    Lead,
}

/// Cut the leader off at message `at` of an operation. False if the operation has fewer messages.
fn cut_off_at(operation: LeaderOperation, at: i64) -> bool {
    let Some(database) = PostgresTestDatabase::new() else { return false };
    let proxy = Proxy::start(&database.config, ProxyFault::CutOff);
    let mut store = open(&StoreConfig::Postgres(proxy.config(&database.config))).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.acquire_leadership("leader", SHORT_LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    let mut writer = JournalWriter { store, epoch, seq: 0 };
    // A first append, so that the tables exist and the statements are prepared.
    writer.append(&[tenant("red", None), submit(1, "red", 1)]);
    proxy.arm(at);
    let lost = std::thread::spawn(move || {
        let result = match operation {
            LeaderOperation::Append => writer.try_append(&[submit(2, "red", 1)]),
            LeaderOperation::Renew => writer.store.journal.renew_lease(SHORT_LEASE_MS),
            LeaderOperation::Lead => writer.store.journal.acquire_leadership("leader", SHORT_LEASE_MS).map(drop),
        };
        (result, writer)
    });
    while !proxy.state.faulted.load(Ordering::SeqCst) {
        if lost.is_finished() {
            assert!(proxy.state.messages_seen.load(Ordering::SeqCst) <= at, "{operation:?} {at}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_, store, epoch) = take_over(&database.config);
    let (result, mut former) = lost.join().unwrap();
    let Err(fault) = result else { panic!("the operation of a leader that is cut off cannot succeed") };
    assert!(fault.is_recoverable_by_reload(), "{operation:?} {at}: {fault}");
    let mut next = JournalWriter { store, epoch, seq: 0 };
    next.seq = next.replay(0).unwrap().len() as u64;
    assert!(
        next.seq == 2 || operation == LeaderOperation::Append && next.seq == 3,
        "{operation:?} {at}: {} entries",
        next.seq
    );
    next.append(&[NOOP_EVENT]);
    assert!(former.try_append(&[NOOP_EVENT]).is_err());
    assert_eq!(database.sql("SELECT count(*) FROM journal"), next.seq.to_string());
    true
}

/// Run the cases 0, 1, 2 … in parallel until they return false. Returns how many returned true.
fn at_every_message(case: impl Fn(i64) -> bool + Sync) -> i64 {
    let (next, met) = (AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CASES_AT_ONCE {
            scope.spawn(|| {
                while case(next.fetch_add(1, Ordering::SeqCst)) {
                    met.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    met.into_inner()
}

#[test]
fn a_leader_that_is_cut_off_while_it_appends_is_replaced() {
    if PostgresTestDatabase::new().is_some() {
        let met = at_every_message(|at| cut_off_at(LeaderOperation::Append, at));
        assert!(met > 10, "only {met} messages were seen");
    }
}

#[test]
fn a_leader_that_is_cut_off_while_it_renews_is_replaced() {
    if PostgresTestDatabase::new().is_some() {
        assert!(at_every_message(|at| cut_off_at(LeaderOperation::Renew, at)) > 0);
    }
}

/// Every seventh message only: most messages belong to the same few statements, which look for tables.
#[test]
fn a_leader_that_is_cut_off_while_it_takes_the_lead_is_replaced() {
    if PostgresTestDatabase::new().is_some() {
        assert!(at_every_message(|number| cut_off_at(LeaderOperation::Lead, number * 7)) > 5);
    }
}

const LEADER_URL_VARIABLE: &str = "MUSTER_TEST_LEADER";

/// Not a test: the process that is frozen. It leads and appends until it is replaced.
#[test]
#[ignore = "run by the tests that freeze it"]
fn leader_to_freeze() {
    let Ok(url) = std::env::var(LEADER_URL_VARIABLE) else { return };
    let mut store = open(&StoreConfig::Postgres(url.parse().unwrap())).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.acquire_leadership("leader", SHORT_LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    let mut writer = JournalWriter { store, epoch, seq: 0 };
    loop {
        let done = writer.try_append(&[NOOP_EVENT]).and_then(|()| writer.store.journal.renew_lease(SHORT_LEASE_MS));
        if let Err(fault) = done {
            assert!(fault.is_recoverable_by_reload(), "{fault}");
            // The next call, over a new connection, returns the reason.
            let fault = writer.try_append(&[NOOP_EVENT]).unwrap_err();
            assert!(matches!(fault, muster_store::StoreError::NotLeader { .. }), "{fault}");
            return;
        }
    }
}

/// The child process, killed on drop.
struct LeaderProcess(Child);

impl Drop for LeaderProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Freeze the leader at message `at`. False if it lost leadership before that, which happens on a busy machine.
fn freeze_at(at: i64) -> bool {
    let Some(database) = PostgresTestDatabase::new() else { return false };
    let proxy = Proxy::start(&database.config, ProxyFault::Freeze);
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port, database.config.database);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["failover::leader_to_freeze", "--exact", "--ignored"])
        .env(LEADER_URL_VARIABLE, url)
        .stdout(Stdio::null())
        .spawn();
    let mut leader = LeaderProcess(child.unwrap());
    proxy.state.client_pid.store(leader.0.id(), Ordering::SeqCst);
    while database.sql("SELECT to_regclass('journal') IS NOT NULL") != "t"
        || database.sql("SELECT count(*) FROM journal") == "0"
    {
        if leader.0.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    proxy.arm(at);
    while !proxy.state.faulted.load(Ordering::SeqCst) {
        if leader.0.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_, store, epoch) = take_over(&database.config);
    let mut next = JournalWriter { store, epoch, seq: 0 };
    next.seq = next.replay(0).unwrap().len() as u64;
    next.append(&[NOOP_EVENT]);
    signal(leader.0.id(), "CONT");
    assert!(leader.0.wait().unwrap().success(), "at {at}: the thawed leader was not replaced");
    assert_eq!(database.sql("SELECT count(*) FROM journal"), next.seq.to_string());
    true
}

/// One iteration of the child has about twenty messages.
#[test]
fn a_leader_that_is_frozen_is_replaced() {
    if PostgresTestDatabase::new().is_some() {
        let frozen = AtomicI64::new(0);
        at_every_message(|at| {
            frozen.fetch_add(i64::from(at < 24 && freeze_at(at)), Ordering::SeqCst);
            at < 24
        });
        assert!(frozen.into_inner() >= 12, "most leaders lost leadership before they were frozen");
    }
}
