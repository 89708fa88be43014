//! The highest priority that an actor may give to a job, and where that ceiling comes from.

use crate::objects::tenant::Tier;

/// The highest priority that an actor may give to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityCeiling {
    pub priority: u32,
    /// Where the ceiling comes from.
    pub source: CeilingSource,
}

/// Where a ceiling comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CeilingSource {
    /// The actor is an operator, an admin, local or the server: only the highest priority there is limits it.
    Unlimited,
    /// The tier of the tenant.
    Tier(Tier),
    /// A grant to the tenant.
    Tenant,
    /// A grant to the token.
    Token,
}
