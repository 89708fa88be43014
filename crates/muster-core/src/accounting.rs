//! Accounting: what tenants hold, used and lost, and what it costs them.

pub mod decayed_usage;
pub mod ledger;
pub mod preemption_loss;
pub mod tenant;
