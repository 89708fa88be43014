//! Priority ceilings: the highest priority that an actor may give to a job, and the source of that limit.

use crate::objects::tenant::Tier;

/// The highest priority that an actor may give to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityCeiling {
    pub priority: u32,
    pub source: CeilingSource,
}

/// The source of a priority ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CeilingSource {
    /// The actor is an operator, an admin, local or the server: only `PRIORITY_MAX` limits it.
    Unlimited,
    /// The tier of the tenant.
    Tier(Tier),
    /// A grant to the tenant.
    Tenant,
    /// A grant to the token.
    Token,
}
