//! Reports that wait for an acknowledgement of the server.
//!
//! Reports describe the current state of an attempt, of a GPU or of the node, so a newer report about the same thing
//! replaces an older one. The outbox therefore never holds more than a few reports for each attempt and GPU of the node,
//! however long the server is away.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::Report;

/// Reports that may be sent before the first of them is acknowledged. Bounds what a slow server has to buffer.
const UNACKNOWLEDGED_MAX: usize = 64;

/// What a report is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Registration,
    Start { job: String, attempt: u32 },
    EpilogFailure { job: String, attempt: u32 },
    Unkillable { job: String, attempt: u32 },
    End { job: String, attempt: u32 },
    NodeHealth,
    Reboot,
    Gpu(u8),
    Heartbeat,
}

impl Subject {
    fn of(report: &Report) -> Subject {
        match report {
            Report::Registered(_) => Subject::Registration,
            Report::Heartbeat { .. } => Subject::Heartbeat,
            Report::Started { job, attempt, .. } => Subject::Start { job: job.clone(), attempt: *attempt },
            Report::Ended { job, attempt, .. } => Subject::End { job: job.clone(), attempt: *attempt },
            Report::EpilogFailed { job, attempt, .. } => Subject::EpilogFailure { job: job.clone(), attempt: *attempt },
            Report::Unkillable { job, attempt, .. } => Subject::Unkillable { job: job.clone(), attempt: *attempt },
            Report::NodeHealth { .. } => Subject::NodeHealth,
            Report::RebootFailed { .. } => Subject::Reboot,
            Report::GpuReading { gpu, .. } => Subject::Gpu(*gpu),
        }
    }
}

/// The unacknowledged reports, by sequence number.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    last_sequence: u64,
    reports: BTreeMap<u64, Report>,
    newest: BTreeMap<Subject, u64>,
    /// Highest number sent on the current connection.
    sent: u64,
    /// Numbers sent on the current connection and not acknowledged, also of reports that were replaced since.
    in_flight: BTreeSet<u64>,
}

impl Outbox {
    pub fn add(&mut self, report: Report) {
        self.last_sequence += 1;
        let replaced = self.newest.insert(Subject::of(&report), self.last_sequence);
        replaced.map(|sequence| self.reports.remove(&sequence));
        self.reports.insert(self.last_sequence, report);
    }

    /// The next report to send on the current connection.
    pub fn next_to_send(&mut self) -> Option<(u64, &Report)> {
        if self.in_flight.len() >= UNACKNOWLEDGED_MAX {
            return None;
        }
        let (sequence, report) = self.reports.range(self.sent + 1..).next()?;
        self.sent = *sequence;
        self.in_flight.insert(*sequence);
        Some((*sequence, report))
    }

    /// The server has received all reports up to this number.
    pub fn acknowledge(&mut self, sequence: u64) {
        self.in_flight.retain(|sent| *sent > sequence);
        let later = self.reports.split_off(&sequence.saturating_add(1).min(self.last_sequence + 1));
        for report in std::mem::replace(&mut self.reports, later).into_values() {
            self.newest.remove(&Subject::of(&report));
        }
    }

    /// On a new connection everything unacknowledged is sent again.
    pub fn send_again(&mut self) {
        self.sent = 0;
        self.in_flight.clear();
    }

    pub fn len(&self) -> usize {
        self.reports.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(sent_at_boot_ms: i64) -> Report {
        Report::Heartbeat { node: "n".to_string(), following: None, sent_at_boot_ms }
    }

    fn started(job: u32) -> Report {
        Report::Started { node: "n".to_string(), job: format!("job-{job}"), attempt: 1, incarnation: String::new() }
    }

    fn sent(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.next_to_send().map(|(sequence, _)| sequence)).collect()
    }

    #[test]
    fn a_newer_report_about_the_same_subject_replaces_the_older_one() {
        let mut outbox = Outbox::default();
        for at in 0..1_000 {
            outbox.add(heartbeat(at));
            outbox.add(started(1));
        }
        assert_eq!(outbox.len(), 2);
        assert_eq!(sent(&mut outbox), [1_999, 2_000]);
    }

    #[test]
    fn unacknowledged_reports_are_sent_again_on_a_new_connection() {
        let mut outbox = Outbox::default();
        (1..=3).for_each(|job| outbox.add(started(job)));
        assert_eq!(sent(&mut outbox), [1, 2, 3]);
        outbox.acknowledge(2);
        assert_eq!(sent(&mut outbox), [0u64; 0]);
        outbox.send_again();
        assert_eq!(sent(&mut outbox), [3]);
    }

    #[test]
    fn an_acknowledgement_of_a_replaced_report_does_not_remove_its_successor() {
        let mut outbox = Outbox::default();
        outbox.add(started(1));
        assert_eq!(sent(&mut outbox), [1]);
        outbox.add(started(1));
        outbox.acknowledge(1);
        assert_eq!(sent(&mut outbox), [2]);
        outbox.acknowledge(2);
        outbox.add(started(1));
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn replaced_reports_count_until_they_are_acknowledged() {
        let mut outbox = Outbox::default();
        let mut sent_in_all = 0;
        for at in 0..1_000 {
            outbox.add(heartbeat(at));
            sent_in_all += sent(&mut outbox).len();
        }
        assert_eq!(sent_in_all, UNACKNOWLEDGED_MAX);
        outbox.acknowledge(UNACKNOWLEDGED_MAX as u64);
        assert_eq!(sent(&mut outbox), [1_000]);
    }

    #[test]
    fn a_server_that_acknowledges_nothing_is_sent_a_bounded_number_of_reports() {
        let mut outbox = Outbox::default();
        (0..1_000).for_each(|job| outbox.add(started(job)));
        assert_eq!(sent(&mut outbox).len(), UNACKNOWLEDGED_MAX);
        outbox.acknowledge(10);
        assert_eq!(sent(&mut outbox).len(), 10);
        outbox.acknowledge(u64::MAX);
        assert_eq!(outbox.len(), 0);
    }
}
