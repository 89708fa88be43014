//! Jobs, tenants, clusters, nodes, candidates and failures to try policies on: the usual ones, with fields that somebody names.
//!
//! They are made by the same functions that show the real ones to policies, so they have the same fields.

mod field_spec;
#[cfg(test)]
mod tests;
mod defaults;

use std::collections::BTreeMap;

use muster_core::nearest::nearest;
use muster_core::policy::Moment;
use muster_core::time::Timestamp;

use crate::hooks::views;
use crate::policy_value::PolicyValue;
use field_spec::{FieldSpec, FieldType};

/// Midnight of a Monday, in seconds since 1970.
const MONDAY_UNIX_S: i64 = 1_767_571_200;
/// Where nothing is said of the time it is Wednesday, noon.
const DEFAULT_WEEKDAY: i64 = 2;
const DEFAULT_HOUR: i64 = 12;
/// Fields that tell when a question is asked, of what has a `now`.
const TIME_FIELDS: [(&str, i64); 4] = [("unix", i64::MAX / 1_000), ("hour", 23), ("minute", 59), ("weekday", 6)];

/// Something that policies are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewKind {
    /// A job: one whole GPU, Wednesday at noon.
    Job,
    /// A tenant that holds nothing.
    Tenant,
    /// A cluster of 64 GPUs that nobody holds, Wednesday at noon.
    Cluster,
    /// A node with eight H100.
    Node,
    /// A running job that might be displaced.
    Candidate,
    /// An attempt that ended with 1.
    Failure,
}

/// Fields by name.
type FieldValues = Vec<(&'static str, PolicyValue)>;

impl ViewKind {
    /// All of them.
    pub const ALL: [ViewKind; 6] =
        [ViewKind::Job, ViewKind::Tenant, ViewKind::Cluster, ViewKind::Node, ViewKind::Candidate, ViewKind::Failure];

    /// Its name, in tests and as a parameter.
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

    /// Whether it says when the question is asked.
    pub(crate) fn has_now(self) -> bool {
        matches!(self, ViewKind::Job | ViewKind::Cluster)
    }

    /// Those of `now`.
    pub(crate) fn now_attributes() -> Vec<&'static str> {
        match views::moment(moment_from(&BTreeMap::new())) {
            PolicyValue::Record(fields) => fields.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }

    /// The usual one, but for these fields.
    pub fn sample_with(self, given: Vec<(String, PolicyValue)>) -> Result<PolicyValue, String> {
        let mut record = self.default_record();
        let mut times = BTreeMap::new();
        for (name, value) in &given {
            let field = self.field_spec(&record, name)?;
            let value = field.accept(value).ok_or_else(|| self.field_error(name, value, &field))?;
            match (record.iter_mut().find(|(known, _)| known == name), value) {
                (Some(place), value) => place.1 = value,
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

    /// The value of a field, as somebody writes it on a command line: `8`, `true`, `a+b`. A label is `labels.team`.
    pub fn parse_field(self, name: &str, text: &str) -> Result<PolicyValue, String> {
        let field = self.field_spec(&self.default_record(), name)?;
        let value = field.parse(text);
        let said = PolicyValue::text(text);
        value.and_then(|value| field.accept(&value)).ok_or_else(|| self.field_error(name, &said, &field))
    }

    fn field_error(self, name: &str, value: &PolicyValue, field: &FieldSpec) -> String {
        let (word, kind, wanted) = (self.as_str(), value.type_name(), field.expected_text());
        format!("{word}: `{name}` is {value} ({kind}); it must be {wanted}")
    }

    /// What a field may be.
    fn field_spec(self, record: &FieldValues, name: &str) -> Result<FieldSpec, String> {
        if let Some((_, most)) = TIME_FIELDS.iter().find(|(time, _)| *time == name).filter(|_| self.has_now()) {
            return Ok(FieldSpec { kind: FieldType::Integer(*most), nullable: false });
        }
        if let Some((_, usual)) = record.iter().find(|(known, _)| *known == name && name != "now") {
            return Ok(FieldSpec::of_default(name, usual));
        }
        let times = TIME_FIELDS.iter().map(|(time, _)| *time).filter(|_| self.has_now());
        let known = record.iter().map(|(known, _)| *known).filter(|known| *known != "now").chain(times);
        Err(match nearest(name, known.clone()) {
            Some(meant) => format!("{}: there is no field `{name}`; did you mean `{meant}`?", self.as_str()),
            None => {
                let known = known.collect::<Vec<_>>().join(", ");
                format!("{}: there is no field `{name}`; it has {known}", self.as_str())
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

/// What follows from what was given.
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

/// Who was killed by a signal, or vanished, ended with no code.
fn derive_failure_fields(record: &mut FieldValues, is_given: impl Fn(&str) -> bool) {
    if !is_given("exit_code") && (is_given("signal") || is_given("why")) {
        set_field(record, "exit_code", PolicyValue::None);
    }
}

fn moment_from(times: &BTreeMap<&str, i64>) -> Moment {
    let told = match times.get("unix") {
        Some(unix) => Moment::of(Timestamp(unix * 1_000), 0),
        None => Moment { unix: 0, hour: DEFAULT_HOUR, minute: 0, weekday: DEFAULT_WEEKDAY },
    };
    let time = |name: &str, told: i64| times.get(name).copied().unwrap_or(told);
    let (hour, minute, weekday) =
        (time("hour", told.hour), time("minute", told.minute), time("weekday", told.weekday));
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
    if let Some(place) = record.iter_mut().find(|(known, _)| *known == name) {
        place.1 = value;
    }
}
