//! Fencing of orders: an agent follows only orders for its own incarnation, and never older ones than before.

use muster_protocol::agent::{Orders, OrdersAge, OrdersStamp};

/// The highest (epoch, generation) of the orders for this incarnation, with the nonce of the epoch.
///
/// The fence is not kept on disk. A restarted agent is another incarnation, and the server addresses orders to an
/// incarnation only after its registration is in the journal. All orders that the restarted agent accepts are
/// therefore computed from a state newer than every order of its predecessor, even if the disk of the node was
/// lost.
#[derive(Debug)]
pub(crate) struct OrderFence {
    incarnation: String,
    newest_stamp: Option<OrdersStamp>,
    /// The last orders were for this incarnation.
    is_registered: bool,
}

/// What an agent does with orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FenceDecision {
    Follow,
    Refuse,
    /// The server repeats an epoch that this agent knows with another nonce: its database has lost a part of its history.
    /// The agent follows such orders only in a new incarnation, whose registration the server must record first.
    Reincarnate,
}

impl OrderFence {
    /// The fence of an agent that has received no orders.
    pub fn new(incarnation: &str) -> OrderFence {
        OrderFence { incarnation: incarnation.to_string(), newest_stamp: None, is_registered: false }
    }

    /// Whether the orders may be followed. Orders of the same generation are a repetition and accepted. Older
    /// orders were overtaken on the way, or come from a replaced leader.
    pub fn judge(&mut self, orders: &Orders) -> FenceDecision {
        self.is_registered = orders.incarnation == self.incarnation;
        let stamp = orders.stamp();
        let age = self.newest_stamp.map_or(OrdersAge::Current, |newest| stamp.age_beside(newest));
        match age {
            _ if !self.is_registered => FenceDecision::Refuse,
            OrdersAge::Older => FenceDecision::Refuse,
            // An agent within the server has no incarnation: no message of another server can reach it.
            OrdersAge::OtherHistory if !self.incarnation.is_empty() => FenceDecision::Reincarnate,
            OrdersAge::Current | OrdersAge::OtherHistory => {
                self.newest_stamp = Some(stamp);
                FenceDecision::Follow
            }
        }
    }

    /// The stamp of the newest accepted orders, for heartbeats.
    pub fn following(&self) -> Option<OrdersStamp> {
        self.newest_stamp
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
            nonce: 0,
            generation,
            attempts: Vec::new(),
            pools: Vec::new(),
            reboot_from: None,
            secrets: Vec::new(),
        }
    }

    impl OrderFence {
        fn accepts(&mut self, orders: &Orders) -> bool {
            self.judge(orders) == FenceDecision::Follow
        }
    }

    #[test]
    fn older_orders_are_refused_and_repeated_ones_are_not() {
        let mut fence = OrderFence::new("a");
        assert!(fence.accepts(&orders("a", 1, 7)));
        assert!(fence.accepts(&orders("a", 1, 7)));
        assert!(!fence.accepts(&orders("a", 1, 6)));
        assert!(fence.accepts(&orders("a", 2, 1)), "a new leader may count from one");
        assert_eq!(fence.following(), Some(OrdersStamp { epoch: 2, nonce: 0, generation: 1 }));
        assert!(!fence.accepts(&orders("a", 1, 900)), "a replaced leader is ignored");
    }

    #[test]
    fn an_epoch_that_is_given_again_is_followed_only_by_a_new_incarnation() {
        let of = |nonce, epoch, generation| Orders { nonce, ..orders("a", epoch, generation) };
        let mut fence = OrderFence::new("a");
        assert!(fence.accepts(&of(1, 5, 70)));
        assert!(!fence.accepts(&of(1, 5, 69)));
        for other in [of(2, 5, 90), of(2, 5, 3), of(2, 4, 90)] {
            assert_eq!(fence.judge(&other), FenceDecision::Reincarnate, "{other:?}");
        }
        assert_eq!(fence.following(), Some(of(1, 5, 70).stamp()));
        assert!(fence.accepts(&of(3, 6, 1)), "the usual takeover");
        assert_eq!(fence.judge(&of(1, 5, 71)), FenceDecision::Reincarnate, "the replaced leader cannot record it");
        assert!(fence.accepts(&orders("a", 6, 2)), "a server of an earlier release sends no nonce");
        let mut inside = OrderFence::new("");
        assert!(inside.accepts(&Orders { incarnation: String::new(), ..of(1, 5, 70) }));
        assert!(inside.accepts(&Orders { incarnation: String::new(), ..of(2, 5, 3) }));
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
