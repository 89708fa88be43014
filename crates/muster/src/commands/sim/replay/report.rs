//! The report of a replay: the log, the cluster, the assumptions, and the figures of each policy.

use std::collections::BTreeMap;

use muster_sim::figures::{Figures, TenantFigures};
use muster_sim::job_log::JobLog;
use muster_sim::trace_replay::{ReplayAssumptions, ReplayCluster};
use serde::Serialize;

use crate::error::CliError;
use crate::output::{self, Cell, Column, ListArgs};
use crate::units;

/// The output of `-o json`.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    log: LogReport,
    cluster: ReplayClusterReport,
    assumptions: AssumptionsReport,
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
    /// Requested GPU models that the cluster lacks, with the number of jobs; these jobs may use any GPU.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    models_missing: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub struct ReplayClusterReport {
    about: String,
    nodes: usize,
    gpus: u32,
    /// The specification of a cluster that was sized for the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_for_the_log: Option<String>,
    #[serde(skip)]
    site: Option<ReplayCluster>,
}

#[derive(Debug, Serialize)]
struct AssumptionsReport {
    durations_told: bool,
    saves_every_s: Option<f64>,
}

impl ReplayClusterReport {
    pub fn of(site: &ReplayCluster, made_for_the_log: Option<String>) -> ReplayClusterReport {
        let (nodes, gpus) = (site.nodes().len(), site.gpus());
        ReplayClusterReport { about: site.summary(), nodes, gpus, made_for_the_log, site: Some(site.clone()) }
    }
}

impl ReplayReport {
    /// A report without figures yet.
    pub fn new(log: &JobLog, cluster: ReplayClusterReport, assumptions: &ReplayAssumptions) -> ReplayReport {
        let submit = |job: Option<&muster_sim::job_log::LoggedJob>| job.map_or(0, |job| job.submit_ms);
        let (first_submit_ms, last_ms) = (submit(log.jobs.first()), submit(log.jobs.last()));
        let mut models_missing = BTreeMap::new();
        if let Some(site) = &cluster.site {
            let models = log.jobs.iter().filter_map(|job| job.gpu_model.as_ref());
            models
                .filter(|model| !site.has_model(model))
                .for_each(|model| *models_missing.entry(model.clone()).or_default() += 1);
        }
        ReplayReport {
            log: LogReport {
                format: log.format.as_str(),
                jobs: log.jobs.len(),
                left_out: log.left_out.clone(),
                first_submit_ms,
                span_s: (last_ms - first_submit_ms) as f64 / 1e3,
                models_missing,
            },
            cluster,
            assumptions: AssumptionsReport {
                durations_told: assumptions.are_durations_known,
                saves_every_s: assumptions.checkpoint_every_ms.map(|ms| ms as f64 / 1e3),
            },
            policies: Vec::new(),
        }
    }

    pub fn with_figures(self, policies: Vec<Figures>) -> ReplayReport {
        ReplayReport { policies, ..self }
    }

    /// The log, the cluster and the assumptions, printed before the replay.
    pub fn notes(&self) -> Vec<String> {
        let log = &self.log;
        let span = units::duration_text((log.span_s * 1e3) as i64);
        let jobs = units::count_text(log.jobs as u64, "job");
        let mut notes = vec![format!("{jobs} submitted within {span}, format {}", log.format)];
        if !log.left_out.is_empty() {
            notes.push(left_out_text(&log.left_out));
        }
        notes.push(match &self.cluster.made_for_the_log {
            Some(spec) => format!(
                "cluster: {}, sized for this log (covers demand 95 % of the time); choose another with \
                 `--nodes {spec}` or `--cluster FILE`",
                self.cluster.about
            ),
            None => format!("cluster: {}", self.cluster.about),
        });
        for (model, jobs) in &log.models_missing {
            notes.push(format!(
                "{} requested GPU model `{model}`, which the cluster lacks; they may use any GPU",
                units::count_text(*jobs, "job")
            ));
        }
        notes
    }

    pub fn print(&self, args: &ListArgs, tenants: bool) -> Result<(), CliError> {
        if !tenants {
            return output::list(args, false, &COLUMNS, self.policies.clone(), self);
        }
        let tenant_rows = |figures: &Figures| {
            let policy = figures.policy.clone();
            let row = move |tenant: &TenantFigures| (policy.clone(), tenant.clone());
            figures.tenants.iter().map(row).collect::<Vec<_>>()
        };
        output::list(args, false, &TENANT_COLUMNS, self.policies.iter().flat_map(tenant_rows).collect(), self)
    }
}

/// The jobs that were left out of the log, by reason.
pub fn left_out_text(reasons: &BTreeMap<String, u64>) -> String {
    let reasons: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    format!("left out: {}", reasons.join(", "))
}

const COLUMNS: [Column<Figures>; 30] = [
    Column::new("POLICY", |row| row.policy.as_str().into()),
    Column::new("DONE", |row| row.done.into()),
    Column::wide("TIMED-OUT", |row| row.timed_out.into()),
    Column::new("REFUSED", |row| row.refused.into()),
    Column::new("WAIT-MEAN-S", |row| whole_number(row.wait_s.mean)),
    Column::new("WAIT-P50-S", |row| whole_number(row.wait_s.p50)),
    Column::new("WAIT-P95-S", |row| whole_number(row.wait_s.p95)),
    Column::new("WAIT-P99-S", |row| whole_number(row.wait_s.p99)),
    Column::new("WAIT-MAX-S", |row| whole_number(row.wait_s.max)),
    Column::new("JCT-MEAN-S", |row| whole_number(row.completion_s.mean)),
    Column::wide("JCT-P50-S", |row| whole_number(row.completion_s.p50)),
    Column::wide("JCT-P95-S", |row| whole_number(row.completion_s.p95)),
    Column::new("JCT-P99-S", |row| whole_number(row.completion_s.p99)),
    Column::wide("JCT-MAX-S", |row| whole_number(row.completion_s.max)),
    Column::new("SLOWDOWN", |row| two_decimals(row.slowdown.mean)),
    Column::wide("SLOWDOWN-P50", |row| two_decimals(row.slowdown.p50)),
    Column::wide("SLOWDOWN-P95", |row| two_decimals(row.slowdown.p95)),
    Column::wide("SLOWDOWN-P99", |row| two_decimals(row.slowdown.p99)),
    Column::wide("SLOWDOWN-MAX", |row| two_decimals(row.slowdown.max)),
    Column::wide("MAKESPAN-S", |row| whole_number(row.makespan_s)),
    Column::new("UTIL%", |row| percent(row.utilisation)),
    Column::wide("UTIL-TO-END%", |row| percent(row.utilisation_to_the_end)),
    Column::wide("IDLE-WHILE-WAITING%", |row| percent(row.idle_while_waiting)),
    Column::new("FRAGMENTS%", |row| row.fragmentation.map_or_else(|| "-".into(), percent)),
    Column::new("FAIRNESS", |row| format!("{:.3}", row.fairness).into()),
    Column::new("PREEMPTIONS", |row| row.preemptions.into()),
    Column::new("LOST-GPU-S", |row| whole_number(row.lost_gpu_s)),
    Column::wide("GPU-HOURS", |row| whole_number(row.gpu_hours)),
    Column::new("KWH-MAX", |row| row.energy_kwh.map_or_else(|| "-".into(), whole_number)),
    Column::wide("ROUNDS", |row| row.rounds.into()),
];

type TenantRow = (String, TenantFigures);

const TENANT_COLUMNS: [Column<TenantRow>; 7] = [
    Column::new("TENANT", |row| row.1.tenant.as_str().into()),
    Column::new("POLICY", |row| row.0.as_str().into()),
    Column::new("JOBS", |row| row.1.jobs.into()),
    Column::new("GPU-HOURS", |row| whole_number(row.1.gpu_hours)),
    Column::new("WAIT-MEAN-S", |row| whole_number(row.1.wait_s_mean)),
    Column::new("SLOWDOWN", |row| two_decimals(row.1.slowdown_mean)),
    Column::new("PREEMPTIONS", |row| row.1.preemptions.into()),
];

fn whole_number(value: f64) -> Cell {
    format!("{value:.0}").into()
}

fn two_decimals(value: f64) -> Cell {
    format!("{value:.2}").into()
}

fn percent(value: f64) -> Cell {
    format!("{:.1}", value * 100.0).into()
}
