//! Accounting: resources that tenants hold, decayed usage, charges and prices, and preemption loss.

pub mod decayed_usage;
pub mod ledger;
pub mod preemption_loss;
pub mod tenant;
