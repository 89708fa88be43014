//! A leader that is frozen or cut off from PostgreSQL in the middle of its work: a standby takes over as soon as the
//! lease is over, and nothing of the former leader's unfinished work appears afterwards.
//!
//! A proxy between the leader and PostgreSQL counts the messages of the protocol and stops at each of them in turn.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use muster_core::{Event, Timestamp};
use muster_store::{Leadership, PostgresConfig, Store, StoreConfig, open};

use crate::bench::{Bench, PostgresBench};
use crate::story::*;

/// Short, so that the tests are; limits are shares of the lease.
const SHORT_LEASE_MS: i64 = 3_000;
/// The goal with any lease that people use.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);
/// Cases at once; each mostly waits.
const AT_ONCE: usize = 12;

const NOTHING: Event = Event::Forgotten { before: Timestamp(0), trimmed_before: None };

/// What happens at the chosen message.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Nothing moves in either direction any more, and no connection is closed.
    CutOff,
    /// The client gets SIGSTOP.
    Freeze,
}

/// A proxy in front of PostgreSQL.
struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    fault: Fault,
    /// Messages of the client until the fault; negative for never.
    left: AtomicI64,
    seen: AtomicI64,
    faulted: AtomicBool,
    over: AtomicBool,
    /// Which process to freeze.
    client: AtomicU32,
}

impl Proxy {
    fn start(config: &PostgresConfig, fault: Fault) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server: format!("{}/.s.PGSQL.{}", config.host, config.port),
            fault,
            left: AtomicI64::new(-1),
            seen: AtomicI64::new(0),
            faulted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            client: AtomicU32::new(0),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A new connection of a client that is cut off leads nowhere either.
                if accepting.over.load(Ordering::SeqCst) {
                    return;
                }
                accepting.clone().forward(client.unwrap());
            }
        });
        Proxy { port, shared }
    }

    /// Let the fault happen at the message number `at` from now on.
    fn arm(&self, at: i64) {
        self.shared.seen.store(0, Ordering::SeqCst);
        self.shared.left.store(at, Ordering::SeqCst);
    }

    fn config(&self, config: &PostgresConfig) -> PostgresConfig {
        PostgresConfig { host: "127.0.0.1".to_string(), port: self.port, ..config.clone() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn forward(self: Arc<Shared>, client: TcpStream) {
        let server = UnixStream::connect(&self.server).unwrap();
        let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
        let (mut to_server, mut from_server) = (server.try_clone().unwrap(), server);
        let shared = self.clone();
        std::thread::spawn(move || {
            let _ = shared.requests(&mut from_client, &mut to_server);
            shared.hold();
            let _ = to_server.shutdown(std::net::Shutdown::Both);
        });
        std::thread::spawn(move || {
            let _ = self.answers(&mut from_server, &mut to_client);
            self.hold();
            let _ = to_client.shutdown(std::net::Shutdown::Both);
        });
    }

    /// After the cut connections stay open until the test is over.
    fn hold(&self) {
        while self.is_cut() && !self.over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_cut(&self) -> bool {
        self.fault == Fault::CutOff && self.faulted.load(Ordering::SeqCst)
    }

    fn requests(&self, client: &mut TcpStream, server: &mut UnixStream) -> io::Result<()> {
        // The first message has no type.
        let mut header = 4;
        loop {
            let message = message(client, header)?;
            header = 5;
            self.meet_fault();
            if self.is_cut() {
                return Ok(());
            }
            server.write_all(&message)?;
        }
    }

    fn meet_fault(&self) {
        self.seen.fetch_add(1, Ordering::SeqCst);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let client = self.client.load(Ordering::SeqCst);
            if self.fault == Fault::Freeze {
                signal(client, "STOP");
            }
            self.faulted.store(true, Ordering::SeqCst);
        }
    }

    fn answers(&self, server: &mut UnixStream, client: &mut TcpStream) -> io::Result<()> {
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

/// One message of a client, whole.
fn message(client: &mut TcpStream, header: usize) -> io::Result<Vec<u8>> {
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

/// Try to lead as a standby does, over and over; how long it took.
fn take_over(config: &PostgresConfig) -> (Duration, Store, u64) {
    let (tell, told) = mpsc::channel();
    let config = StoreConfig::Postgres(config.clone());
    let begin = Instant::now();
    std::thread::spawn(move || {
        let mut store = open(&config).unwrap();
        loop {
            match store.journal.lead("standby", SHORT_LEASE_MS) {
                Ok(Leadership::Leading { epoch, .. }) => {
                    let waited = begin.elapsed();
                    store.journal.renew(LEASE_MS).unwrap();
                    break drop(tell.send((waited, store, epoch)));
                }
                Ok(Leadership::Standby { .. }) => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => panic!("the standby met {error}"),
            }
        }
    });
    let taken = told.recv_timeout(TAKEOVER_MAX);
    taken.unwrap_or_else(|_| panic!("nobody leads {TAKEOVER_MAX:?} after the leader was lost"))
}

/// What the leader does when it is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Append,
    Renew,
    Lead,
}

/// Cut the leader off at message number `at` of an act. False if the act has fewer messages than that.
fn cut_off_at(act: Act, at: i64) -> bool {
    let Some(bench) = PostgresBench::new() else { return false };
    let proxy = Proxy::start(&bench.config, Fault::CutOff);
    let mut store = open(&StoreConfig::Postgres(proxy.config(&bench.config))).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.lead("leader", SHORT_LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    let mut book = Book { store, epoch, seq: 0 };
    // Once before, so that the tables are there and statements are prepared.
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    proxy.arm(at);
    let lost = std::thread::spawn(move || {
        let done = match act {
            Act::Append => book.try_add(&[submit(2, "red", 1)]),
            Act::Renew => book.store.journal.renew(SHORT_LEASE_MS),
            Act::Lead => book.store.journal.lead("leader", SHORT_LEASE_MS).map(drop),
        };
        (done, book)
    });
    while !proxy.shared.faulted.load(Ordering::SeqCst) {
        if lost.is_finished() {
            assert!(proxy.shared.seen.load(Ordering::SeqCst) <= at, "{act:?} {at}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_, store, epoch) = take_over(&bench.config);
    let (done, mut former) = lost.join().unwrap();
    let Err(fault) = done else { panic!("a leader that is cut off cannot be told that it is done") };
    assert!(fault.heals_by_reload(), "{act:?} {at}: {fault}");
    let mut next = Book { store, epoch, seq: 0 };
    next.seq = next.replay(0).unwrap().len() as u64;
    assert!(next.seq == 2 || act == Act::Append && next.seq == 3, "{act:?} {at}: {} entries", next.seq);
    next.add(&[NOTHING]);
    assert!(former.try_add(&[NOTHING]).is_err());
    assert_eq!(bench.sql("SELECT count(*) FROM journal"), next.seq.to_string());
    true
}

/// Run the cases in parallel, each number once, until a case says that there is nothing more.
fn at_every_message(case: impl Fn(i64) -> bool + Sync) -> i64 {
    let (next, met) = (AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
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
    if PostgresBench::new().is_some() {
        let met = at_every_message(|at| cut_off_at(Act::Append, at));
        assert!(met > 10, "only {met} messages were seen");
    }
}

#[test]
fn a_leader_that_is_cut_off_while_it_renews_is_replaced() {
    if PostgresBench::new().is_some() {
        assert!(at_every_message(|at| cut_off_at(Act::Renew, at)) > 0);
    }
}

/// Some of the messages: the same few statements look for tables again and again.
#[test]
fn a_leader_that_is_cut_off_while_it_takes_the_lead_is_replaced() {
    if PostgresBench::new().is_some() {
        assert!(at_every_message(|number| cut_off_at(Act::Lead, number * 7)) > 5);
    }
}

const CHILD: &str = "MUSTER_TEST_LEADER";

/// Not a test of its own: the process that is frozen. It leads and writes until it is deposed.
#[test]
#[ignore = "run by the tests that freeze it"]
fn leader_to_freeze() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let mut store = open(&StoreConfig::Postgres(url.parse().unwrap())).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.lead("leader", SHORT_LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    let mut book = Book { store, epoch, seq: 0 };
    loop {
        let done = book.try_add(&[NOTHING]).and_then(|()| book.store.journal.renew(SHORT_LEASE_MS));
        if let Err(fault) = done {
            assert!(fault.heals_by_reload(), "{fault}");
            // Over a new connection it hears why.
            let fault = book.try_add(&[NOTHING]).unwrap_err();
            assert!(matches!(fault, muster_store::StoreError::Deposed { .. }), "{fault}");
            return;
        }
    }
}

/// The child, which is killed if the test fails.
struct Leader(Child);

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Freeze the leader at message number `at`. False if it lost the lead before that, on a machine that is too busy.
fn freeze_at(at: i64) -> bool {
    let Some(bench) = PostgresBench::new() else { return false };
    let proxy = Proxy::start(&bench.config, Fault::Freeze);
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port, bench.config.database);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["failover::leader_to_freeze", "--exact", "--ignored"])
        .env(CHILD, url)
        .stdout(Stdio::null())
        .spawn();
    let mut leader = Leader(child.unwrap());
    proxy.shared.client.store(leader.0.id(), Ordering::SeqCst);
    while bench.sql("SELECT to_regclass('journal') IS NOT NULL") != "t"
        || bench.sql("SELECT count(*) FROM journal") == "0"
    {
        if leader.0.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    proxy.arm(at);
    while !proxy.shared.faulted.load(Ordering::SeqCst) {
        if leader.0.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_, store, epoch) = take_over(&bench.config);
    let mut next = Book { store, epoch, seq: 0 };
    next.seq = next.replay(0).unwrap().len() as u64;
    next.add(&[NOTHING]);
    signal(leader.0.id(), "CONT");
    assert!(leader.0.wait().unwrap().success(), "at {at}: the leader that woke up was not deposed");
    assert_eq!(bench.sql("SELECT count(*) FROM journal"), next.seq.to_string());
    true
}

/// One round of the child has about twenty messages.
#[test]
fn a_leader_that_is_frozen_is_replaced() {
    if PostgresBench::new().is_some() {
        let frozen = AtomicI64::new(0);
        at_every_message(|at| {
            frozen.fetch_add(i64::from(at < 24 && freeze_at(at)), Ordering::SeqCst);
            at < 24
        });
        assert!(frozen.into_inner() >= 12, "most leaders lost the lead before they were frozen");
    }
}
