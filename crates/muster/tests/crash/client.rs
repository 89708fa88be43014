//! Clients that submit under load and record the answer to each submission.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use muster_core::JobId;

/// Concurrent clients.
const CLIENTS: usize = 4;

/// The answers of all clients, by idempotency key.
#[derive(Default)]
pub struct SubmissionLog {
    next: AtomicU64,
    answers: Mutex<BTreeMap<String, SubmissionAnswer>>,
}

/// The answer to a submission.
#[derive(Debug, Clone, Copy)]
enum SubmissionAnswer {
    /// The server acknowledged this job.
    Acknowledged(JobId),
    /// The connection broke: the job may or may not exist.
    Unconfirmed,
}

impl SubmissionLog {
    /// Submits from several clients until `until`, which kills the server, returns.
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
        let Ok(mut link) = HttpConnection::open(address) else { return };
        while !over.load(Ordering::Relaxed) {
            let key = format!("key-{}", self.next.fetch_add(1, Ordering::Relaxed));
            self.record(&key, SubmissionAnswer::Unconfirmed);
            match link.submit(&key) {
                Some(job) => self.record(&key, SubmissionAnswer::Acknowledged(job)),
                None => return,
            }
        }
    }

    /// Repeats every submission: an acknowledged key must give the same job, an unconfirmed key gives one job.
    pub fn resubmit_all(&self, address: SocketAddr) -> BTreeMap<String, JobId> {
        let mut link = HttpConnection::open(address).expect("the server listens");
        let answers = self.answers.lock().expect("no client panicked").clone();
        let jobs = answers.into_iter().map(|(key, answer)| {
            let job = link.submit(&key).unwrap_or_else(|| panic!("{key} was not accepted"));
            if let SubmissionAnswer::Acknowledged(first) = answer {
                assert_eq!(first, job, "{key} was acknowledged as one job and is another");
            }
            (key, job)
        });
        jobs.collect()
    }

    /// The number of acknowledged keys.
    pub fn acknowledged(&self) -> usize {
        let answers = self.answers.lock().expect("no client panicked");
        answers.values().filter(|answer| matches!(answer, SubmissionAnswer::Acknowledged(_))).count()
    }

    fn record(&self, key: &str, answer: SubmissionAnswer) {
        self.answers.lock().expect("no client panicked").insert(key.to_string(), answer);
    }
}

/// A persistent connection.
struct HttpConnection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl HttpConnection {
    fn open(address: SocketAddr) -> std::io::Result<HttpConnection> {
        Ok(HttpConnection { address, stream: BufReader::new(TcpStream::connect(address)?) })
    }

    /// Submits with a key; `None` if the connection broke.
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
        let (status, body) = self.read_response()?;
        match status {
            201 => Some(job_id(&body)),
            503 => None,
            _ => panic!("submission answered {status}: {body}"),
        }
    }

    fn read_response(&mut self) -> Option<(u16, String)> {
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
    let submitted: Submitted = muster_json::from_str(body).unwrap_or_else(|problem| panic!("{problem}: {body}"));
    submitted.job_id
}
