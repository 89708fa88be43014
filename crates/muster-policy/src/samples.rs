//! Sample views to test policies with: default jobs, tenants, clusters, nodes, candidates and failures, with chosen
//! fields replaced.
//!
//! They are built by the functions that build the arguments of hooks, so they have the same fields.

mod defaults;
mod field_spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use muster_core::nearest::nearest;
use muster_core::policy::Moment;
use muster_core::time::Timestamp;

use crate::policy_value::PolicyValue;
use crate::views;
use field_spec::{FieldSpec, FieldType};

/// Midnight of Monday, 5 January 2026, in seconds since 1970.
const MONDAY_UNIX_S: i64 = 1_767_571_200;
/// The default time is a Wednesday at noon.
const DEFAULT_WEEKDAY: i64 = 2;
const DEFAULT_HOUR: i64 = 12;
/// Fields that set the time of the call, with their maximum; only for views with a `now`.
const TIME_FIELDS: [(&str, i64); 4] = [("unix", i64::MAX / 1_000), ("hour", 23), ("minute", 59), ("weekday", 6)];

/// A kind of view: a parameter of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewKind {
    /// By default a job of one whole GPU, on a Wednesday at noon.
    Job,
    /// By default a tenant that holds nothing.
    Tenant,
    /// By default 64 idle GPUs, on a Wednesday at noon.
    Cluster,
    /// By default a node with eight H100.
    Node,
    /// A running job that might be preempted.
    Candidate,
    /// By default an attempt that ended with exit code 1.
    Failure,
}

/// Fields by name.
type FieldValues = Vec<(&'static str, PolicyValue)>;

impl ViewKind {
    pub const ALL: [ViewKind; 6] =
        [ViewKind::Job, ViewKind::Tenant, ViewKind::Cluster, ViewKind::Node, ViewKind::Candidate, ViewKind::Failure];

    /// The name of the builtin of tests and of the hook parameter.
    pub fn as_str(self) -> &'static str {
        match self {
            ViewKind::Job => "job",
            ViewKind::Tenant => "tenant",
            ViewKind::Cluster => "cluster",
            ViewKind::Node => "node",
            ViewKind::Candidate => "candidate",
            ViewKind::Failure => "failure",
        }
    }

    /// The attributes that policies may read.
    pub(crate) fn attributes(self) -> Vec<&'static str> {
        self.default_record().into_iter().map(|(name, _)| name).collect()
    }

    /// True if the view carries the time of the call.
    pub(crate) fn has_now(self) -> bool {
        matches!(self, ViewKind::Job | ViewKind::Cluster)
    }

    /// The attributes of `now`.
    pub(crate) fn now_attributes() -> Vec<&'static str> {
        match views::moment(moment_from(&BTreeMap::new())) {
            PolicyValue::Record(fields) => fields.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }

    /// The default view with these fields replaced.
    pub fn sample_with(self, given: Vec<(String, PolicyValue)>) -> Result<PolicyValue, String> {
        let mut record = self.default_record();
        let mut times = BTreeMap::new();
        for (name, value) in &given {
            let field = self.field_spec(&record, name)?;
            let value = field.accept(value).ok_or_else(|| self.field_error(name, value, &field))?;
            match (record.iter_mut().find(|(known, _)| known == name), value) {
                (Some(field), value) => field.1 = value,
                (None, PolicyValue::Int(number)) => drop(times.insert(name.as_str(), number)),
                (None, _) => {}
            }
        }
        let is_given = |name: &str| given.iter().any(|(given, _)| given == name);
        match self {
            ViewKind::Job => derive_job_fields(&mut record, &times, is_given),
            ViewKind::Cluster => set_field(&mut record, "now", views::moment(moment_from(&times))),
            ViewKind::Failure => derive_failure_fields(&mut record, is_given),
            _ => {}
        }
        Ok(PolicyValue::Record(record))
    }

    /// Parse the value of a field from the command line: `8`, `true`, `a+b`.
    pub fn parse_field(self, name: &str, text: &str) -> Result<PolicyValue, String> {
        let field = self.field_spec(&self.default_record(), name)?;
        let value = field.parse(text).and_then(|value| field.accept(&value));
        value.ok_or_else(|| self.field_error(name, &PolicyValue::text(text), &field))
    }

    fn field_error(self, name: &str, value: &PolicyValue, field: &FieldSpec) -> String {
        let (view, kind, expected) = (self.as_str(), value.type_name(), field.expected_text());
        format!("{view}: `{name}` is {value} ({kind}); it must be {expected}")
    }

    /// The accepted values of a field; an error if the view has no such field.
    fn field_spec(self, record: &FieldValues, name: &str) -> Result<FieldSpec, String> {
        if let Some((_, max)) = TIME_FIELDS.iter().find(|(time, _)| *time == name).filter(|_| self.has_now()) {
            return Ok(FieldSpec { kind: FieldType::Integer(*max), nullable: false });
        }
        if let Some((_, default)) = record.iter().find(|(known, _)| *known == name && name != "now") {
            return Ok(FieldSpec::of_default(name, default));
        }
        let times = TIME_FIELDS.iter().map(|(time, _)| *time).filter(|_| self.has_now());
        let known = record.iter().map(|(known, _)| *known).filter(|known| *known != "now").chain(times);
        Err(match nearest(name, known.clone()) {
            Some(meant) => format!("{} has no field `{name}`; did you mean `{meant}`?", self.as_str()),
            None => {
                let known = known.collect::<Vec<_>>().join(", ");
                format!("{} has no field `{name}`; its fields are {known}", self.as_str())
            }
        })
    }

    fn default_record(self) -> FieldValues {
        let record = match self {
            ViewKind::Job => views::job(&defaults::job()),
            ViewKind::Tenant => views::tenant(&defaults::tenant()),
            ViewKind::Cluster => views::cluster(&defaults::cluster()),
            ViewKind::Node => views::node(&defaults::node()),
            ViewKind::Candidate => views::candidate(&defaults::candidate()),
            ViewKind::Failure => views::failure(&defaults::failure()),
        };
        match record {
            PolicyValue::Record(fields) => fields,
            _ => Vec::new(),
        }
    }
}

/// Set the fields of a job that follow from others, unless they are given.
fn derive_job_fields(record: &mut FieldValues, times: &BTreeMap<&str, i64>, is_given: impl Fn(&str) -> bool) {
    let (gpus, tasks) = (int_field(record, "gpus"), int_field(record, "tasks").max(1));
    if !is_given("gpus_per_task") {
        set_field(record, "gpus_per_task", PolicyValue::Int((gpus + tasks - 1) / tasks));
    }
    if gpus == 0 && !is_given("gpu_share") {
        set_field(record, "gpu_share", PolicyValue::Float(0.0));
    }
    set_field(record, "now", views::moment(moment_from(times)));
}

/// An attempt that was killed by a signal or vanished has no exit code.
fn derive_failure_fields(record: &mut FieldValues, is_given: impl Fn(&str) -> bool) {
    if !is_given("exit_code") && (is_given("signal") || is_given("why")) {
        set_field(record, "exit_code", PolicyValue::None);
    }
}

fn moment_from(times: &BTreeMap<&str, i64>) -> Moment {
    let default = match times.get("unix") {
        Some(unix) => Moment::of(Timestamp(unix * 1_000), 0),
        None => Moment { unix: 0, hour: DEFAULT_HOUR, minute: 0, weekday: DEFAULT_WEEKDAY },
    };
    let time = |name: &str, default: i64| times.get(name).copied().unwrap_or(default);
    let (hour, minute, weekday) =
        (time("hour", default.hour), time("minute", default.minute), time("weekday", default.weekday));
    let unix = MONDAY_UNIX_S + weekday * 86_400 + hour * 3_600 + minute * 60;
    Moment { unix: time("unix", unix), hour, minute, weekday }
}

fn int_field(record: &FieldValues, name: &str) -> i64 {
    match record.iter().find(|(known, _)| *known == name) {
        Some((_, PolicyValue::Int(number))) => *number,
        _ => 0,
    }
}

fn set_field(record: &mut FieldValues, name: &str, value: PolicyValue) {
    if let Some(field) = record.iter_mut().find(|(known, _)| *known == name) {
        field.1 = value;
    }
}
