//! How much one caller may ask: a bucket of tokens each, filled at the configured rate, and a few streams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;

use crate::http::api_error::ApiError;

/// Callers remembered before those who have been quiet are forgotten.
const BUCKETS_MAX: usize = 10_000;

/// Streams one caller may keep open. A stream costs little; a leaking client should still be noticed.
const STREAMS_PER_CALLER_MAX: usize = 64;

/// How often each caller may ask. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct RateLimiter {
    per_second: Option<f64>,
    buckets: Arc<Mutex<HashMap<String, TokenBucket>>>,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

/// Leave to keep a stream open, until it is dropped.
pub struct StreamPermit {
    caller: String,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

struct TokenBucket {
    tokens: f64,
    refilled_at: Instant,
}

impl RateLimiter {
    /// So many requests each second, and as many at once; `None` for no limit.
    pub fn new(per_second: Option<u32>) -> RateLimiter {
        let per_second = per_second.filter(|rate| *rate > 0).map(f64::from);
        RateLimiter { per_second, buckets: Arc::default(), streams: Arc::default() }
    }

    /// Take one request from a caller's bucket.
    pub fn take_request(&self, caller: &str) -> Result<(), ApiError> {
        let Some(rate) = self.per_second else { return Ok(()) };
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > BUCKETS_MAX {
            buckets.retain(|_, bucket| bucket.tokens_at(rate, now) < rate);
        }
        let bucket = buckets.entry(caller.to_string()).or_insert(TokenBucket { tokens: rate, refilled_at: now });
        bucket.tokens = bucket.tokens_at(rate, now);
        bucket.refilled_at = now;
        if bucket.tokens < 1.0 {
            let wait_s = ((1.0 - bucket.tokens) / rate).ceil().max(1.0) as u64;
            let detail = format!("more than {rate} requests a second");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", detail).retry_after(wait_s));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Take leave to keep one more stream open.
    pub fn acquire_stream(&self, caller: &str) -> Result<StreamPermit, ApiError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(caller.to_string()).or_default();
        if *open >= STREAMS_PER_CALLER_MAX {
            let detail = format!("{open} streams are open already");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-streams", detail).retry_after(1));
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

impl TokenBucket {
    /// A bucket holds one second's worth.
    fn tokens_at(&self, rate: f64, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        (self.tokens + since * rate).min(rate)
    }
}

/// What is known of a caller who has shown no token.
pub fn peer_address(request: &Request) -> String {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or_else(|| "unknown".to_string(), |ConnectInfo(peer)| peer.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_above_its_rate_is_refused_and_other_callers_are_not() {
        let limits = RateLimiter::new(Some(5));
        assert!((0..5).all(|_| limits.take_request("a").is_ok()));
        assert_eq!(limits.take_request("a").map_err(|fault| fault.status()), Err(StatusCode::TOO_MANY_REQUESTS));
        assert!(limits.take_request("b").is_ok());
        assert!((0..100).all(|_| RateLimiter::new(None).take_request("a").is_ok()));
    }

    #[test]
    fn streams_are_counted_until_they_close() {
        let limits = RateLimiter::new(None);
        let mut open: Vec<StreamPermit> = (0..STREAMS_PER_CALLER_MAX).filter_map(|_| limits.acquire_stream("a").ok()).collect();
        assert_eq!(open.len(), STREAMS_PER_CALLER_MAX);
        assert!(limits.acquire_stream("a").is_err() && limits.acquire_stream("b").is_ok());
        open.pop();
        assert!(limits.acquire_stream("a").is_ok());
    }
}
