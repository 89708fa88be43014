//! Limits on what the agent of one node may send: a node that was taken over must not exhaust the server.

use std::time::{Duration, Instant};

use muster_protocol::agent::{Exit, Registration, Report};

/// The registration of a node with the most devices takes a tenth of it.
pub const REPORT_BYTES_MAX: usize = 256 << 10;
/// Texts for people, in bytes. Longer ones are cut.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Names, addresses, labels and taints of a node.
const NAME_BYTES_MAX: usize = 512;
const LABELS_MAX: usize = 128;
const TAINTS_MAX: usize = 64;
const NUMA_NODES_MAX: usize = 256;
/// Reports of one connection: at once, and for a long time. A node with many short jobs sends a hundred a second.
const BURST_REPORTS: f64 = 5_000.0;
const REPORTS_PER_SECOND: f64 = 500.0;

/// Limits the rate of the reports of one connection. Who reads the connection waits, and TCP holds the agent back.
pub struct ReportRate {
    credit: f64,
    refilled_at: Instant,
}

impl ReportRate {
    pub fn new(now: Instant) -> ReportRate {
        ReportRate { credit: BURST_REPORTS, refilled_at: now }
    }

    /// How long to wait before the next report is read.
    pub fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.credit = (self.credit + passed * REPORTS_PER_SECOND).min(BURST_REPORTS) - 1.0;
        self.refilled_at = now;
        Duration::from_secs_f64((-self.credit / REPORTS_PER_SECOND).max(0.0))
    }
}

/// Cuts the long texts of a report. An error says what about a registration is not accepted.
pub fn limit_report(report: &mut Report) -> Result<(), String> {
    match report {
        Report::Registered(registration) => return check_registration(registration),
        Report::Ended { exit: Exit::NotStarted(why) | Exit::Unknown(why), .. } => cut(why),
        Report::EpilogFailed { why, .. } | Report::RebootFailed { why, .. } => cut(why),
        Report::Unkillable { processes, .. } => cut(processes),
        Report::NodeHealth { failure: Some(failure), .. } => cut(failure),
        Report::GpuReading { last_error, .. } => cut(last_error),
        Report::Heartbeat { .. } | Report::Started { .. } | Report::Ended { .. } | Report::NodeHealth { .. } => {}
    }
    Ok(())
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str(" [cut]");
    }
}

fn check_registration(registration: &Registration) -> Result<(), String> {
    let too_many = |what: &str, count: usize, most: usize| match count > most {
        true => Err(format!("the registration of this node has {count} {what}; the maximum is {most}")),
        false => Ok(()),
    };
    too_many("labels", registration.labels.len(), LABELS_MAX)?;
    too_many("taints", registration.taints.len(), TAINTS_MAX)?;
    too_many("NUMA nodes", registration.numa.len(), NUMA_NODES_MAX)?;
    let of_agent = [&registration.agent_version, &registration.incarnation, &registration.boot_id];
    let single = [&registration.hostname, &registration.address].into_iter().chain(of_agent);
    let places = [&registration.rack, &registration.block, &registration.power_feed].into_iter().flatten();
    let labels = registration.labels.iter().flat_map(|(name, value)| [name, value]);
    let devices = registration.gpus.iter().flat_map(|gpu| [&gpu.uuid, &gpu.model]);
    let names = single.chain(places).chain(labels).chain(&registration.taints).chain(devices);
    match names.map(String::len).find(|length| *length > NAME_BYTES_MAX) {
        Some(length) => Err(format!(
            "the registration of this node has a name, label or taint of {length} bytes; the maximum is {NAME_BYTES_MAX}"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_sends_a_burst_of_reports_and_then_a_limited_rate() {
        let begin = Instant::now();
        let mut rate = ReportRate::new(begin);
        assert!((0..5_000).all(|_| rate.take(begin).is_zero()));
        assert_eq!(rate.take(begin), Duration::from_millis(2));
        let (mut now, count) = (begin, 2_000);
        (0..count).for_each(|_| now += rate.take(now));
        assert!((now - begin).as_secs_f64() >= 3.9, "{:?}", now - begin);
        assert!(rate.take(now + Duration::from_secs(60)).is_zero(), "after a pause");
    }

    #[test]
    fn long_texts_of_reports_are_cut_at_a_character() {
        let node = "n1".to_string();
        let mut report = Report::NodeHealth { node, failure: Some("é".repeat(100_000)), incarnation: String::new() };
        limit_report(&mut report).unwrap();
        let Report::NodeHealth { failure: Some(failure), .. } = report else { panic!() };
        assert_eq!(failure, format!("{} [cut]", "é".repeat(2_048)));
    }

    #[test]
    fn registrations_with_too_many_or_too_long_names_are_not_accepted() {
        let registration = |labels: usize, label_bytes: usize| -> Report {
            let labels = (0..labels).map(|index| (format!("l{index}"), "v".repeat(label_bytes))).collect();
            let text = r#"{"node":"n1","cpus":1,"memory_mib":1}"#;
            let plain: Registration = muster_json::from_str(text).unwrap();
            Report::Registered(Box::new(Registration { labels, ..plain }))
        };
        assert_eq!(limit_report(&mut registration(128, 512)), Ok(()));
        let problem = limit_report(&mut registration(129, 1)).unwrap_err();
        assert_eq!(problem, "the registration of this node has 129 labels; the maximum is 128");
        assert!(limit_report(&mut registration(1, 513)).unwrap_err().contains("of 513 bytes"));
    }
}
