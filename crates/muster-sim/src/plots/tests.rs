//! The plots are well-formed and show what they are given.

use super::*;
use crate::figures::{UtilisationBin, figures};
use crate::job_log::{GangShape, LoggedJob};
use crate::run_history::{IntervalEnd, RunHistory, RunInterval};

/// True if every element is closed and text is escaped.
fn is_well_formed(svg: &str) -> bool {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { return false };
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        match tag.strip_prefix('/') {
            Some(closed) if open.pop() != Some(closed) => return false,
            Some(_) => {}
            None if !tag.ends_with('/') => open.push(name),
            None => {}
        }
        if text.contains('&') && !["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|word| text.contains(word)) {
            return false;
        }
    }
    open.is_empty() && svg.starts_with("<svg ")
}

#[test]
fn plots_are_well_formed() {
    let bins = [UtilisationBin { at_s: 0.0, utilisation: 0.5 }, UtilisationBin { at_s: 400_000.0, utilisation: 1.0 }];
    let utilisation = utilisation(&[("muster", &bins), ("a<b & c", &bins)]);
    assert!(is_well_formed(&utilisation), "{utilisation}");
    assert!(utilisation.contains("(days)") && utilisation.contains("a&lt;b &amp; c"), "{utilisation}");
    let waits = waits(&[("muster", &[0.0, 5.0, 5_000.0])]);
    assert!(is_well_formed(&waits) && waits.contains(">1000<"), "{waits}");
}

#[test]
fn a_gantt_chart_shows_waiting_running_and_preempted_jobs() {
    let job = |submit_ms| LoggedJob::new("", submit_ms, 3_600_000, GangShape::Total(1));
    let jobs = vec![job(0), job(1_000)];
    let interval = |job, from_ms, to_ms, end| RunInterval {
        log_index: job,
        from_ms,
        to_ms,
        gpu_milli: 1_000,
        milliwatts: 0,
        useful_ms: to_ms - from_ms,
        end,
    };
    let intervals = vec![
        interval(0, 0, 1_800_000, IntervalEnd::Preempted),
        interval(1, 1_800_000, 5_400_000, IntervalEnd::Done),
        interval(0, 5_400_000, 7_200_000, IntervalEnd::Done),
    ];
    let history = RunHistory { gpus: 1, intervals, ..RunHistory::default() };
    let svg = gantt("muster", &jobs, &history);
    assert!(is_well_formed(&svg), "{svg}");
    assert_eq!(svg.matches(">1.5<").count(), 2, "both axes have ticks: {svg}");
    // Each colour occurs once more, in the legend.
    let count = |colour: &str| svg.matches(&format!("fill=\"{colour}\"")).count() - 1;
    assert_eq!((count("#d9d9d9"), count("#0072b2"), count("#d55e00")), (2, 2, 1));
    assert_eq!(figures("muster", &jobs, &history).preemptions, 1);
}

#[test]
fn bars_are_grouped_by_name_and_missing_values_have_no_bar() {
    let labels = PlotLabels { title: "a & b", x: "trace", y: "%" };
    let groups = ["one".to_string(), "t<wo".to_string()];
    let svg = bars(&labels, &groups, &[("x", vec![Some(50.0), Some(100.0)]), ("y", vec![None, Some(1.0)])]);
    assert!(is_well_formed(&svg) && svg.contains(">t&lt;wo<"), "{svg}");
    // A bar and the legend for each colour, and one bar more for the first.
    let count = |colour: &str| svg.matches(&format!("fill=\"{colour}\"")).count();
    assert_eq!((count(colour(0)), count(colour(1))), (3, 2));
    let heights: Vec<f64> =
        svg.split("height=\"").filter_map(|rest| rest.split_once("\" fill=\"#0072b2\"")?.0.parse().ok()).collect();
    assert!((heights[1] - 2.0 * heights[0]).abs() < 0.2, "twice as much is twice as high: {heights:?}");
}

#[test]
fn the_x_axis_of_curves_starts_at_the_first_point() {
    let labels = PlotLabels { title: "", x: "", y: "" };
    let svg = curves(&labels, &[("x", vec![(2.0, 1.0), (4.0, 2.0)]), ("y", vec![(3.0, 1.0), (4.0, 1.0)])]);
    assert!(is_well_formed(&svg) && svg.contains("M78.0 "), "{svg}");
}
