//! Amounts of GPUs, including fractions.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Amount of GPUs in thousandths. Serialised as an integer if it is whole, otherwise with up to three decimals: `2`,
/// `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GpuAmount {
    /// Thousandths of a GPU.
    pub milli: u64,
}

impl GpuAmount {
    /// An amount in thousandths.
    pub fn from_milli(milli: u64) -> GpuAmount {
        GpuAmount { milli }
    }

    /// True for a whole number of GPUs.
    pub fn is_whole(self) -> bool {
        self.milli.is_multiple_of(1_000)
    }
}

impl fmt::Display for GpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.milli / 1_000, self.milli % 1_000);
        match part {
            0 => write!(f, "{whole}"),
            part => f.write_str(format!("{whole}.{part:03}").trim_end_matches('0')),
        }
    }
}

impl Serialize for GpuAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_whole() {
            true => serializer.serialize_u64(self.milli / 1_000),
            false => serializer.serialize_f64(self.milli as f64 / 1_000.0),
        }
    }
}

struct GpuAmountVisitor;

impl Visitor<'_> for GpuAmountVisitor {
    type Value = GpuAmount;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number of GPUs")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<GpuAmount, E> {
        Ok(GpuAmount { milli: number.saturating_mul(1_000) })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<GpuAmount, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<GpuAmount, E> {
        // The cast clamps values out of range and turns NaN into 0.
        Ok(GpuAmount { milli: (number * 1_000.0).round() as u64 })
    }
}

impl<'de> Deserialize<'de> for GpuAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GpuAmount, D::Error> {
        deserializer.deserialize_any(GpuAmountVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<u64> {
        muster_json::from_str::<GpuAmount>(text).ok().map(|amount| amount.milli)
    }

    #[test]
    fn whole_gpus_serialize_as_integers_and_shares_as_decimals() {
        for (milli, written) in [(0, "0"), (2_000, "2"), (500, "0.5"), (1_333, "1.333"), (10_050, "10.05")] {
            let amount = GpuAmount::from_milli(milli);
            assert_eq!([amount.to_string(), muster_json::to_string(&amount)], [written, written]);
            assert_eq!(read(written), Some(milli), "{written}");
        }
    }

    #[test]
    fn an_invalid_gpu_amount_is_refused_or_clamped() {
        assert_eq!((read("1e300"), read("-0.5")), (Some(u64::MAX), Some(0)));
        assert_eq!((read("\"2\""), read("-2"), read("null")), (None, None, None));
    }
}
