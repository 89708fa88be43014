//! Each format on a small sample.

use std::path::PathBuf;

use muster_core::facts::command::{Answer, SubmitJob, TaskReport};
use muster_core::objects::job::Exit;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::plan;
use muster_core::{Actor, Command, State, Timestamp};
use muster_store::{Entry, Leadership, StoreConfig};

use super::*;
use crate::trace_replay::{ReplayAssumptions, ReplayCluster, job_spec};

/// 2026-01-31T08:00:00Z.
const EIGHT_OCLOCK_MS: i64 = 1_769_846_400_000;
const MINUTE_MS: i64 = 60_000;

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

fn read_sample(name: &str) -> JobLog {
    read(&sample(name), None, BadLinePolicy::Stop).unwrap()
}

/// A file that is removed at the end of the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let path = std::env::temp_dir().join(format!("muster-jobs-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_muster_csv_is_read() {
    let log = read_sample("plain.csv");
    assert_eq!(log.format, LogFormat::Plain);
    assert_eq!(log.left_out, BTreeMap::from([("did not run".to_string(), 1)]));
    let [third, first, second] = &log.jobs[..] else { panic!("{:?}", log.jobs) };
    let all = LoggedJob {
        name: "bert".to_string(),
        tenant: "vision".to_string(),
        user: "ada".to_string(),
        cpus: Some(16),
        memory_mib: Some(65_536),
        gpu_model: Some("a100".to_string()),
        time_limit_ms: Some(7_200_000),
        priority: Some(200),
        checkpoint_every_ms: Some(600_000),
        ..LoggedJob::new("a1", EIGHT_OCLOCK_MS, 3_600_000, GangShape::Total(2))
    };
    assert_eq!(*first, all);
    let gang = GangShape::Tasks { count: 4, each: 8 };
    let some = LoggedJob { name: "gpt, small".to_string(), ..LoggedJob::new("a2", EIGHT_OCLOCK_MS, 90_500, gang) };
    assert_eq!(*second, LoggedJob { tenant: "text".to_string(), user: "bob".to_string(), ..some });
    assert_eq!(third.submit_ms, EIGHT_OCLOCK_MS - MINUTE_MS, "without a zone it is UTC, and the jobs are sorted");
    assert_eq!((third.tenant.as_str(), third.user.as_str()), ("everyone", "everyone"));
}

#[test]
fn philly_muri_and_chronus_traces_are_read() {
    let philly = read_sample("philly.csv");
    assert_eq!(philly.format, LogFormat::Philly);
    let job = &philly.jobs[1];
    assert_eq!((job.submit_ms, job.work_ms, job.gpus), (MINUTE_MS, 60 * MINUTE_MS, GangShape::Total(1)));
    assert_eq!(job.tenant, "bbb222");

    let muri = read_sample("muri.csv");
    assert_eq!(muri.format, LogFormat::Muri);
    assert_eq!((muri.jobs[0].work_ms, muri.jobs[0].gpus.total()), (203_000, 4), "1,000 × 200 ms × 1.015");
    assert_eq!((muri.jobs[1].submit_ms, muri.jobs[1].name.as_str()), (5_000, "vgg16"));

    let chronus = read_sample("chronus.csv");
    assert_eq!(chronus.format, LogFormat::Chronus);
    assert_eq!((chronus.jobs[0].submit_ms, chronus.jobs[0].work_ms), (10 * MINUTE_MS, 30 * MINUTE_MS));
    assert_eq!(chronus.left_out, BTreeMap::from([("requested no GPU".to_string(), 1)]));
}

#[test]
fn sacct_output_is_read() {
    let log = read_sample("sacct.txt");
    assert_eq!(log.format, LogFormat::Sacct);
    let expected = [("requested no GPU", 1), ("did not run", 1), ("had not ended", 1), ("had not started", 1)];
    assert_eq!(log.left_out, expected.map(|(why, count)| (why.to_string(), count)).into());
    let [train, sweep, odd] = &log.jobs[..] else { panic!("{:?}", log.jobs) };
    assert_eq!((train.submit_ms, train.work_ms), (EIGHT_OCLOCK_MS, 60 * MINUTE_MS), "job steps are skipped");
    assert_eq!(train.gpus, GangShape::Tasks { count: 2, each: 4 });
    assert_eq!(
        (train.tenant.as_str(), train.user.as_str(), train.gpu_model.as_deref()),
        ("vision", "ada", Some("a100"))
    );
    assert_eq!((train.cpus, train.memory_mib, train.time_limit_ms), (Some(96), Some(1 << 20), Some(86_400_000)));
    assert_eq!((sweep.id.as_str(), sweep.work_ms, sweep.time_limit_ms), ("102_7", 1_801_000, Some(30 * MINUTE_MS)));
    assert_eq!(
        (odd.gpus, odd.time_limit_ms),
        (GangShape::Total(3), None),
        "three GPUs on two nodes are not two equal tasks"
    );
}

#[test]
fn timestamps_are_parsed_with_and_without_a_zone() {
    let zones = ["2026-01-31T08:00:00", "2026-01-31T08:00:00Z", "2026-01-31T03:00:00-05:00", "1769846400"];
    for text in zones {
        assert_eq!(parse_timestamp_ms(text), Some(EIGHT_OCLOCK_MS), "{text}");
    }
    assert_eq!(parse_timestamp_ms("yesterday"), None);
}

#[test]
fn a_bad_line_is_refused_with_its_number() {
    let text = "submit,duration_s,gpus\n0,10,1\n\n5,soon,1\n6,10\n7,10,-1\n8,20,2\n";
    let file = TempFile::new("bad.csv", text);
    let error = read(&file.0, None, BadLinePolicy::Stop).unwrap_err();
    let message = error.to_string();
    assert!(message.ends_with("line 4: `duration_s` is `soon`, which is not a number"), "{message}");
    assert!(error.hint().contains("--skip-bad"), "{}", error.hint());
    let log = read(&file.0, None, BadLinePolicy::Skip).unwrap();
    assert_eq!(log.jobs.iter().map(|job| job.submit_ms).collect::<Vec<_>>(), [0, 8_000]);
    assert_eq!(log.left_out, BTreeMap::from([("could not be read".to_string(), 3)]));
}

#[test]
fn unknown_columns_and_formats_are_refused() {
    let file = TempFile::new("titles.csv", "submit,duration_s,gpus,prio\n0,10,1,5\n");
    let error = read(&file.0, None, BadLinePolicy::Skip).unwrap_err().to_string();
    assert!(error.contains("line 1: unknown column `prio`; known columns are submit, duration_s"), "{error}");
    let file = TempFile::new("unknown.csv", "when,what\n0,10\n");
    let error = read(&file.0, None, BadLinePolicy::Stop).unwrap_err();
    assert!(error.to_string().contains("begins with `when,what`"), "{error}");
    assert!(error.hint().contains("csv, philly, chronus, muri, sacct, journal"), "{}", error.hint());
    let error = read(&file.0, Some(LogFormat::Sacct), BadLinePolicy::Stop).unwrap_err().to_string();
    assert!(error.contains("there is no column `JobID`"), "{error}");
    let error = read(&PathBuf::from("/nowhere/jobs.csv"), None, BadLinePolicy::Stop).unwrap_err();
    assert!(error.to_string().contains("cannot read `/nowhere/jobs.csv`"), "{error}");
}

#[test]
fn gzip_files_are_unpacked() {
    use std::io::Write;
    let file = TempFile::new("packed.csv.gz", "");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&std::fs::read(sample("philly.csv")).unwrap()).unwrap();
    std::fs::write(&file.0, packed.finish().unwrap()).unwrap();
    assert_eq!(read(&file.0, None, BadLinePolicy::Stop).unwrap(), read_sample("philly.csv"));
}

#[test]
fn jobs_outside_the_time_range_are_left_out() {
    let mut log = read_sample("sacct.txt");
    log.retain_submitted_between(Some(EIGHT_OCLOCK_MS + 1), Some(EIGHT_OCLOCK_MS + 9 * MINUTE_MS));
    assert_eq!(log.jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["102_7"]);
    assert_eq!(log.left_out["submitted outside the time range"], 2);
}

/// A state and its journal.
struct JournalBuilder {
    state: State,
    entries: Vec<Entry>,
    epoch: u64,
}

impl JournalBuilder {
    fn execute(&mut self, command: &Command, at_ms: i64) -> Answer {
        let at = Timestamp(at_ms);
        let decision = self.state.decide(&Actor::system(), command, at).unwrap();
        for event in decision.events {
            self.state.apply(&event);
            let (seq, epoch) = (self.entries.len() as u64 + 1, self.epoch);
            self.entries.push(Entry { seq, epoch, at, event });
        }
        decision.answer
    }

    fn submit(&mut self, job: &LoggedJob, cluster: &ReplayCluster, at_ms: i64) -> JobId {
        let tenant = "red".parse().unwrap();
        let spec = job_spec(job, tenant, cluster, &ReplayAssumptions::default()).into();
        let submission = SubmitJob {
            spec,
            array: None,
            hold: false,
            key: None,
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        };
        let Answer::Job(id) = self.execute(&Command::SubmitJob(submission), at_ms) else { panic!("no job") };
        id
    }

    fn plan(&mut self, at_ms: i64) {
        let plan = Box::new(plan(&self.state, Timestamp(at_ms)).plan);
        self.execute(&Command::AdoptPlan { plan, epoch: self.epoch }, at_ms);
    }

    fn report(&mut self, job: JobId, report: TaskReport, at_ms: i64) {
        let attempt = self.state.jobs[&job].attempt().unwrap().clone();
        for node in attempt.nodes() {
            let attempt = attempt.number;
            self.execute(&Command::ReportTask { node, job, attempt, report: report.clone() }, at_ms);
        }
    }
}

use muster_core::JobId;

/// The first job is preempted after 50 s, of which 40 s are checkpointed; it resumes for 60 s and completes. The
/// preemptor runs for 20 s. A third job is cancelled before it starts, a fourth has not ended.
#[test]
fn the_journal_of_a_server_is_read() {
    let file = TempFile::new("journal.db", "");
    let mut store = muster_store::open(&StoreConfig::Sqlite { path: file.0.clone() }).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.acquire_leadership("test", 60_000).unwrap() else { panic!() };
    let mut journal = JournalBuilder { state: State::empty(), entries: Vec::new(), epoch };
    let cluster = ReplayCluster::parse("1x4xV100").unwrap();
    let config = Box::new(TenantConfig::unlimited("red"));
    journal.execute(&Command::CreateTenant { id: "red".parse().unwrap(), config }, 0);
    let (node, facts) = cluster.nodes()[0].clone();
    journal.execute(&Command::RegisterNode { node, facts: Box::new(facts) }, 0);
    let job = |priority: u32| LoggedJob { priority: Some(priority), ..LoggedJob::new("", 0, 1, GangShape::Total(4)) };
    let first_job = LoggedJob { checkpoint_every_ms: Some(20_000), ..job(100) };
    let first = journal.submit(&first_job, &cluster, 1_000);
    journal.plan(1_000);
    journal.report(first, TaskReport::Started, 2_000);
    let second = journal.submit(&job(5_000), &cluster, 52_000);
    journal.plan(52_000);
    let stopped = TaskReport::Ended { exit: Exit::Signal { signal: 15 }, stopped: true, ended_ms_ago: None };
    journal.report(first, stopped, 52_000);
    journal.plan(52_000);
    journal.report(second, TaskReport::Started, 53_000);
    let third = journal.submit(&job(100), &cluster, 60_000);
    journal.execute(&Command::CancelJob { job: third }, 61_000);
    let done = TaskReport::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None };
    journal.report(second, done.clone(), 73_000);
    journal.plan(73_000);
    journal.report(first, TaskReport::Started, 74_000);
    journal.submit(&job(100), &cluster, 80_000);
    journal.report(first, done, 134_000);
    store.journal.append(&journal.entries).unwrap();

    let log = read(&file.0, None, BadLinePolicy::Stop).unwrap();
    assert_eq!(log.format, LogFormat::Journal);
    let expected = [("did not run", 1), ("had not ended", 1)];
    assert_eq!(log.left_out, expected.map(|(why, count)| (why.to_string(), count)).into());
    let seen: Vec<_> = log.jobs.iter().map(|job| (job.id.as_str(), job.submit_ms, job.work_ms)).collect();
    assert_eq!(seen, [("job-1", 1_000, 100_000), ("job-2", 52_000, 20_000)]);
    let (first, spec) = (&log.jobs[0], log.jobs[0].spec.as_ref().unwrap());
    assert_eq!(
        (first.gpus, first.checkpoint_every_ms, spec.priority),
        (GangShape::Tasks { count: 1, each: 4 }, Some(20_000), 100)
    );
    drop(store);
    for ending in ["-wal", "-shm", ".lock", "-lock"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.0.display()));
    }
}
