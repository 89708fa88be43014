//! Which orders an agent follows: those for this incarnation, and of those the newest.

use muster_protocol::agent::Orders;

/// The highest (epoch, generation) of the orders for this incarnation.
///
/// Nothing of it is kept on disk. An agent that starts again is another incarnation, and the server names it in
/// orders only after its registration is in the journal. All orders that it accepts are therefore computed from a
/// state that is newer than every order of its predecessor, also where the disk of the node was lost.
#[derive(Debug)]
pub(crate) struct Newest {
    incarnation: String,
    newest: Option<(u64, u64)>,
    /// The last orders named this incarnation.
    is_known: bool,
}

impl Newest {
    /// Of an agent that has not seen any orders.
    pub fn new(incarnation: &str) -> Newest {
        Newest { incarnation: incarnation.to_string(), newest: None, is_known: false }
    }

    /// Whether these orders may be followed. The same generation again is a repetition and welcome; an older one
    /// was overtaken, or comes from a leader that was replaced.
    pub fn accepts(&mut self, orders: &Orders) -> bool {
        self.is_known = orders.incarnation == self.incarnation;
        let stamp = (orders.epoch, orders.generation);
        let fresh = self.is_known && self.newest.is_none_or(|newest| newest <= stamp);
        if fresh {
            self.newest = Some(stamp);
        }
        fresh
    }

    /// Whether the server knows this incarnation. Until then the agent registers with each heartbeat: also again,
    /// when a late registration of its predecessor has replaced its own.
    pub fn is_known(&self) -> bool {
        self.is_known
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
        let mut newest = Newest::new("a");
        assert!(newest.accepts(&orders("a", 1, 7)));
        assert!(newest.accepts(&orders("a", 1, 7)));
        assert!(!newest.accepts(&orders("a", 1, 6)));
        assert!(newest.accepts(&orders("a", 2, 1)), "a new leader may count from one");
        assert!(!newest.accepts(&orders("a", 1, 900)), "a replaced leader is not heard");
    }

    #[test]
    fn orders_for_a_former_incarnation_are_refused_however_new() {
        let mut newest = Newest::new("b");
        assert!(!newest.accepts(&orders("a", 9, 900)), "its predecessor was meant");
        assert!(!newest.is_known(), "so it registers");
        assert!(newest.accepts(&orders("b", 1, 7)), "orders for others do not count as the newest");
        assert!(newest.is_known());
        assert!(!newest.accepts(&orders("a", 9, 900)));
        assert!(!newest.is_known(), "it registers again");
    }
}
