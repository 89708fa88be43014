//! The value of a secret. On the wire it is base64; no log line and no message for people shows it.

use std::fmt;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of a secret. They are overwritten when the value is dropped; copies that a serialiser made are not.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretValue(Vec<u8>);

impl SecretValue {
    /// A value from its bytes.
    pub fn new(bytes: Vec<u8>) -> SecretValue {
        SecretValue(bytes)
    }

    /// The bytes. Never log them.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "***({} bytes)", self.0.len())
    }
}

impl Drop for SecretValue {
    fn drop(&mut self) {
        self.0.fill(0);
        black_box(&self.0); // Otherwise the compiler may leave out a write that nobody reads.
    }
}

impl Serialize for SecretValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SecretValue, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The message must not contain the text.
        STANDARD.decode(text).map(SecretValue).map_err(|_| D::Error::custom("the value is not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_round_trips_and_is_never_printed() {
        let value = SecretValue::new(b"hunter2\xff\0".to_vec());
        let json = muster_json::to_string(&value);
        assert_eq!(muster_json::from_str::<SecretValue>(&json).unwrap(), value);
        assert_eq!(format!("{value:?}"), "***(9 bytes)");
        let error = muster_json::from_str::<SecretValue>("\"hunter2!\"").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
