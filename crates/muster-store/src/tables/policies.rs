//! Rows of policy versions: each bundle that was activated, with author and reason.

use muster_core::objects::policy::BundleVersion;

use super::{BoundStatement, ExpectedRows, Statement};

static ADD_POLICY: Statement = Statement {
    name: "store a policy version",
    sql: "INSERT INTO policies (version, scope, hash, files, hooks, applied_by, why, applied_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn applied(version: &BundleVersion) -> Vec<BoundStatement> {
    vec![ADD_POLICY.bind(vec![
        (version.number as i64).into(),
        version.scope.to_string().into(),
        version.bundle.hash.as_str().into(),
        muster_json::to_string(&version.bundle.files).into(),
        muster_json::to_string(&version.bundle.hooks).into(),
        version.by.as_str().into(),
        version.why.as_str().into(),
        version.at.into(),
    ])]
}
