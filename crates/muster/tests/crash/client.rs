//! Clients that submit under load and remember what they were told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use muster_core::JobId;

/// Clients at once.
const CLIENTS: usize = 4;

/// What every client was told, by idempotency key.
#[derive(Default)]
pub struct Ledger {
    next: AtomicU64,
    told: Mutex<BTreeMap<String, Told>>,
}

/// What is known of one key.
#[derive(Debug, Clone, Copy)]
enum Told {
    /// The server said that this job is accepted.
    Acknowledged(JobId),
    /// The connection broke: it may exist or not.
    Unknown,
}

impl Ledger {
    /// Submit from several clients until `until` returns, which kills the server.
    pub fn submit_while(&self, address: SocketAddr, until: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| self.submit_until(address, &over));
            }
            until();
            over.store(true, Ordering::Relaxed);
        });
    }

    fn submit_until(&self, address: SocketAddr, over: &AtomicBool) {
        let Ok(mut link) = Link::open(address) else { return };
        while !over.load(Ordering::Relaxed) {
            let key = format!("key-{}", self.next.fetch_add(1, Ordering::Relaxed));
            self.note(&key, Told::Unknown);
            match link.submit(&key) {
                Some(job) => self.note(&key, Told::Acknowledged(job)),
                None => return,
            }
        }
    }

    /// Ask again for every key: what was acknowledged must be the same job, what was unknown becomes one job.
    pub fn settle(&self, address: SocketAddr) -> BTreeMap<String, JobId> {
        let mut link = Link::open(address).expect("the server listens");
        let told = self.told.lock().expect("no client panicked").clone();
        let settled = told.into_iter().map(|(key, told)| {
            let job = link.submit(&key).unwrap_or_else(|| panic!("{key} was not accepted"));
            if let Told::Acknowledged(first) = told {
                assert_eq!(first, job, "{key} was acknowledged as one job and is another");
            }
            (key, job)
        });
        settled.collect()
    }

    /// Keys that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        let told = self.told.lock().expect("no client panicked");
        told.values().filter(|told| matches!(told, Told::Acknowledged(_))).count()
    }

    fn note(&self, key: &str, told: Told) {
        self.told.lock().expect("no client panicked").insert(key.to_string(), told);
    }
}

/// One kept connection.
struct Link {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Link {
    fn open(address: SocketAddr) -> std::io::Result<Link> {
        Ok(Link { address, stream: BufReader::new(TcpStream::connect(address)?) })
    }

    /// Submit under a key. `None` when the connection broke.
    fn submit(&mut self, key: &str) -> Option<JobId> {
        let body = format!(
            r#"{{"name":"{key}","gpu_count":1,"command":["true"],"annotations":{{"muster.sim/runtime":"60ms"}}}}"#
        );
        let request = format!(
            "POST /api/v1/jobs HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        let (status, body) = self.answer()?;
        match status {
            201 => Some(job_id(&body)),
            503 => None,
            _ => panic!("submission answered {status}: {body}"),
        }
    }

    fn answer(&mut self) -> Option<(u16, String)> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line.trim_end().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

#[derive(serde::Deserialize)]
struct Submitted {
    job_id: JobId,
}

fn job_id(body: &str) -> JobId {
    let submitted: Submitted =
        muster_json::from_str(body).unwrap_or_else(|problem| panic!("{problem}: {body}"));
    submitted.job_id
}
