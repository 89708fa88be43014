//! Fetching the pages of the job list until there are enough rows.

use std::collections::BTreeSet;

use muster_protocol::job::{JobList, JobSummary};

use super::{Args, ROWS_DEFAULT};
use crate::client::RequestTarget;
use crate::error::CliError;
use crate::jobs::state_name;
use crate::output::Format;

/// Maximum number of rows in a response of the server.
const PAGE_MAX: usize = 1_000;
/// States in the order of printing: running, waiting, ended.
const STATE_GROUPS: [&[&str]; 3] = [&["running"], &["pending", "preempted"], &["completed", "failed", "cancelled"]];
/// Column titles, in lower case, whose sort key has another name in the API.
const SORT_COLUMN_ALIASES: [(&str, &str); 2] = [("prio", "priority"), ("attempt", "attempts")];

/// Requests one page of the list.
pub type GetPage<'a> = dyn FnMut(RequestTarget) -> Result<JobList, CliError> + 'a;

/// The jobs to print, in the order of printing. `get` requests one page.
pub fn fetch_jobs(args: &Args, get: &mut GetPage) -> Result<JobList, CliError> {
    let limit = args.list.row_limit(ROWS_DEFAULT);
    match &args.list.sort {
        Some(by) => fetch_sorted(args, by, limit, get),
        None => fetch_running_first(args, limit, get),
    }
}

/// The number of matching jobs in these rows: an array row stands for all its jobs in the selected states.
pub fn matching_job_count(rows: &[JobSummary], args: &Args) -> u64 {
    let states = wanted_states(args);
    let wanted = |state: &str| states.iter().any(|wanted| wanted == state);
    let jobs = |row: &JobSummary| match &row.array_tasks {
        None => 1,
        Some(array) => {
            let counts = array.by_state.iter().filter(|(state, _)| wanted(state));
            counts.map(|(_, count)| *count).sum()
        }
    };
    rows.iter().map(jobs).sum()
}

fn wanted_states(args: &Args) -> Vec<String> {
    if !args.state.is_empty() {
        return args.state.iter().map(|state| state.trim().to_string()).collect();
    }
    let groups = if args.all { &STATE_GROUPS[..] } else { &STATE_GROUPS[..2] };
    groups.iter().flat_map(|states| states.iter()).map(|state| state.to_string()).collect()
}

/// Running jobs first, newest first in each group of states.
///
/// A job that starts or is preempted between two requests must not be missed by both, so all states are requested
/// together and sorted here. Only a list that is cut at `rows_max` is requested group by group: each page is cheap,
/// however long the queue is.
fn fetch_running_first(args: &Args, rows_max: usize, get: &mut GetPage) -> Result<JobList, CliError> {
    let wanted = wanted_states(args);
    let mut all_states = JobRows::new(rows_max);
    all_states.append(&jobs_target(args).query("state", wanted.join(",")), get)?;
    if all_states.complete {
        all_states.jobs.sort_by_key(|job| state_group(job, &wanted));
        return Ok(all_states.into_list());
    }
    let mut by_group = JobRows::new(rows_max);
    for group in STATE_GROUPS {
        let states: Vec<&str> = group.iter().copied().filter(|state| wanted.iter().any(|w| w == state)).collect();
        if !states.is_empty() {
            by_group.append(&jobs_target(args).query("state", states.join(",")), get)?;
        }
    }
    Ok(by_group.into_list())
}

/// The first group of states that a job, or any task of an array in a wanted state, is in.
fn state_group(job: &JobSummary, wanted: &[String]) -> usize {
    let in_state = |state: &&str| match &job.array_tasks {
        Some(array) => array.by_state.contains_key(*state) && wanted.iter().any(|wanted| wanted == state),
        None => state_name(job.state) == *state,
    };
    STATE_GROUPS.iter().position(|group| group.iter().any(&in_state)).unwrap_or(STATE_GROUPS.len())
}

/// Rows collected page by page.
struct JobRows {
    jobs: Vec<JobSummary>,
    seen: BTreeSet<String>,
    rows_max: usize,
    /// Matching jobs of all requests.
    total: u64,
    /// Whether the last request was followed to its last page.
    complete: bool,
}

impl JobRows {
    fn new(rows_max: usize) -> JobRows {
        JobRows { jobs: Vec::new(), seen: BTreeSet::new(), rows_max, total: 0, complete: false }
    }

    /// Append pages until there are `rows_max` rows. A job that changes its state meanwhile, and an array with jobs in
    /// several states, is added once.
    fn append(&mut self, target: &RequestTarget, get: &mut GetPage) -> Result<(), CliError> {
        let mut cursor: Option<String> = None;
        loop {
            let left = self.rows_max.saturating_sub(self.jobs.len());
            let page_target = target.clone().query("limit", left.clamp(1, PAGE_MAX));
            let page = get(page_target.query_if_some("cursor", cursor.take()))?;
            let new = page.jobs.into_iter().filter(|job| self.seen.insert(job.id.clone()));
            self.jobs.extend(new.take(left));
            self.complete = page.next_cursor.is_none();
            match page.next_cursor.filter(|_| self.jobs.len() < self.rows_max) {
                Some(next) => cursor = Some(next),
                None => {
                    self.total += page.total;
                    return Ok(());
                }
            }
        }
    }

    fn into_list(self) -> JobList {
        JobList { jobs: self.jobs, total: self.total, next_cursor: None }
    }
}

/// Pages of a list that the server sorts.
fn fetch_sorted(args: &Args, by: &str, rows_max: usize, get: &mut GetPage) -> Result<JobList, CliError> {
    let (minus, title) = by.strip_prefix('-').map_or(("", by), |title| ("-", title));
    let title = title.to_ascii_lowercase();
    let key = SORT_COLUMN_ALIASES.iter().find(|(column, _)| *column == title).map_or(title.as_str(), |(_, key)| *key);
    let by_id = key == "id";
    let target = jobs_target(args).query("state", wanted_states(args).join(",")).query("sort", format!("{minus}{key}"));
    if by_id {
        let mut rows = JobRows::new(rows_max);
        rows.append(&target, get)?;
        return Ok(rows.into_list());
    }
    let mut list = JobList { jobs: Vec::new(), total: 0, next_cursor: None };
    loop {
        let limit = rows_max.saturating_sub(list.jobs.len()).clamp(1, PAGE_MAX);
        let page = get(target.clone().query("limit", limit).query("offset", list.jobs.len()))?;
        (list.total, list.next_cursor) = (page.total, None);
        let last = page.jobs.len() < limit;
        list.jobs.extend(page.jobs);
        if last || list.jobs.len() >= rows_max {
            return Ok(list);
        }
    }
}

/// In tables an array is one row; the other formats list its jobs.
fn jobs_target(args: &Args) -> RequestTarget {
    let is_table = matches!(args.list.show.output, Format::Table | Format::Wide);
    RequestTarget::new("jobs")
        .query_if_some("group", is_table.then_some("array"))
        .query_if_some("tenant_id", args.tenant.as_ref())
        .query_if_some("user", args.user.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct PsCommand {
        #[command(flatten)]
        args: Args,
    }

    fn ps(words: &[&str]) -> Args {
        PsCommand::parse_from([&["ps"], words].concat()).args
    }

    fn job(id: &str, state: &str) -> JobSummary {
        let job = serde_json::json!({
            "id": id, "job_id": id, "state": state, "phase": "", "message": "", "name": "train",
            "tenant_id": "default", "user": "ann", "priority": 500, "labels": {}, "nodes": [],
            "gpu_count": 1, "gpu_memory_mb": 0, "cpu_cores": 1, "memory_mb": 1,
            "submitted_at": "", "submitted_at_ms": 0, "gpu_hours": 0.0, "cost": 0.0,
            "attempts": 0, "preempted_count": 0, "restart_count": 0, "requeue_count": 0,
        });
        muster_json::from_str(&job.to_string()).unwrap()
    }

    /// A server with two jobs; after each request the waiting job runs and the running one was preempted, or back.
    fn changing_server(limit_reached: bool) -> impl FnMut(RequestTarget) -> Result<JobList, CliError> {
        let mut requests = 0;
        move |target| {
            let (first, second) = if requests % 2 == 0 { ("pending", "running") } else { ("running", "preempted") };
            requests += 1;
            let all = [job("job-2", second), job("job-1", first)];
            let target = target.to_string();
            let jobs: Vec<JobSummary> = all.into_iter().filter(|job| target.contains(state_name(job.state))).collect();
            let next_cursor = limit_reached.then(|| "job-1".to_string());
            Ok(JobList { total: jobs.len() as u64, jobs, next_cursor })
        }
    }

    #[test]
    fn a_job_that_changes_its_state_between_requests_is_listed() {
        let list = fetch_jobs(&ps(&[]), &mut changing_server(false)).unwrap();
        let ids: Vec<&str> = list.jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["job-2", "job-1"], "running first");
        assert_eq!(list.total, 2);
    }

    #[test]
    fn running_jobs_come_first_in_a_list_that_is_cut() {
        let mut requests = Vec::new();
        let mut server = changing_server(true);
        let limited = ps(&["--limit", "1"]);
        let list = fetch_jobs(&limited, &mut |target| {
            requests.push(target.to_string());
            server(target)
        });
        assert_eq!(list.unwrap().jobs[0].state, muster_protocol::job::JobState::Running);
        assert!(requests[1].ends_with("state=running&limit=1"), "{requests:?}");
    }
}
