//! Numbers of GPUs, of which one may be had in part.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// How many GPUs, in thousandths. Written as a whole number where it is one, else with up to three digits: `2`, `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amount {
    /// Thousandths of a GPU.
    pub milli: u64,
}

impl Amount {
    /// So many thousandths.
    pub fn of_milli(milli: u64) -> Amount {
        Amount { milli }
    }

    /// Whether it is a number of whole GPUs.
    pub fn is_whole(self) -> bool {
        self.milli.is_multiple_of(1_000)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.milli / 1_000, self.milli % 1_000);
        match part {
            0 => write!(f, "{whole}"),
            part => f.write_str(format!("{whole}.{part:03}").trim_end_matches('0')),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_whole() {
            true => serializer.serialize_u64(self.milli / 1_000),
            false => serializer.serialize_f64(self.milli as f64 / 1_000.0),
        }
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number of GPUs")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Amount, E> {
        Ok(Amount { milli: number.saturating_mul(1_000) })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Amount, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Amount, E> {
        // What is out of range or no number becomes the nearest that is.
        Ok(Amount { milli: (number * 1_000.0).round() as u64 })
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<u64> {
        muster_json::from_str::<Amount>(text).ok().map(|amount| amount.milli)
    }

    #[test]
    fn whole_gpus_are_whole_numbers() {
        for (milli, written) in [(0, "0"), (2_000, "2"), (500, "0.5"), (1_333, "1.333"), (10_050, "10.05")] {
            let amount = Amount::of_milli(milli);
            assert_eq!([amount.to_string(), muster_json::to_string(&amount)], [written, written]);
            assert_eq!(read(written), Some(milli), "{written}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_or_the_nearest_one() {
        assert_eq!((read("1e300"), read("-0.5")), (Some(u64::MAX), Some(0)));
        assert_eq!((read("\"2\""), read("-2"), read("null")), (None, None, None));
    }
}
