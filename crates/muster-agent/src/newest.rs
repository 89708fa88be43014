//! Which orders are the newest a node has seen.

use muster_protocol::agent::Orders;

/// The highest (epoch, generation) so far.
#[derive(Debug, Default)]
pub(crate) struct Newest(Option<(u64, u64)>);

impl Newest {
    /// Whether these orders may be followed. The same generation again is a repetition and welcome; an older one
    /// comes from a message that was overtaken, or from a leader that was replaced.
    pub fn accepts(&mut self, orders: &Orders) -> bool {
        let stamp = (orders.epoch, orders.generation);
        let fresh = self.0.is_none_or(|newest| newest <= stamp);
        if fresh {
            self.0 = Some(stamp);
        }
        fresh
    }

    /// Whether any orders came: then the server knows this node.
    pub fn has_some(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(epoch: u64, generation: u64) -> Orders {
        Orders { node: "n1".to_string(), epoch, generation, attempts: Vec::new(), pools: Vec::new() }
    }

    #[test]
    fn older_orders_are_refused_and_repeated_ones_are_not() {
        let mut newest = Newest::default();
        assert!(newest.accepts(&orders(1, 7)));
        assert!(newest.accepts(&orders(1, 7)));
        assert!(!newest.accepts(&orders(1, 6)));
        assert!(newest.accepts(&orders(2, 1)), "a new leader may count from one");
        assert!(!newest.accepts(&orders(1, 900)), "a replaced leader is not heard");
    }
}
