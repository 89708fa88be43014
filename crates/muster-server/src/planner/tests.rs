//! The planner with a real engine: rejected parts of plans appear in the metrics.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use muster_core::facts::command::SubmitJob;
use muster_core::facts::plan::Plan;
use muster_core::{JobSpec, Settings};
use muster_store::StoreConfig;

use super::*;
use crate::agents::node_facts;
use crate::clock::SystemClock;
use crate::cluster::{INBOX_REQUESTS_MAX, ServerRole};
use crate::data_folder::ClusterMarker;
use crate::engine_loop::{EngineExit, EngineLoop};
use crate::metrics::MetricSources;
use crate::tls::{ConnectionLimits, Connections};

/// A leader on a database file of its own, with one node and one waiting job.
struct EngineFixture {
    folder: PathBuf,
    cluster: Cluster,
    savepoints: Arc<dyn Savepoints>,
    stop: Arc<AtomicBool>,
    engine: Option<JoinHandle<EngineExit>>,
}

impl EngineFixture {
    fn start(name: &str) -> EngineFixture {
        let folder = std::env::temp_dir().join(format!("muster-planner-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let store = muster_store::open(&StoreConfig::Sqlite { path: folder.join("muster.db") }).unwrap();
        let (inbox, requests) = mpsc::sync_channel(INBOX_REQUESTS_MAX);
        let cluster = Cluster::new(inbox, store.tables, Arc::new(SystemClock));
        let stop = Arc::new(AtomicBool::new(false));
        let engine_loop = EngineLoop {
            link_ca: None,
            savepoints: store.savepoints.clone(),
            cluster: cluster.clone(),
            inbox: requests,
            subscribers: Vec::new(),
            clock: Arc::new(SystemClock),
            holder: name.to_string(),
            marker: ClusterMarker::new(&folder, "test database".to_string(), false).unwrap(),
            settings: Settings::default(),
            stop: stop.clone(),
        };
        let journal = store.journal;
        let engine = Some(std::thread::spawn(move || engine_loop.run(journal)));
        let fixture = EngineFixture { folder, cluster, savepoints: store.savepoints, stop, engine };
        fixture.wait_until_leading();
        fixture.add_node_and_job();
        fixture
    }

    fn wait_until_leading(&self) {
        let began = Instant::now();
        while !matches!(self.cluster.role(), ServerRole::Leading { .. }) {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", self.cluster.role());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn add_node_and_job(&self) {
        let nodes = muster_agent::Cluster::parse("nodes: [{name: n, count: 1, box: dgx-a100}]").unwrap();
        let facts = Box::new(node_facts(nodes.registrations().remove(0)));
        self.execute(Command::RegisterNode { node: "n1".parse().unwrap(), facts });
        let spec: JobSpec = muster_json::from_str(
            r#"{"name":"demo","tenant":"default","user":"ada","priority":100,"run":{"command":["true"]},
                "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
        )
        .unwrap();
        self.execute(Command::SubmitJob(SubmitJob {
            spec: Arc::new(spec),
            array: None,
            hold: false,
            key: None,
            is_operator: false,
            known_key: None,
            known_outcomes: Default::default(),
        }));
    }

    fn execute(&self, command: Command) {
        self.cluster.execute_blocking(Actor::system(), command).unwrap();
    }

    /// A planner thread's data. Its forecaster and shadow evaluator have ended.
    fn planner(&self) -> Planner {
        Planner {
            feed: mpsc::channel().1,
            cluster: self.cluster.clone(),
            savepoints: self.savepoints.clone(),
            clock: Arc::new(SystemClock),
            interval: Duration::from_secs(1),
            rounds: Arc::default(),
            forecaster: mpsc::sync_channel(1).0,
            interpreter: None,
            shadow: Arc::default(),
            shadow_evaluator: mpsc::sync_channel(1).0,
        }
    }

    /// The series of `muster_plan_rejections_total`: reason and value.
    fn rejections(&self, planner: &Planner) -> BTreeMap<String, f64> {
        let limits = ConnectionLimits { total_max: 1, per_address_max: 1 };
        let sources = MetricSources {
            cluster: &self.cluster,
            namespace: "test",
            job_counts: &[],
            rounds: &planner.rounds,
            event_counters: &Default::default(),
            policy_calls: &Default::default(),
            interpreter: None,
            connections: &Connections::new(limits),
            evaluations: &Default::default(),
            denied_requests: [("unauthenticated", 0), ("forbidden", 0)],
        };
        let text = sources.openmetrics_text().unwrap();
        let series = text.lines().filter_map(|line| line.strip_prefix("muster_plan_rejections_total{reason=\""));
        series
            .map(|line| {
                let (reason, value) = line.split_once("\"} ").unwrap();
                (reason.to_string(), value.parse().unwrap())
            })
            .collect()
    }
}

impl Drop for EngineFixture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.engine.take().map(JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(EngineExit::Stopped))));
        }
    }
}

fn proposal(plan: Plan) -> Proposal {
    Proposal {
        verdicts: Verdicts::default(),
        wait_notes: None,
        policy_answers: None,
        starts: plan.starts.len(),
        evictions: plan.evictions.len(),
        adopt_plan: Some(Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }),
    }
}

#[test]
fn the_rejected_parts_of_a_stale_plan_are_counted_by_reason() {
    let fixture = EngineFixture::start("stale-plan");
    let planner = fixture.planner();
    let plan = fixture.cluster.read(|state| plan(state, fixture.cluster.now()).plan);
    assert_eq!(plan.starts.len(), 1);

    planner.submit_proposal(proposal(plan.clone()));
    let fresh = fixture.rejections(&planner);
    assert_eq!(fresh.len(), Rejection::ALL.len(), "every reason is exported from the first scrape");
    assert_eq!(fresh.values().sum::<f64>(), 0.0);

    planner.submit_proposal(proposal(plan));
    let stale = fixture.rejections(&planner);
    assert_eq!((stale["not-ready"], stale.values().sum::<f64>()), (1.0, 1.0), "the job runs already");
}
