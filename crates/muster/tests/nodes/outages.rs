//! What was done to the cluster, and when: an attempt may end early only if something was done to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A machine that stands still for longer than this was too busy to keep its nodes and their leader in touch.
const STALL_US: u64 = 300_000;

/// A leader acknowledges heartbeats when it renews its lease, every two seconds: an outage begins earlier and ends later for
/// the self-fence of a node.
const LEASE_RENEWAL_US: u64 = 2_000_000;

/// Something that kept a node from its leader.
#[derive(Debug, Clone, Copy)]
struct Outage {
    from_us: u64,
    until_us: u64,
}

#[derive(Debug, Default)]
pub struct Outages {
    by_node: BTreeMap<String, Vec<Outage>>,
    /// Attempts whose shim was killed: job and number.
    killed_shims: BTreeSet<(String, u32)>,
    /// When the agent of a node was killed.
    agent_kills: BTreeMap<String, Vec<u64>>,
    /// Times in which this machine stood still.
    stalls: Arc<Mutex<Vec<Outage>>>,
}

impl Outages {
    /// Watches for stalls of this machine until the end of the program.
    pub fn watch() -> Outages {
        let outages = Outages::default();
        let stalls = outages.stalls.clone();
        std::thread::spawn(move || {
            let mut last = now_us();
            loop {
                std::thread::sleep(Duration::from_millis(20));
                let now = now_us();
                if now.saturating_sub(last) > STALL_US {
                    stalls.lock().unwrap().push(Outage { from_us: last, until_us: now });
                }
                last = now;
            }
        });
        outages
    }

    /// Notes that a node was kept from its leader.
    pub fn note(&mut self, node: &str, from_us: u64, until_us: u64) {
        let (from_us, until_us) = (from_us.saturating_sub(LEASE_RENEWAL_US), until_us + LEASE_RENEWAL_US);
        self.by_node.entry(node.to_string()).or_default().push(Outage { from_us, until_us });
    }

    pub fn note_killed_shim(&mut self, job: &str, attempt: u32) {
        self.killed_shims.insert((job.to_string(), attempt));
    }

    pub fn note_agent_kill(&mut self, node: &str, at_us: u64) {
        self.agent_kills.entry(node.to_string()).or_default().push(at_us);
    }

    pub fn was_shim_killed(&self, job: &str, attempt: u32) -> bool {
        self.killed_shims.contains(&(job.to_string(), attempt))
    }

    pub fn killed_shims(&self) -> usize {
        self.killed_shims.len()
    }

    /// Whether the node was away from its leader without a break for this long, at some time between two moments. Outages
    /// that follow each other within a lease renewal are one.
    pub fn was_away(&self, node: &str, for_us: u64, from_us: u64, until_us: u64) -> bool {
        let stalls = self.stalls.lock().unwrap();
        let mut outages: Vec<Outage> =
            self.by_node.get(node).into_iter().flatten().chain(stalls.iter()).copied().collect();
        outages.sort_by_key(|outage| outage.from_us);
        let mut merged: Vec<Outage> = Vec::new();
        for outage in outages {
            match merged.last_mut() {
                Some(last) if outage.from_us <= last.until_us => last.until_us = last.until_us.max(outage.until_us),
                _ => merged.push(outage),
            }
        }
        merged.iter().any(|outage| outage.until_us.min(until_us).saturating_sub(outage.from_us.max(from_us)) >= for_us)
    }

    /// Whether the agent of the node was killed in the time before a moment.
    pub fn was_agent_killed(&self, node: &str, before_us: u64, window_us: u64) -> bool {
        let kills = self.agent_kills.get(node).into_iter().flatten();
        kills.into_iter().any(|at| *at <= before_us && before_us - at <= window_us)
    }
}

pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}
