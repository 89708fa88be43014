//! Rate limit per caller: a token bucket, refilled at the configured rate, and a maximum of open streams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;

use crate::http::api_error::ApiError;

/// Above this number of buckets, full ones (of idle callers) are dropped.
const BUCKETS_MAX: usize = 10_000;

/// Streams one caller may keep open. A stream costs little, but a client that leaks them must notice.
const STREAMS_PER_CALLER_MAX: usize = 64;

/// Counts the requests and streams of each caller. Cheap to clone; all clones share their counts.
#[derive(Clone)]
pub struct RateLimiter {
    per_second: Option<f64>,
    buckets: Arc<Mutex<HashMap<String, TokenBucket>>>,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

/// Permission to keep a stream open, until it is dropped.
pub struct StreamPermit {
    caller: String,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

struct TokenBucket {
    tokens: f64,
    refilled_at: Instant,
}

impl RateLimiter {
    /// Requests per second, which is also the largest burst; `None` for no limit.
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

    /// Permission to open one more stream.
    pub fn acquire_stream(&self, caller: &str) -> Result<StreamPermit, ApiError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(caller.to_string()).or_default();
        if *open >= STREAMS_PER_CALLER_MAX {
            let detail = format!("{open} streams are already open; the limit per caller is {STREAMS_PER_CALLER_MAX}");
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
    /// The tokens at `now`; a bucket holds at most one second's worth.
    fn tokens_at(&self, rate: f64, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        (self.tokens + since * rate).min(rate)
    }
}

/// The address of the client, which identifies a caller without a token.
pub fn peer_address(request: &Request) -> String {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or_else(|| "unknown".to_string(), |ConnectInfo(peer)| peer.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_above_its_rate_is_refused_and_other_callers_are_not() {
        let limiter = RateLimiter::new(Some(5));
        assert!((0..5).all(|_| limiter.take_request("a").is_ok()));
        assert_eq!(limiter.take_request("a").map_err(|error| error.status()), Err(StatusCode::TOO_MANY_REQUESTS));
        assert!(limiter.take_request("b").is_ok());
        assert!((0..100).all(|_| RateLimiter::new(None).take_request("a").is_ok()));
    }

    #[test]
    fn streams_are_counted_until_they_close() {
        let limiter = RateLimiter::new(None);
        let mut open: Vec<StreamPermit> =
            (0..STREAMS_PER_CALLER_MAX).filter_map(|_| limiter.acquire_stream("a").ok()).collect();
        assert_eq!(open.len(), STREAMS_PER_CALLER_MAX);
        assert!(limiter.acquire_stream("a").is_err() && limiter.acquire_stream("b").is_ok());
        open.pop();
        assert!(limiter.acquire_stream("a").is_ok());
    }
}
