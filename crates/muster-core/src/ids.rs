//! Identifiers of jobs, tenants, nodes and GPUs. They print as users write them, and job numbers sort by value.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A job, `job-42`, or one task of a job array, `job-42.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// Assigned by a counter in the state and never reused.
    pub number: u64,
    /// The index within the array; `None` for a job outside an array.
    pub index: Option<u32>,
}

impl JobId {
    /// A job that is not part of an array.
    pub const fn single(number: u64) -> JobId {
        JobId { number, index: None }
    }

    /// One task of an array.
    pub const fn of_array(number: u64, index: u32) -> JobId {
        JobId { number, index: Some(index) }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => write!(f, "job-{}", self.number),
            Some(index) => write!(f, "job-{}.{index}", self.number),
        }
    }
}

/// The text is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job id; write `job-42`, `42`, or `job-42.3` for one task of an array")]
pub struct NotAJobId(pub String);

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<JobId, NotAJobId> {
        let bad = || NotAJobId(text.to_string());
        let digits = text.strip_prefix("job-").unwrap_or(text);
        let (number, index) = match digits.split_once('.') {
            None => (digits, None),
            Some((number, index)) => (number, Some(plain_number(index).ok_or_else(bad)?)),
        };
        let number = plain_number(number).ok_or_else(bad)?;
        let index = index.map(u32::try_from).transpose().map_err(|_| bad())?;
        Ok(JobId { number, index })
    }
}

/// Accepts digits only: `parse` alone would also accept `+7`.
fn plain_number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JobId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Longest name of a tenant or node, in bytes: enough for a host name.
pub const SLUG_LENGTH_MAX: usize = 63;

/// The text is not a valid name of a tenant or node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid name: use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, beginning with a letter or digit")]
pub struct NotASlug(pub String);

fn slug(text: &str) -> Result<Arc<str>, NotASlug> {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = text.len() <= SLUG_LENGTH_MAX
        && text.bytes().next().is_some_and(alphanumeric)
        && text.bytes().all(|byte| alphanumeric(byte) || matches!(byte, b'-' | b'_' | b'.'));
    if valid { Ok(Arc::from(text)) } else { Err(NotASlug(text.to_string())) }
}

macro_rules! slug_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotASlug;

            fn from_str(text: &str) -> Result<$name, NotASlug> {
                slug(text).map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

slug_id!(
    /// A tenant's name, for example `vision`.
    TenantId
);
slug_id!(
    /// A node's name, for example `gpu01`.
    NodeId
);

/// One device of a node, `gpu01/gpu-3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuId {
    pub node: NodeId,
    pub index: u8,
}

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/gpu-{}", self.node, self.index)
    }
}

/// The text is not a GPU id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a GPU id; write `gpu01/gpu-3`")]
pub struct NotAGpuId(pub String);

impl FromStr for GpuId {
    type Err = NotAGpuId;

    fn from_str(text: &str) -> Result<GpuId, NotAGpuId> {
        let bad = || NotAGpuId(text.to_string());
        let (node, gpu) = text.split_once('/').ok_or_else(bad)?;
        let index = gpu.strip_prefix("gpu-").and_then(plain_number).ok_or_else(bad)?;
        let index = u8::try_from(index).map_err(|_| bad())?;
        Ok(GpuId { node: node.parse().map_err(|_| bad())?, index })
    }
}

impl Serialize for GpuId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GpuId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GpuId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse_alike() {
        for text in ["job-42", "job-42.3"] {
            assert_eq!(text.parse::<JobId>().unwrap().to_string(), text);
        }
        assert_eq!("42".parse::<JobId>().unwrap(), JobId::single(42));
        assert_eq!("n1/gpu-7".parse::<GpuId>().unwrap().to_string(), "n1/gpu-7");
    }

    #[test]
    fn bad_ids_are_refused() {
        for text in ["", "job-", "job--1", "job-+1", "4 2", "42.", "42.x", "job-99999999999999999999"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        for text in ["", "-a", "A", "a b", "ä", &"a".repeat(64)] {
            assert!(text.parse::<TenantId>().is_err(), "{text}");
        }
        for text in ["gpu-1", "n1/1", "n1/gpu-256", "/gpu-1"] {
            assert!(text.parse::<GpuId>().is_err(), "{text}");
        }
    }
}
