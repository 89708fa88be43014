//! The pages of the list: what to ask the server for, until there is enough.

use std::collections::BTreeSet;

use muster_protocol::job::{JobList, JobSummary};

use super::{Args, LIMIT_DEFAULT};
use crate::client::{Client, Target};
use crate::error::CliError;
use crate::output::Format;

/// Most rows the server gives at once.
const PAGE_MAX: usize = 1_000;
/// States in the order in which people look for them: what runs, what waits, what has ended.
const STATES: [&[&str]; 3] = [&["running"], &["pending", "preempted"], &["completed", "failed", "cancelled"]];
/// The titles of columns that the server sorts by under another name.
const SORTS: [(&str, &str); 2] = [("prio", "priority"), ("attempt", "attempts")];

/// The jobs to print, in the order in which they are printed.
pub fn fetch(client: &Client, args: &Args) -> Result<JobList, CliError> {
    let most = args.list.most(LIMIT_DEFAULT);
    match &args.list.sort {
        Some(by) => sorted(client, args, by, most),
        None => running_first(client, args, most),
    }
}

/// How many of the jobs that match stand behind these rows: an array has as many as it has tasks.
pub fn matching(rows: &[JobSummary], args: &Args) -> u64 {
    let states = states(args);
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

/// The states to list.
fn states(args: &Args) -> Vec<String> {
    if !args.state.is_empty() {
        return args.state.iter().map(|state| state.trim().to_string()).collect();
    }
    let groups = if args.all { &STATES[..] } else { &STATES[..2] };
    groups.iter().flat_map(|states| states.iter()).map(|state| state.to_string()).collect()
}

/// One state after the other, newest first in each. Every page is cheap, however long the queue is.
fn running_first(client: &Client, args: &Args, most: usize) -> Result<JobList, CliError> {
    let wanted = states(args);
    let known = |state: &String| STATES.iter().any(|group| group.contains(&state.as_str()));
    let mut list = JobList { jobs: Vec::new(), total: 0, next_cursor: None };
    let mut seen = BTreeSet::new();
    // A state that does not exist is for the server to refuse.
    let strange: Vec<&str> = wanted.iter().filter(|state| !known(state)).map(String::as_str).collect();
    let groups = STATES.map(|group| group.iter().copied().filter(|state| wanted.iter().any(|w| w == state)));
    let groups = groups.map(Iterator::collect::<Vec<&str>>).into_iter().chain([strange]);
    for states in groups.filter(|states| !states.is_empty()) {
        let target = target(args).with("state", states.join(","));
        list.total += by_cursor(client, &target, most, &mut list.jobs, &mut seen)?;
    }
    Ok(list)
}

/// Add pages of one list until there are enough rows; returns how many jobs match. A job that has changed its state
/// meanwhile, and an array that has tasks in several, is there once.
fn by_cursor(
    client: &Client,
    target: &Target,
    most: usize,
    jobs: &mut Vec<JobSummary>,
    seen: &mut BTreeSet<String>,
) -> Result<u64, CliError> {
    let mut cursor: Option<String> = None;
    loop {
        let limit = most.saturating_sub(jobs.len()).clamp(1, PAGE_MAX);
        let page: JobList =
            client.get(target.clone().with("limit", limit).with_some("cursor", cursor.take()))?;
        let new = page.jobs.into_iter().filter(|job| seen.insert(job.id.clone()));
        jobs.extend(new.take(most.saturating_sub(jobs.len())));
        match page.next_cursor.filter(|_| jobs.len() < most) {
            Some(next) => cursor = Some(next),
            None => return Ok(page.total),
        }
    }
}

/// Pages of a list that the server sorts.
fn sorted(client: &Client, args: &Args, by: &str, most: usize) -> Result<JobList, CliError> {
    let (minus, title) = by.strip_prefix('-').map_or(("", by), |title| ("-", title));
    let title = title.to_ascii_lowercase();
    let word = SORTS.iter().find(|(column, _)| *column == title).map_or(title.as_str(), |(_, word)| *word);
    let by_id = word == "id";
    let target = target(args).with("state", states(args).join(",")).with("sort", format!("{minus}{word}"));
    let mut list = JobList { jobs: Vec::new(), total: 0, next_cursor: None };
    if by_id {
        list.total = by_cursor(client, &target, most, &mut list.jobs, &mut BTreeSet::new())?;
        return Ok(list);
    }
    loop {
        let limit = most.saturating_sub(list.jobs.len()).clamp(1, PAGE_MAX);
        let page: JobList =
            client.get(target.clone().with("limit", limit).with("offset", list.jobs.len()))?;
        (list.total, list.next_cursor) = (page.total, None);
        let last = page.jobs.len() < limit;
        list.jobs.extend(page.jobs);
        if last || list.jobs.len() >= most {
            return Ok(list);
        }
    }
}

/// For people an array is one row; programs get its tasks.
fn target(args: &Args) -> Target {
    let for_people = matches!(args.list.show.output, Format::Table | Format::Wide);
    Target::new("jobs")
        .with_some("group", for_people.then_some("array"))
        .with_some("tenant_id", args.tenant.as_ref())
        .with_some("user", args.user.as_ref())
}
