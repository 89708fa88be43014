//! Jobs, tenants, clusters, nodes, candidates and failures to try policies on: the usual ones, with fields that somebody names.
//!
//! They are made by the same functions that show the real ones to policies, so they have the same fields.

mod field;
#[cfg(test)]
mod tests;
mod usual;

use std::collections::BTreeMap;

use muster_core::nearest::nearest;
use muster_core::policy::Moment;
use muster_core::time::Timestamp;

use crate::hooks::views;
use crate::plain::Plain;
use field::{Field, Kind};

/// Midnight of a Monday, in seconds since 1970.
const MONDAY_UNIX: i64 = 1_767_571_200;
/// Where nothing is said of the time it is Wednesday, noon.
const USUAL_WEEKDAY: i64 = 2;
const USUAL_HOUR: i64 = 12;
/// Fields that tell when a question is asked, of what has a `now`.
const TIMES: [(&str, i64); 4] = [("unix", i64::MAX / 1_000), ("hour", 23), ("minute", 59), ("weekday", 6)];

/// Something that policies are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sample {
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
type Record = Vec<(&'static str, Plain)>;

impl Sample {
    /// All of them.
    pub const ALL: [Sample; 6] =
        [Sample::Job, Sample::Tenant, Sample::Cluster, Sample::Node, Sample::Candidate, Sample::Failure];

    /// Its name, in tests and as a parameter.
    pub fn word(self) -> &'static str {
        match self {
            Sample::Job => "job",
            Sample::Tenant => "tenant",
            Sample::Cluster => "cluster",
            Sample::Node => "node",
            Sample::Candidate => "candidate",
            Sample::Failure => "failure",
        }
    }

    /// The attributes that policies may read.
    pub(crate) fn attributes(self) -> Vec<&'static str> {
        self.usual().into_iter().map(|(name, _)| name).collect()
    }

    /// Whether it says when the question is asked.
    pub(crate) fn has_moment(self) -> bool {
        matches!(self, Sample::Job | Sample::Cluster)
    }

    /// Those of `now`.
    pub(crate) fn moment_attributes() -> Vec<&'static str> {
        match views::moment(moment(&BTreeMap::new())) {
            Plain::Record(fields) => fields.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }

    /// The usual one, but for these fields.
    pub fn with(self, given: Vec<(String, Plain)>) -> Result<Plain, String> {
        let mut record = self.usual();
        let mut times = BTreeMap::new();
        for (name, value) in &given {
            let field = self.field(&record, name)?;
            let value = field.taken(value).ok_or_else(|| self.wrong(name, value, &field))?;
            match (record.iter_mut().find(|(known, _)| known == name), value) {
                (Some(place), value) => place.1 = value,
                (None, Plain::Int(number)) => drop(times.insert(name.as_str(), number)),
                (None, _) => {}
            }
        }
        let is_given = |name: &str| given.iter().any(|(given, _)| given == name);
        match self {
            Sample::Job => settle_job(&mut record, &times, is_given),
            Sample::Cluster => put(&mut record, "now", views::moment(moment(&times))),
            Sample::Failure => settle_failure(&mut record, is_given),
            _ => {}
        }
        Ok(Plain::Record(record))
    }

    /// The value of a field, as somebody writes it on a command line: `8`, `true`, `a+b`. A label is `labels.team`.
    pub fn read(self, name: &str, text: &str) -> Result<Plain, String> {
        let field = self.field(&self.usual(), name)?;
        let value = field.read(text);
        let said = Plain::text(text);
        value.and_then(|value| field.taken(&value)).ok_or_else(|| self.wrong(name, &said, &field))
    }

    fn wrong(self, name: &str, value: &Plain, field: &Field) -> String {
        let (word, kind, wanted) = (self.word(), value.kind(), field.wanted());
        format!("{word}: `{name}` is {value} ({kind}); it must be {wanted}")
    }

    /// What a field may be.
    fn field(self, record: &Record, name: &str) -> Result<Field, String> {
        if let Some((_, most)) = TIMES.iter().find(|(time, _)| *time == name).filter(|_| self.has_moment()) {
            return Ok(Field { kind: Kind::Whole(*most), or_none: false });
        }
        if let Some((_, usual)) = record.iter().find(|(known, _)| *known == name && name != "now") {
            return Ok(Field::of(name, usual));
        }
        let times = TIMES.iter().map(|(time, _)| *time).filter(|_| self.has_moment());
        let known = record.iter().map(|(known, _)| *known).filter(|known| *known != "now").chain(times);
        Err(match nearest(name, known.clone()) {
            Some(meant) => format!("{}: there is no field `{name}`; did you mean `{meant}`?", self.word()),
            None => {
                let known = known.collect::<Vec<_>>().join(", ");
                format!("{}: there is no field `{name}`; it has {known}", self.word())
            }
        })
    }

    fn usual(self) -> Record {
        let record = match self {
            Sample::Job => views::job(&usual::job()),
            Sample::Tenant => views::tenant(&usual::tenant()),
            Sample::Cluster => views::cluster(&usual::cluster()),
            Sample::Node => views::node(&usual::node()),
            Sample::Candidate => views::candidate(&usual::candidate()),
            Sample::Failure => views::failure(&usual::failure()),
        };
        match record {
            Plain::Record(fields) => fields,
            _ => Vec::new(),
        }
    }
}

/// What follows from what was given.
fn settle_job(record: &mut Record, times: &BTreeMap<&str, i64>, is_given: impl Fn(&str) -> bool) {
    let (gpus, tasks) = (whole(record, "gpus"), whole(record, "tasks").max(1));
    if !is_given("gpus_per_task") {
        put(record, "gpus_per_task", Plain::Int((gpus + tasks - 1) / tasks));
    }
    if gpus == 0 && !is_given("gpu_share") {
        put(record, "gpu_share", Plain::Float(0.0));
    }
    put(record, "now", views::moment(moment(times)));
}

/// Who was killed by a signal, or vanished, ended with no code.
fn settle_failure(record: &mut Record, is_given: impl Fn(&str) -> bool) {
    if !is_given("exit_code") && (is_given("signal") || is_given("why")) {
        put(record, "exit_code", Plain::None);
    }
}

fn moment(times: &BTreeMap<&str, i64>) -> Moment {
    let told = match times.get("unix") {
        Some(unix) => Moment::of(Timestamp(unix * 1_000), 0),
        None => Moment { unix: 0, hour: USUAL_HOUR, minute: 0, weekday: USUAL_WEEKDAY },
    };
    let time = |name: &str, told: i64| times.get(name).copied().unwrap_or(told);
    let (hour, minute, weekday) =
        (time("hour", told.hour), time("minute", told.minute), time("weekday", told.weekday));
    let unix = MONDAY_UNIX + weekday * 86_400 + hour * 3_600 + minute * 60;
    Moment { unix: time("unix", unix), hour, minute, weekday }
}

fn whole(record: &Record, name: &str) -> i64 {
    match record.iter().find(|(known, _)| *known == name) {
        Some((_, Plain::Int(number))) => *number,
        _ => 0,
    }
}

fn put(record: &mut Record, name: &str, value: Plain) {
    if let Some(place) = record.iter_mut().find(|(known, _)| *known == name) {
        place.1 = value;
    }
}
