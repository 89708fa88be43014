//! What is printed: what was read and assumed, and the figures.

use std::collections::BTreeMap;

use muster_sim::figures::{Figures, TenantFigures};
use muster_sim::jobs::Log;
use muster_sim::rehearsal::{Assumptions, Site};
use serde::Serialize;

use crate::error::CliError;
use crate::output::{self, Cell, Column, ListArgs};
use crate::units;

/// All of it, as machines read it.
#[derive(Debug, Serialize)]
pub struct Report {
    log: LogReport,
    cluster: ClusterReport,
    assumptions: AssumptionsReport,
    /// The figures, policy by policy.
    pub policies: Vec<Figures>,
}

#[derive(Debug, Serialize)]
struct LogReport {
    format: &'static str,
    jobs: usize,
    left_out: BTreeMap<String, u64>,
    first_submit_ms: i64,
    /// From the first submission to the last.
    span_s: f64,
    /// Wishes for models that the cluster does not have, and how many jobs have them: they take any GPU.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    models_missing: BTreeMap<String, u64>,
}

/// The cluster.
#[derive(Debug, Serialize)]
pub struct ClusterReport {
    about: String,
    nodes: usize,
    gpus: u32,
    /// The words for it, where it was made for the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_for_the_log: Option<String>,
    #[serde(skip)]
    site: Option<Site>,
}

#[derive(Debug, Serialize)]
struct AssumptionsReport {
    durations_told: bool,
    saves_every_s: Option<f64>,
}

impl ClusterReport {
    /// A cluster, with its words if it was made for the log.
    pub fn of(site: &Site, made_for_the_log: Option<String>) -> ClusterReport {
        let (nodes, gpus) = (site.nodes().len(), site.gpus());
        ClusterReport { about: site.about(), nodes, gpus, made_for_the_log, site: Some(site.clone()) }
    }
}

impl Report {
    /// Without figures yet.
    pub fn new(log: &Log, cluster: ClusterReport, assumptions: &Assumptions) -> Report {
        let submit = |job: Option<&muster_sim::jobs::LoggedJob>| job.map_or(0, |job| job.submit_ms);
        let (first_submit_ms, last_ms) = (submit(log.jobs.first()), submit(log.jobs.last()));
        let mut models_missing = BTreeMap::new();
        if let Some(site) = &cluster.site {
            let wishes = log.jobs.iter().filter_map(|job| job.model.as_ref());
            wishes
                .filter(|wish| !site.has_model(wish))
                .for_each(|wish| *models_missing.entry(wish.clone()).or_default() += 1);
        }
        Report {
            log: LogReport {
                format: log.format.word(),
                jobs: log.jobs.len(),
                left_out: log.left_out.clone(),
                first_submit_ms,
                span_s: (last_ms - first_submit_ms) as f64 / 1e3,
                models_missing,
            },
            cluster,
            assumptions: AssumptionsReport {
                durations_told: assumptions.told,
                saves_every_s: assumptions.saves_every_ms.map(|ms| ms as f64 / 1e3),
            },
            policies: Vec::new(),
        }
    }

    /// With figures.
    pub fn with(self, policies: Vec<Figures>) -> Report {
        Report { policies, ..self }
    }

    /// What a person should know before the figures.
    pub fn notes(&self) -> Vec<String> {
        let log = &self.log;
        let span = units::span((log.span_s * 1e3) as i64);
        let jobs = units::count(log.jobs as u64, "job");
        let mut notes = vec![format!("{jobs} that came within {span}, format {}", log.format)];
        if !log.left_out.is_empty() {
            notes.push(left_out(&log.left_out));
        }
        notes.push(match &self.cluster.made_for_the_log {
            Some(words) => format!(
                "cluster: {}, made for this log: enough for 95 % of the time in which jobs come; others with \
                 `--nodes {words}` or `--cluster FILE`",
                self.cluster.about
            ),
            None => format!("cluster: {}", self.cluster.about),
        });
        for (model, jobs) in &log.models_missing {
            notes.push(format!(
                "{} asked for `{model}`, which is not there: any GPU will do",
                units::count(*jobs, "job")
            ));
        }
        notes
    }

    /// Print the figures.
    pub fn print(&self, args: &ListArgs, tenants: bool) -> Result<(), CliError> {
        if !tenants {
            return output::list(args, false, &COLUMNS, self.policies.clone(), self);
        }
        let of = |figures: &Figures| {
            let policy = figures.policy.clone();
            let line = move |tenant: &TenantFigures| (policy.clone(), tenant.clone());
            figures.tenants.iter().map(line).collect::<Vec<_>>()
        };
        output::list(args, false, &TENANT_COLUMNS, self.policies.iter().flat_map(of).collect(), self)
    }
}

/// What was left out of a log, and why.
pub fn left_out(reasons: &BTreeMap<String, u64>) -> String {
    let reasons: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    format!("left out: {}", reasons.join(", "))
}

const COLUMNS: [Column<Figures>; 30] = [
    Column::new("POLICY", |row| row.policy.as_str().into()),
    Column::new("DONE", |row| row.done.into()),
    Column::wide("TIMED-OUT", |row| row.timed_out.into()),
    Column::new("REFUSED", |row| row.refused.into()),
    Column::new("WAIT-MEAN-S", |row| whole(row.wait_s.mean)),
    Column::new("WAIT-P50-S", |row| whole(row.wait_s.p50)),
    Column::new("WAIT-P95-S", |row| whole(row.wait_s.p95)),
    Column::new("WAIT-P99-S", |row| whole(row.wait_s.p99)),
    Column::new("WAIT-MAX-S", |row| whole(row.wait_s.max)),
    Column::new("JCT-MEAN-S", |row| whole(row.completion_s.mean)),
    Column::wide("JCT-P50-S", |row| whole(row.completion_s.p50)),
    Column::wide("JCT-P95-S", |row| whole(row.completion_s.p95)),
    Column::new("JCT-P99-S", |row| whole(row.completion_s.p99)),
    Column::wide("JCT-MAX-S", |row| whole(row.completion_s.max)),
    Column::new("SLOWDOWN", |row| fine(row.slowdown.mean)),
    Column::wide("SLOWDOWN-P50", |row| fine(row.slowdown.p50)),
    Column::wide("SLOWDOWN-P95", |row| fine(row.slowdown.p95)),
    Column::wide("SLOWDOWN-P99", |row| fine(row.slowdown.p99)),
    Column::wide("SLOWDOWN-MAX", |row| fine(row.slowdown.max)),
    Column::wide("MAKESPAN-S", |row| whole(row.makespan_s)),
    Column::new("UTIL%", |row| percent(row.utilisation)),
    Column::wide("UTIL-TO-END%", |row| percent(row.utilisation_to_the_end)),
    Column::wide("IDLE-WHILE-WAITING%", |row| percent(row.idle_while_waiting)),
    Column::new("FRAGMENTS%", |row| row.fragmentation.map_or_else(|| "-".into(), percent)),
    Column::new("FAIRNESS", |row| format!("{:.3}", row.fairness).into()),
    Column::new("PREEMPTIONS", |row| row.preemptions.into()),
    Column::new("LOST-GPU-S", |row| whole(row.lost_gpu_s)),
    Column::wide("GPU-HOURS", |row| whole(row.gpu_hours)),
    Column::new("KWH-MAX", |row| row.energy_kwh.map_or_else(|| "-".into(), whole)),
    Column::wide("ROUNDS", |row| row.rounds.into()),
];

type TenantRow = (String, TenantFigures);

const TENANT_COLUMNS: [Column<TenantRow>; 7] = [
    Column::new("TENANT", |row| row.1.tenant.as_str().into()),
    Column::new("POLICY", |row| row.0.as_str().into()),
    Column::new("JOBS", |row| row.1.jobs.into()),
    Column::new("GPU-HOURS", |row| whole(row.1.gpu_hours)),
    Column::new("WAIT-MEAN-S", |row| whole(row.1.wait_s_mean)),
    Column::new("SLOWDOWN", |row| fine(row.1.slowdown_mean)),
    Column::new("PREEMPTIONS", |row| row.1.preemptions.into()),
];

fn whole(value: f64) -> Cell {
    format!("{value:.0}").into()
}

fn fine(value: f64) -> Cell {
    format!("{value:.2}").into()
}

fn percent(value: f64) -> Cell {
    format!("{:.1}", value * 100.0).into()
}
