//! The order fence: an agent follows only orders for its own incarnation, and never older ones than before.

use muster_protocol::agent::Orders;

/// The highest (epoch, generation) of the orders for this incarnation.
///
/// The fence is not kept on disk. A restarted agent is another incarnation, and the server addresses orders to an
/// incarnation only after its registration is in the journal. All orders that the restarted agent accepts are
/// therefore computed from a state newer than every order of its predecessor, even if the disk of the node was
/// lost.
#[derive(Debug)]
pub(crate) struct OrderFence {
    incarnation: String,
    newest_stamp: Option<(u64, u64)>,
    /// The last orders were for this incarnation.
    is_registered: bool,
}

impl OrderFence {
    /// The fence of an agent that has received no orders.
    pub fn new(incarnation: &str) -> OrderFence {
        OrderFence { incarnation: incarnation.to_string(), newest_stamp: None, is_registered: false }
    }

    /// True if the orders may be followed. Orders of the same generation are a repetition and accepted. Older
    /// orders were overtaken on the way, or come from a replaced leader.
    pub fn accepts(&mut self, orders: &Orders) -> bool {
        self.is_registered = orders.incarnation == self.incarnation;
        let stamp = (orders.epoch, orders.generation);
        let is_current = self.is_registered && self.newest_stamp.is_none_or(|newest| newest <= stamp);
        if is_current {
            self.newest_stamp = Some(stamp);
        }
        is_current
    }

    /// True if the server knows this incarnation. Until then the agent registers with each heartbeat. It registers
    /// again if a late registration of its predecessor replaces its own.
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(incarnation: &str, epoch: u64, generation: u64) -> Orders {
        Orders {
            node: "n1".to_string(),
            incarnation: incarnation.to_string(),
            epoch,
            generation,
            attempts: Vec::new(),
            pools: Vec::new(),
        }
    }

    #[test]
    fn older_orders_are_refused_and_repeated_ones_are_not() {
        let mut fence = OrderFence::new("a");
        assert!(fence.accepts(&orders("a", 1, 7)));
        assert!(fence.accepts(&orders("a", 1, 7)));
        assert!(!fence.accepts(&orders("a", 1, 6)));
        assert!(fence.accepts(&orders("a", 2, 1)), "a new leader may count from one");
        assert!(!fence.accepts(&orders("a", 1, 900)), "a replaced leader is ignored");
    }

    #[test]
    fn orders_for_a_former_incarnation_are_refused_however_new() {
        let mut fence = OrderFence::new("b");
        assert!(!fence.accepts(&orders("a", 9, 900)), "orders for the predecessor");
        assert!(!fence.is_registered(), "the agent registers");
        assert!(fence.accepts(&orders("b", 1, 7)), "orders for another incarnation do not raise the fence");
        assert!(fence.is_registered());
        assert!(!fence.accepts(&orders("a", 9, 900)));
        assert!(!fence.is_registered(), "the agent registers again");
    }
}
