//! Each format on a sample of our own making.

use std::path::PathBuf;

use muster_core::command::{Answer, Said, SubmitJob};
use muster_core::job::Exit;
use muster_core::plan::plan;
use muster_core::tenant::TenantConfig;
use muster_core::{Actor, Command, State, Timestamp};
use muster_store::{Entry, Leadership, StoreConfig};

use super::moments::span_ms;
use super::*;
use crate::rehearsal::{Assumptions, Site, job_spec};

/// 2026-01-31T08:00:00Z.
const EIGHT: i64 = 1_769_846_400_000;
const MINUTE: i64 = 60_000;

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

fn read_sample(name: &str) -> Log {
    read(&sample(name), None, BadLines::Stop).unwrap()
}

/// A file that is gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("muster-jobs-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn our_own_csv() {
    let log = read_sample("plain.csv");
    assert_eq!(log.format, Format::Plain);
    assert_eq!(log.left_out, BTreeMap::from([("did not run".to_string(), 1)]));
    let [third, first, second] = &log.jobs[..] else { panic!("{:?}", log.jobs) };
    let all = LoggedJob {
        name: "bert".to_string(),
        tenant: "vision".to_string(),
        user: "ada".to_string(),
        cpus: Some(16),
        memory_mib: Some(65_536),
        model: Some("a100".to_string()),
        time_limit_ms: Some(7_200_000),
        priority: Some(200),
        saves_every_ms: Some(600_000),
        ..LoggedJob::new("a1", EIGHT, 3_600_000, Gang::Total(2))
    };
    assert_eq!(*first, all);
    let gang = Gang::Tasks { count: 4, each: 8 };
    let some = LoggedJob { name: "gpt, small".to_string(), ..LoggedJob::new("a2", EIGHT, 90_500, gang) };
    assert_eq!(*second, LoggedJob { tenant: "text".to_string(), user: "bob".to_string(), ..some });
    assert_eq!(third.submit_ms, EIGHT - MINUTE, "without a zone it is UTC, and the first comes first");
    assert_eq!((third.tenant.as_str(), third.user.as_str()), ("everyone", "everyone"));
}

#[test]
fn the_traces() {
    let philly = read_sample("philly.csv");
    assert_eq!(philly.format, Format::Philly);
    let job = &philly.jobs[1];
    assert_eq!((job.submit_ms, job.work_ms, job.gpus), (MINUTE, 60 * MINUTE, Gang::Total(1)));
    assert_eq!(job.tenant, "bbb222");

    let muri = read_sample("muri.csv");
    assert_eq!(muri.format, Format::Muri);
    assert_eq!((muri.jobs[0].work_ms, muri.jobs[0].gpus.total()), (203_000, 4), "1,000 × 200 ms × 1.015");
    assert_eq!((muri.jobs[1].submit_ms, muri.jobs[1].name.as_str()), (5_000, "vgg16"));

    let chronus = read_sample("chronus.csv");
    assert_eq!(chronus.format, Format::Chronus);
    assert_eq!((chronus.jobs[0].submit_ms, chronus.jobs[0].work_ms), (10 * MINUTE, 30 * MINUTE));
    assert_eq!(chronus.left_out, BTreeMap::from([("asked for no GPU".to_string(), 1)]));
}

#[test]
fn what_sacct_prints() {
    let log = read_sample("sacct.txt");
    assert_eq!(log.format, Format::Sacct);
    let expected =
        [("asked for no GPU", 1), ("did not run", 1), ("had not ended", 1), ("had not started", 1)];
    assert_eq!(log.left_out, expected.map(|(why, count)| (why.to_string(), count)).into());
    let [train, sweep, odd] = &log.jobs[..] else { panic!("{:?}", log.jobs) };
    assert_eq!((train.submit_ms, train.work_ms), (EIGHT, 60 * MINUTE), "its steps are no jobs");
    assert_eq!(train.gpus, Gang::Tasks { count: 2, each: 4 });
    assert_eq!(
        (train.tenant.as_str(), train.user.as_str(), train.model.as_deref()),
        ("vision", "ada", Some("a100"))
    );
    assert_eq!(
        (train.cpus, train.memory_mib, train.time_limit_ms),
        (Some(96), Some(1 << 20), Some(86_400_000))
    );
    assert_eq!(
        (sweep.id.as_str(), sweep.work_ms, sweep.time_limit_ms),
        ("102_7", 1_801_000, Some(30 * MINUTE))
    );
    assert_eq!(
        (odd.gpus, odd.time_limit_ms),
        (Gang::Total(3), None),
        "three GPUs of two nodes are no two tasks"
    );
}

#[test]
fn spans_of_slurm() {
    let cases = [
        ("00:30:01", Some(1_801_000)),
        ("2-00:00:00", Some(172_800_000)),
        ("30:15", Some(1_815_000)),
        ("1-12", Some(129_600_000)),
        ("90", Some(5_400_000)),
        ("00:00:01.250", Some(1_000)),
        ("", None),
        ("1:2:3:4", None),
        ("soon", None),
    ];
    for (text, ms) in cases {
        assert_eq!(span_ms(text), ms, "{text}");
    }
    let zones = ["2026-01-31T08:00:00", "2026-01-31T08:00:00Z", "2026-01-31T03:00:00-05:00", "1769846400"];
    for text in zones {
        assert_eq!(moment_ms(text), Some(EIGHT), "{text}");
    }
    assert_eq!(moment_ms("yesterday"), None);
}

#[test]
fn a_bad_line_is_told_with_its_number() {
    let text = "submit,duration_s,gpus\n0,10,1\n\n5,soon,1\n6,10\n7,10,-1\n8,20,2\n";
    let file = Scratch::new("bad.csv", text);
    let error = read(&file.0, None, BadLines::Stop).unwrap_err();
    let said = error.to_string();
    assert!(said.ends_with("line 4: `soon` is no number for `duration_s`"), "{said}");
    assert!(error.hint().contains("--skip-bad"), "{}", error.hint());
    let log = read(&file.0, None, BadLines::Skip).unwrap();
    assert_eq!(log.jobs.iter().map(|job| job.submit_ms).collect::<Vec<_>>(), [0, 8_000]);
    assert_eq!(log.left_out, BTreeMap::from([("could not be read".to_string(), 3)]));
}

#[test]
fn titles_that_nobody_knows_are_told() {
    let file = Scratch::new("titles.csv", "submit,duration_s,gpus,prio\n0,10,1,5\n");
    let error = read(&file.0, None, BadLines::Skip).unwrap_err().to_string();
    assert!(error.contains("line 1: nobody knows a column `prio`; known are submit, duration_s"), "{error}");
    let file = Scratch::new("unknown.csv", "when,what\n0,10\n");
    let error = read(&file.0, None, BadLines::Stop).unwrap_err();
    assert!(error.to_string().contains("begins with `when,what`"), "{error}");
    assert!(error.hint().contains("csv, philly, chronus, muri, sacct, journal"), "{}", error.hint());
    let error = read(&file.0, Some(Format::Sacct), BadLines::Stop).unwrap_err().to_string();
    assert!(error.contains("there is no column `JobID`"), "{error}");
    let error = read(&PathBuf::from("/nowhere/jobs.csv"), None, BadLines::Stop).unwrap_err();
    assert!(error.to_string().contains("cannot read `/nowhere/jobs.csv`"), "{error}");
}

#[test]
fn packed_files_are_unpacked() {
    use std::io::Write;
    let file = Scratch::new("packed.csv.gz", "");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&std::fs::read(sample("philly.csv")).unwrap()).unwrap();
    std::fs::write(&file.0, packed.finish().unwrap()).unwrap();
    assert_eq!(read(&file.0, None, BadLines::Stop).unwrap(), read_sample("philly.csv"));
}

#[test]
fn only_jobs_between_two_moments() {
    let mut log = read_sample("sacct.txt");
    log.between(Some(EIGHT + 1), Some(EIGHT + 9 * MINUTE));
    assert_eq!(log.jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["102_7"]);
    assert_eq!(log.left_out["came before or after"], 2);
}

/// A state and its journal.
struct Cluster {
    state: State,
    entries: Vec<Entry>,
    epoch: u64,
}

impl Cluster {
    fn tell(&mut self, command: &Command, at_ms: i64) -> Answer {
        let at = Timestamp(at_ms);
        let decision = self.state.decide(&Actor::system(), command, at).unwrap();
        for event in decision.events {
            self.state.apply(&event);
            let (seq, epoch) = (self.entries.len() as u64 + 1, self.epoch);
            self.entries.push(Entry { seq, epoch, at, event });
        }
        decision.answer
    }

    fn submit(&mut self, job: &LoggedJob, site: &Site, at_ms: i64) -> JobId {
        let tenant = "red".parse().unwrap();
        let spec = job_spec(job, tenant, site, &Assumptions::default()).into();
        let ask = SubmitJob {
            spec,
            array: None,
            hold: false,
            key: None,
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        };
        let Answer::Job(id) = self.tell(&Command::SubmitJob(ask), at_ms) else { panic!("no job") };
        id
    }

    fn plan(&mut self, at_ms: i64) {
        let plan = Box::new(plan(&self.state, Timestamp(at_ms)).plan);
        self.tell(&Command::AdoptPlan { plan, epoch: self.epoch }, at_ms);
    }

    fn report(&mut self, job: JobId, said: Said, at_ms: i64) {
        let attempt = self.state.jobs[&job].attempt().unwrap().clone();
        for node in attempt.nodes() {
            let attempt = attempt.number;
            self.tell(&Command::ReportTask { node, job, attempt, said: said.clone() }, at_ms);
        }
    }
}

use muster_core::JobId;

/// One job runs and is displaced after 50 s, of which it keeps 40; it goes on for 60 s and is done. The one that it gave
/// way to runs for 20 s. A third is cancelled before it starts, a fourth is still there.
#[test]
fn our_own_journal() {
    let file = Scratch::new("journal.db", "");
    let mut store = muster_store::open(&StoreConfig::Sqlite { path: file.0.clone() }).unwrap();
    let Leadership::Leading { epoch, .. } = store.journal.lead("test", 60_000).unwrap() else { panic!() };
    let mut cluster = Cluster { state: State::empty(), entries: Vec::new(), epoch };
    let site = Site::of_words("1x4xV100").unwrap();
    let config = Box::new(TenantConfig::unlimited("red"));
    cluster.tell(&Command::CreateTenant { id: "red".parse().unwrap(), config }, 0);
    let (node, facts) = site.nodes()[0].clone();
    cluster.tell(&Command::RegisterNode { node, facts: Box::new(facts) }, 0);
    let job =
        |priority: u32| LoggedJob { priority: Some(priority), ..LoggedJob::new("", 0, 1, Gang::Total(4)) };
    let long = LoggedJob { saves_every_ms: Some(20_000), ..job(100) };
    let first = cluster.submit(&long, &site, 1_000);
    cluster.plan(1_000);
    cluster.report(first, Said::Started, 2_000);
    let second = cluster.submit(&job(5_000), &site, 52_000);
    cluster.plan(52_000);
    let stopped = Said::Ended { exit: Exit::Signal { signal: 15 }, stopped: true, ended_ms_ago: None };
    cluster.report(first, stopped, 52_000);
    cluster.plan(52_000);
    cluster.report(second, Said::Started, 53_000);
    let third = cluster.submit(&job(100), &site, 60_000);
    cluster.tell(&Command::CancelJob { job: third }, 61_000);
    let done = Said::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None };
    cluster.report(second, done.clone(), 73_000);
    cluster.plan(73_000);
    cluster.report(first, Said::Started, 74_000);
    cluster.submit(&job(100), &site, 80_000);
    cluster.report(first, done, 134_000);
    store.journal.append(&cluster.entries).unwrap();

    let log = read(&file.0, None, BadLines::Stop).unwrap();
    assert_eq!(log.format, Format::Journal);
    let expected = [("did not run", 1), ("had not ended", 1)];
    assert_eq!(log.left_out, expected.map(|(why, count)| (why.to_string(), count)).into());
    let seen: Vec<_> = log.jobs.iter().map(|job| (job.id.as_str(), job.submit_ms, job.work_ms)).collect();
    assert_eq!(seen, [("job-1", 1_000, 100_000), ("job-2", 52_000, 20_000)]);
    let (first, spec) = (&log.jobs[0], log.jobs[0].spec.as_ref().unwrap());
    assert_eq!(
        (first.gpus, first.saves_every_ms, spec.priority),
        (Gang::Tasks { count: 1, each: 4 }, Some(20_000), 100)
    );
    drop(store);
    for ending in ["-wal", "-shm", ".lock", "-lock"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.0.display()));
    }
}
