//! How much one caller may ask: a bucket of tokens each, filled at the configured rate, and a few streams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;

use crate::http::fault::Fault;

/// Callers remembered before those who have been quiet are forgotten.
const CALLERS_MAX: usize = 10_000;

/// Streams one caller may keep open. A stream costs little; a leaking client should still be noticed.
const STREAMS_MAX: usize = 64;

/// How often each caller may ask. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct Limits {
    per_second: Option<f64>,
    buckets: Arc<Mutex<HashMap<String, Bucket>>>,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

/// Leave to keep a stream open, until it is dropped.
pub struct StreamPermit {
    caller: String,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limits {
    /// So many requests each second, and as many at once; `None` for no limit.
    pub fn new(per_second: Option<u32>) -> Limits {
        let per_second = per_second.filter(|rate| *rate > 0).map(f64::from);
        Limits { per_second, buckets: Arc::default(), streams: Arc::default() }
    }

    /// Take one request from a caller's bucket.
    pub fn take(&self, caller: &str) -> Result<(), Fault> {
        let Some(rate) = self.per_second else { return Ok(()) };
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > CALLERS_MAX {
            buckets.retain(|_, bucket| bucket.filled(rate, now) < rate);
        }
        let bucket = buckets.entry(caller.to_string()).or_insert(Bucket { tokens: rate, at: now });
        bucket.tokens = bucket.filled(rate, now);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            let wait_s = ((1.0 - bucket.tokens) / rate).ceil().max(1.0) as u64;
            let detail = format!("more than {rate} requests a second");
            return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", detail).retry_after(wait_s));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Take leave to keep one more stream open.
    pub fn stream(&self, caller: &str) -> Result<StreamPermit, Fault> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(caller.to_string()).or_default();
        if *open >= STREAMS_MAX {
            let detail = format!("{open} streams are open already");
            return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, "too-many-streams", detail).retry_after(1));
        }
        *open += 1;
        Ok(StreamPermit { caller: caller.to_string(), streams: self.streams.clone() })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match streams.get_mut(&self.caller) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(streams.remove(&self.caller)),
        }
    }
}

impl Bucket {
    /// A bucket holds one second's worth.
    fn filled(&self, rate: f64, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens + since * rate).min(rate)
    }
}

/// What is known of a caller who has shown no token.
pub fn address_of(request: &Request) -> String {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or_else(|| "unknown".to_string(), |ConnectInfo(peer)| peer.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_stopped_and_others_are_not() {
        let limits = Limits::new(Some(5));
        assert!((0..5).all(|_| limits.take("a").is_ok()));
        assert_eq!(limits.take("a").map_err(|fault| fault.status()), Err(StatusCode::TOO_MANY_REQUESTS));
        assert!(limits.take("b").is_ok());
        assert!((0..100).all(|_| Limits::new(None).take("a").is_ok()));
    }

    #[test]
    fn streams_are_counted_until_they_close() {
        let limits = Limits::new(None);
        let mut open: Vec<StreamPermit> = (0..STREAMS_MAX).filter_map(|_| limits.stream("a").ok()).collect();
        assert_eq!(open.len(), STREAMS_MAX);
        assert!(limits.stream("a").is_err() && limits.stream("b").is_ok());
        open.pop();
        assert!(limits.stream("a").is_ok());
    }
}
