//! Lists of jobs: filters, alone and combined, pages and sorting, compared with a search in memory.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use muster_core::{Event, JobId};
use muster_store::queries::{JobFilter, JobSort, PageOrder, PageRequest, PageStart, SortedPageRequest};
use muster_store::rows::{JobRow, JobState};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    every_filter_and_page_agrees_with_a_plain_search,
    an_impossible_filter_finds_nothing,
    a_sorted_list_agrees_with_a_plain_sort,
    the_tasks_of_an_array_are_counted_by_state,
    a_filter_with_more_tenants_than_branches_finds_all_jobs
);

/// Jobs of three tenants and two users in every state, some with labels, and one array.
fn jobs_in_every_state(database: &dyn TestDatabase) -> JournalWriter {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None), tenant("blue", None), tenant("green", None), node("n1", 8)]);
    for number in 1..=60 {
        let tenant = ["red", "blue", "green"][number as usize % 3];
        if number == 30 {
            writer.append(&[submit_array(number, tenant, 7)]);
            continue;
        }
        let mut job_spec =
            spec(tenant, &format!("{}-{number}", ["Train", "Über-eval", "100%_sure"][number as usize % 3]), 1);
        job_spec.user = ["ada", "bob"][number as usize % 2].to_string();
        if number % 5 == 0 {
            job_spec.labels.insert("team".to_string(), ["x", "y"][number as usize % 2].to_string());
        }
        writer.append(&[submitted(number, job_spec)]);
        writer.append(&events_by_job_number(job(number)));
    }
    writer.append(&[cancelled(JobId::of_array(30, 2)), cancelled(JobId::of_array(30, 6))]);
    writer
}

fn events_by_job_number(id: JobId) -> Vec<Event> {
    let start = || vec![placed(id, 1, "n1", &[]), started(id, 1, "n1")];
    let with = |end: Event| start().into_iter().chain([end]).collect::<Vec<Event>>();
    match id.number % 7 {
        0 => vec![],
        1 => with(done(id, 1)),
        2 => with(failed(id, 1)),
        3 => vec![cancelled(id)],
        4 => start(),
        5 => {
            let next = muster_core::facts::event::NextPhase::Queued {
                cause: muster_core::facts::event::RequeueCause::Preempted,
                wakes_at: None,
            };
            with(attempt_ended(id, 1, 1, next))
        }
        _ => vec![Event::JobHeld { job: id, by: "ada".into(), why: "wait".into(), at: muster_core::Timestamp(1) }],
    }
}

/// Reference implementation of the filter.
fn matches(filter: &JobFilter, row: &JobRow) -> bool {
    filter.tenants.as_ref().is_none_or(|tenants| tenants.contains(&row.tenant))
        && filter.states.as_ref().is_none_or(|states| states.contains(&row.state))
        && filter.phase.as_ref().is_none_or(|phase| *phase == row.phase)
        && filter.user.as_ref().is_none_or(|user| *user == row.user)
        && filter.name_contains.as_ref().is_none_or(|part| row.name.to_lowercase().contains(&part.to_lowercase()))
        && filter.label.as_ref().is_none_or(|(key, value)| row.labels.get(key) == Some(value))
        && filter.number.is_none_or(|number| row.id.number == number)
        && (!filter.active_only || JobState::LIVE.contains(&row.state))
}

fn filters() -> Vec<JobFilter> {
    let names = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect::<Vec<String>>());
    let tenants = [None, names(&["red"]), names(&["blue", "green"])];
    let states = [None, Some(vec![JobState::Pending]), Some(vec![JobState::Completed, JobState::Preempted])];
    let rests: [fn(&mut JobFilter); 13] = [
        |_| {},
        |filter| filter.phase = Some("Held".to_string()),
        |filter| filter.phase = Some("Queued".to_string()),
        |filter| filter.user = Some("ada".to_string()),
        |filter| filter.name_contains = Some("TRAIN".to_string()),
        |filter| filter.name_contains = Some("0%_s".to_string()),
        |filter| filter.name_contains = Some("ÜBER-Ev".to_string()),
        |filter| filter.label = Some(("team".to_string(), "x".to_string())),
        |filter| filter.label = Some(("team".to_string(), "z".to_string())),
        |filter| filter.number = Some(30),
        |filter| filter.active_only = true,
        |filter| {
            filter.active_only = true;
            filter.user = Some("bob".to_string());
        },
        |filter| {
            filter.label = Some(("team".to_string(), "y".to_string()));
            filter.user = Some("bob".to_string());
            filter.name_contains = Some("a".to_string());
        },
    ];
    let mut filters = Vec::new();
    for tenants in &tenants {
        for states in &states {
            for rest in rests {
                let mut filter = JobFilter { tenants: tenants.clone(), states: states.clone(), ..JobFilter::default() };
                rest(&mut filter);
                filters.push(filter);
            }
        }
    }
    filters
}

fn every_filter_and_page_agrees_with_a_plain_search(database: &dyn TestDatabase) {
    let writer = jobs_in_every_state(database);
    let tables = &writer.store.tables;
    let all = tables.jobs(&JobFilter::default(), &PageRequest::first(1_000)).unwrap();
    assert_eq!((all.rows.len(), all.total, all.next), (66, 66, None));
    assert!(all.rows.windows(2).all(|pair| pair[0].id > pair[1].id), "newest first");
    for filter in filters() {
        let wanted: Vec<&JobRow> = all.rows.iter().filter(|row| matches(&filter, row)).collect();
        let mut found = Vec::new();
        let mut page = PageRequest::first(4);
        loop {
            let part = tables.jobs(&filter, &page).unwrap();
            assert_eq!(part.total, wanted.len() as u64, "{filter:?}");
            assert!(part.rows.len() <= 4);
            found.extend(part.rows);
            match part.next {
                Some(next) => page = PageRequest::after(next, 4),
                None => break,
            }
        }
        assert_eq!(found.iter().collect::<Vec<&JobRow>>(), wanted, "{filter:?}");
        let skipped = PageRequest { start: PageStart::Offset(3), limit: 5, order: PageOrder::OldestFirst };
        let oldest = tables.jobs(&filter, &skipped).unwrap().rows;
        let wanted: Vec<&JobRow> = wanted.into_iter().rev().skip(3).take(5).collect();
        assert_eq!(oldest.iter().collect::<Vec<&JobRow>>(), wanted, "{filter:?}");
    }
}

fn an_impossible_filter_finds_nothing(database: &dyn TestDatabase) {
    let writer = jobs_in_every_state(database);
    let impossible: [fn(&mut JobFilter); 5] = [
        |filter| filter.tenants = Some(Vec::new()),
        |filter| filter.states = Some(Vec::new()),
        |filter| filter.phase = Some("Dreaming".to_string()),
        |filter| {
            filter.active_only = true;
            filter.states = Some(vec![JobState::Failed]);
        },
        |filter| filter.user = Some("' OR 1 = 1 --".to_string()),
    ];
    for change in impossible {
        let mut filter = JobFilter::default();
        change(&mut filter);
        let found = writer.store.tables.jobs(&filter, &PageRequest::first(10)).unwrap();
        assert_eq!((found.rows.len(), found.total, found.next), (0, 0, None), "{filter:?}");
    }
}

/// More pairs of tenant and state than `BRANCHES_MAX`.
fn a_filter_with_more_tenants_than_branches_finds_all_jobs(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    for (number, name) in (1..).zip(&names) {
        writer.append(&[tenant(name, None), submit(number, name, 1)]);
    }
    let filter = JobFilter { tenants: Some(names[5..].to_vec()), active_only: true, ..JobFilter::default() };
    let found = writer.store.tables.jobs(&filter, &PageRequest::first(10)).unwrap();
    let numbers: Vec<u64> = found.rows.iter().map(|row| row.id.number).collect();
    assert_eq!((numbers, found.total), ((31..=40).rev().collect(), 35));
}

/// Time of the query, later than all events.
const NOW_MS: i64 = 9_000_000_000_000;

/// Reference implementation of the sort keys.
fn sort_value(by: JobSort, row: &JobRow) -> (Option<i64>, String) {
    let number = |number: i64| (Some(number), String::new());
    let text = |text: &str| (Some(0), text.to_string());
    match by {
        JobSort::Name => text(&row.name),
        JobSort::Tenant => text(&row.tenant),
        JobSort::User => text(&row.user),
        JobSort::Nodes => text(&format!("{:?}", row.nodes)),
        JobSort::State => number(match row.state {
            JobState::Running => 0,
            JobState::Preempted => 1,
            JobState::Pending => 2,
            JobState::Failed => 3,
            JobState::Cancelled => 4,
            JobState::Completed => 5,
        }),
        JobSort::Gpus => number(row.gpu_milli as i64),
        JobSort::Priority => number(row.priority.into()),
        JobSort::Submitted => number(row.submitted_at),
        JobSort::Attempts => number(row.attempt.into()),
        JobSort::GpuHours => number(row.gpu_ms as i64),
        JobSort::Exit => (row.exit_code.or(row.signal.map(|s| 128 + s)).map(i64::from), String::new()),
        JobSort::Elapsed => match (row.started_at, row.ended_at) {
            (Some(start), Some(end)) => number(end - start),
            (None, Some(_)) => (None, String::new()),
            (Some(start), None) if row.state == JobState::Running => number(NOW_MS - start),
            (_, None) => number(NOW_MS - row.submitted_at),
        },
        JobSort::TimeLeft => {
            let running = row.state == JobState::Running;
            let left = row.started_at.zip(row.time_limit_ms).filter(|_| running);
            (left.map(|(start, limit)| start + limit - NOW_MS), String::new())
        }
    }
}

fn sorted_in_memory(rows: &[JobRow], by: JobSort, descending: bool) -> Vec<JobRow> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| {
        let (x, y) = (sort_value(by, a), sort_value(by, b));
        let order = (&x, a.id).cmp(&(&y, b.id));
        match (x.0, y.0) {
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            _ if descending => order.reverse(),
            _ => order,
        }
    });
    rows
}

fn a_sorted_list_agrees_with_a_plain_sort(database: &dyn TestDatabase) {
    let writer = jobs_in_every_state(database);
    let tables = &writer.store.tables;
    let sorts = [
        JobSort::Name,
        JobSort::State,
        JobSort::Gpus,
        JobSort::Tenant,
        JobSort::User,
        JobSort::Priority,
        JobSort::Submitted,
        JobSort::Elapsed,
        JobSort::TimeLeft,
        JobSort::Attempts,
        JobSort::Nodes,
        JobSort::Exit,
        JobSort::GpuHours,
    ];
    let filter = JobFilter { tenants: Some(vec!["red".into(), "blue".into()]), ..JobFilter::default() };
    let all = tables.jobs(&filter, &PageRequest::first(1_000)).unwrap().rows;
    assert!(all.iter().any(|row| row.id.index.is_some()), "there is an array among them");
    for (by, descending) in sorts.into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let page = |offset, limit, one_per_array| {
            let page = SortedPageRequest { by, descending, one_per_array, now_ms: NOW_MS, offset, limit };
            tables.sorted_jobs(&filter, &page).unwrap()
        };
        let wanted = sorted_in_memory(&all, by, descending);
        assert_eq!(page(0, 1_000, false), wanted, "{by:?} {descending}");
        assert_eq!(page(3, 5, false), wanted[3..8], "a page of {by:?} {descending}");
        let mut numbers = BTreeSet::new();
        let firsts: Vec<JobRow> = wanted.into_iter().filter(|row| numbers.insert(row.id.number)).collect();
        assert_eq!(page(0, 1_000, true), firsts, "arrays as one, {by:?} {descending}");
    }
}

fn the_tasks_of_an_array_are_counted_by_state(database: &dyn TestDatabase) {
    let writer = jobs_in_every_state(database);
    let counts = |number: u64| {
        let rows = writer.store.tables.array_tasks(number).unwrap();
        rows.iter().map(|row| (row.state, row.tasks, row.first, row.last)).collect::<Vec<_>>()
    };
    assert_eq!(counts(30), [(JobState::Cancelled, 2, 2, 6), (JobState::Pending, 5, 0, 5)]);
    assert_eq!(counts(31), [], "a job that is not an array has no array tasks");
}
