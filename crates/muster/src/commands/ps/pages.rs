//! Fetching the pages of the job list until there are enough rows.

use std::collections::BTreeSet;

use muster_protocol::job::{JobList, JobSummary};

use super::{Args, ROWS_DEFAULT};
use crate::client::{Client, RequestTarget};
use crate::error::CliError;
use crate::output::Format;

/// Maximum number of rows in a response of the server.
const PAGE_MAX: usize = 1_000;
/// States in the order of printing: running, waiting, ended.
const STATE_GROUPS: [&[&str]; 3] = [&["running"], &["pending", "preempted"], &["completed", "failed", "cancelled"]];
/// Column titles, in lower case, whose sort key has another name in the API.
const SORT_COLUMN_ALIASES: [(&str, &str); 2] = [("prio", "priority"), ("attempt", "attempts")];

/// The jobs to print, in the order of printing.
pub fn fetch_jobs(client: &Client, args: &Args) -> Result<JobList, CliError> {
    let limit = args.list.row_limit(ROWS_DEFAULT);
    match &args.list.sort {
        Some(by) => fetch_sorted(client, args, by, limit),
        None => fetch_running_first(client, args, limit),
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

/// Group of states by group, newest first in each. Every page is cheap, however long the queue is.
fn fetch_running_first(client: &Client, args: &Args, limit: usize) -> Result<JobList, CliError> {
    let wanted = wanted_states(args);
    let known = |state: &String| STATE_GROUPS.iter().any(|group| group.contains(&state.as_str()));
    let mut list = JobList { jobs: Vec::new(), total: 0, next_cursor: None };
    let mut seen = BTreeSet::new();
    // Unknown states are sent too: the server refuses them with a hint.
    let unknown: Vec<&str> = wanted.iter().filter(|state| !known(state)).map(String::as_str).collect();
    let groups = STATE_GROUPS.map(|group| group.iter().copied().filter(|state| wanted.iter().any(|w| w == state)));
    let groups = groups.map(Iterator::collect::<Vec<&str>>).into_iter().chain([unknown]);
    for states in groups.filter(|states| !states.is_empty()) {
        let target = jobs_target(args).query("state", states.join(","));
        list.total += append_pages(client, &target, limit, &mut list.jobs, &mut seen)?;
    }
    Ok(list)
}

/// Appends pages until there are `rows_max` rows; returns the number of matching jobs. A job that changes its state
/// meanwhile, and an array with jobs in several states, is added once.
fn append_pages(
    client: &Client,
    target: &RequestTarget,
    rows_max: usize,
    jobs: &mut Vec<JobSummary>,
    seen: &mut BTreeSet<String>,
) -> Result<u64, CliError> {
    let mut cursor: Option<String> = None;
    loop {
        let limit = rows_max.saturating_sub(jobs.len()).clamp(1, PAGE_MAX);
        let page: JobList = client.get(target.clone().query("limit", limit).query_if_some("cursor", cursor.take()))?;
        let new = page.jobs.into_iter().filter(|job| seen.insert(job.id.clone()));
        jobs.extend(new.take(rows_max.saturating_sub(jobs.len())));
        match page.next_cursor.filter(|_| jobs.len() < rows_max) {
            Some(next) => cursor = Some(next),
            None => return Ok(page.total),
        }
    }
}

/// Pages of a list that the server sorts.
fn fetch_sorted(client: &Client, args: &Args, by: &str, rows_max: usize) -> Result<JobList, CliError> {
    let (minus, title) = by.strip_prefix('-').map_or(("", by), |title| ("-", title));
    let title = title.to_ascii_lowercase();
    let key = SORT_COLUMN_ALIASES.iter().find(|(column, _)| *column == title).map_or(title.as_str(), |(_, key)| *key);
    let by_id = key == "id";
    let target = jobs_target(args).query("state", wanted_states(args).join(",")).query("sort", format!("{minus}{key}"));
    let mut list = JobList { jobs: Vec::new(), total: 0, next_cursor: None };
    if by_id {
        list.total = append_pages(client, &target, rows_max, &mut list.jobs, &mut BTreeSet::new())?;
        return Ok(list);
    }
    loop {
        let limit = rows_max.saturating_sub(list.jobs.len()).clamp(1, PAGE_MAX);
        let page: JobList = client.get(target.clone().query("limit", limit).query("offset", list.jobs.len()))?;
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
