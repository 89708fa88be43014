//! Puts the parts together: store, engine, planner, dispatch, agents and door; and takes them apart in order.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_agent::{Agent, Runner, RunnerConfig, Simulated, SimulatedConfig};
use muster_core::{Actor, Command};
use muster_store::{PostgresConfig, Store, StoreConfig, StoreError};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::agents::Ear;
use crate::clock::{Clock, SystemClock};
use crate::cluster::{Cluster, INBOX_SIZE, Role};
use crate::config::{AuthMode, Config, Cors, Database};
use crate::data_folder::{FolderLock, Marker};
use crate::dispatch::Dispatch;
use crate::evaluations::Evaluations;
use crate::forecaster::Forecaster;
use crate::http::{self, Behind, Door, Limits, Origins};
use crate::planner::Planner;
use crate::policies::{Counted, Interpreter, Questions};
use crate::readings::Readings;
use crate::reign::{End, Reign};
use crate::rounds::Rounds;
use crate::shadow::{Shadow, Shadower};
use crate::tls::{Bounds, Connections};
use crate::whatif::Oracle;
use crate::{identity, telemetry, tls};

pub use crate::start_error::StartError;

/// Most connections to the port of the metrics, which is for loopback and a few scrapers.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// Which nodes live inside this process.
pub enum Nodes {
    /// None.
    None,
    /// A cluster of simulated devices.
    Simulated(muster_agent::Cluster),
    /// This machine: jobs run as real processes, on so many GPUs that are only counted.
    Real {
        /// How many.
        gpus: u32,
    },
}

/// A server that runs.
pub struct Running {
    cluster: Cluster,
    address: SocketAddr,
    scheme: &'static str,
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    close_door: watch::Sender<bool>,
    door: tokio::task::JoinHandle<()>,
    engine: oneshot::Receiver<End>,
    threads: Vec<JoinHandle<()>>,
    /// Held for as long as the server lives.
    _folder_lock: FolderLock,
}

/// Those whom a server asks, as far as they are there.
#[derive(Clone, Default)]
pub struct Advisers {
    /// Who answers what-if questions.
    pub oracle: Option<Arc<Mutex<dyn Oracle>>>,
    /// Who runs policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Who runs them where nobody waits for it: beside those in force.
    pub unhurried: Option<Arc<dyn Interpreter>>,
}

impl Advisers {
    /// The same, with what policies are asked counted for the metrics.
    fn counted(self, questions: &Arc<Questions>) -> Advisers {
        let counted = |inner| -> Arc<dyn Interpreter> { Arc::new(Counted::new(inner, questions.clone())) };
        Advisers { interpreter: self.interpreter.map(counted), ..self }
    }
}

/// Start a server. Returns when it listens; [`Running::wait_until_ready`] waits until it leads.
pub fn start(config: &Config, nodes: Nodes, advisers: Advisers) -> Result<Running, StartError> {
    let folder_lock = FolderLock::take(&config.data_dir)?;
    let descriptors = tls::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(listen(config.listen))?;
    let address = listener.local_addr()?;
    let store = muster_store::open(&store_config(config)?)?;
    let questions = Arc::new(Questions::default());
    let advisers = advisers.counted(&questions);
    let mut parts = Parts::start(config, (store, &folder_lock), nodes, &advisers)?;

    let (close_door, closing) = watch::channel(false);
    let names = names(config);
    let acceptor = config.tls.as_ref().map(|tls| tls::acceptor(tls, &config.data_dir, &names)).transpose()?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let api = &config.api;
    let bounds = Bounds::new(api.connections_max, api.connections_per_address_max, descriptors);
    let door_facts = door(config, &parts, (advisers, questions), (closing.clone(), Connections::new(bounds)));
    runtime.block_on(serve_metrics(config, &door_facts, closing.clone()));
    let places = door_facts.connections.clone();
    let router = http::router(door_facts);
    let door = runtime.spawn(tls::serve((listener, places), acceptor, router, closed(closing)));
    runtime.spawn(trace_jobs(config, parts.cluster.clone(), close_door.subscribe()));
    Ok(Running {
        address,
        scheme,
        runtime,
        stop: parts.stop.clone(),
        close_door,
        door,
        threads: std::mem::take(&mut parts.threads),
        engine: parts.engine,
        cluster: parts.cluster,
        _folder_lock: folder_lock,
    })
}

/// Serve the metrics on a port of their own, where one is named. Nobody is asked for a token there, so it is for
/// loopback only; `/metrics` of the door serves the same.
async fn serve_metrics(config: &Config, door: &Door, closing: watch::Receiver<bool>) {
    let Some(address) = config.metrics.listen.filter(|_| config.metrics.enabled) else { return };
    if !address.ip().is_loopback() {
        warn!(%address, "no metrics port beyond loopback; read /metrics of the server with a token");
        return;
    }
    match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => {
            let router = http::metrics_router(door.clone(), &config.metrics.path);
            let places = Connections::new(Bounds {
                all: METRICS_CONNECTIONS_MAX,
                per_address: METRICS_CONNECTIONS_MAX,
            });
            tokio::spawn(tls::serve((listener, places), None, router, closed(closing)));
        }
        Err(fault) => warn!(%address, %fault, "no metrics port; /metrics of the server has the same"),
    }
}

/// What clients may call this server in a certificate of our own, besides its host name.
fn names(config: &Config) -> Vec<String> {
    let address = Some(config.listen.ip()).filter(|ip| !ip.is_unspecified());
    config.api.allowed_hosts.iter().cloned().chain(address.map(|ip| ip.to_string())).collect()
}

fn door(
    config: &Config,
    parts: &Parts,
    (advisers, questions): (Advisers, Arc<Questions>),
    (stopping, connections): (watch::Receiver<bool>, Connections),
) -> Door {
    let cors = match &config.api.cors {
        Cors::SameOrigin => Vec::new(),
        Cors::Any => vec!["*".to_string()],
        Cors::Origins(origins) => origins.clone(),
    };
    Door::from(Behind {
        cluster: parts.cluster.clone(),
        identity: config.auth.into(),
        origins: Origins { hosts: config.api.allowed_hosts.clone(), cors },
        limits: Limits::new(config.api.rate_limit_rps),
        connections,
        refusals: Default::default(),
        evaluations: Evaluations::default(),
        data_dir: config.data_dir.clone(),
        rounds: parts.rounds.clone(),
        readings: parts.readings.clone(),
        seen: Arc::default(),
        questions,
        metrics: config.metrics.clone(),
        oracle: advisers.oracle,
        interpreter: advisers.interpreter,
        admission_slots: http::admission_slots(),
        shadow: parts.shadow.clone(),
        stopping,
    })
}

/// The threads behind the door.
struct Parts {
    cluster: Cluster,
    rounds: Arc<Rounds>,
    readings: Arc<Readings>,
    shadow: Arc<Shadow>,
    stop: Arc<AtomicBool>,
    engine: oneshot::Receiver<End>,
    threads: Vec<JoinHandle<()>>,
}

impl Parts {
    fn start(
        config: &Config,
        (store, folder): (Store, &FolderLock),
        nodes: Nodes,
        advisers: &Advisers,
    ) -> Result<Parts, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (inbox, asks) = mpsc::sync_channel(INBOX_SIZE);
        let cluster = Cluster::new(inbox, store.tables, clock.clone());
        let heartbeat = Duration::from_millis(config.agent.heartbeat_ms.max(1) as u64);
        let ear = Ear::new(cluster.clone(), clock.clone(), heartbeat);
        let agents = start_agents(config, nodes, &ear)?;
        let readings = ear.readings();
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(Rounds::default());
        let (to_planner, planner_feed) = mpsc::channel();
        let (to_dispatch, dispatch_feed) = mpsc::channel();
        let (to_forecaster, states) = mpsc::sync_channel(1);
        let (to_shadower, looks) = mpsc::sync_channel(1);
        let shadow = Arc::new(Shadow::default());
        let planner = Planner {
            feed: planner_feed,
            cluster: cluster.clone(),
            savepoints: store.savepoints.clone(),
            clock: clock.clone(),
            interval: Duration::from_millis(config.scheduling_interval_ms.max(1) as u64),
            rounds: rounds.clone(),
            forecaster: to_forecaster,
            interpreter: advisers.interpreter.clone(),
            shadow: shadow.clone(),
            shadower: to_shadower,
        };
        let interpreter = advisers.unhurried.clone();
        let shadower = Shadower { states: looks, shadow: shadow.clone(), interpreter, clock: clock.clone() };
        let forecaster = Forecaster { states, cluster: cluster.clone(), clock: clock.clone() };
        let dispatch = Dispatch { feed: dispatch_feed, cluster: cluster.clone(), agents };
        let reign = Reign {
            savepoints: store.savepoints,
            cluster: cluster.clone(),
            inbox: asks,
            followers: vec![to_planner, to_dispatch],
            clock,
            holder: folder.holder.clone(),
            marker: Marker::new(&config.data_dir, database_place(config), config.new_cluster)?,
            settings: config.settings.clone(),
            stop: stop.clone(),
        };
        let (ended, engine) = oneshot::channel();
        let mut journal = store.journal;
        if let Some(former) = &folder.former {
            journal.succeed(former);
        }
        let stopping = stop.clone();
        let threads = vec![
            thread("planner", move || planner.run())?,
            thread("forecaster", move || forecaster.run())?,
            thread("shadow", move || shadower.run())?,
            thread("dispatch", move || dispatch.run())?,
            thread("silence", move || notice_silence(&ear, &stopping))?,
            thread("engine", move || drop(ended.send(reign.run(journal))))?,
        ];
        Ok(Parts { cluster, rounds, readings, shadow, stop, engine, threads })
    }
}

impl Running {
    /// Where it is reached.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The cluster behind the door.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Wait until this server leads or stands by, for ever without a limit; false if neither came true in time. An
    /// engine that ended says at once why; while the database is away, the log says so every few seconds.
    pub fn wait_until_ready(&mut self, limit: Option<Duration>) -> Result<bool, StartError> {
        let begin = std::time::Instant::now();
        while limit.is_none_or(|limit| begin.elapsed() < limit) {
            if matches!(self.cluster.role(), Role::Leading { .. } | Role::Standby { .. }) {
                return Ok(true);
            }
            match self.engine.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {}
                Ok(end) => return ended(Ok(end)).map(|()| false),
                Err(oneshot::error::TryRecvError::Closed) => return Err(StartError::Panicked("engine")),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    /// Why this server is not ready.
    pub fn why_not_ready(&self) -> String {
        match self.cluster.role() {
            Role::Away { why } => why,
            _ => "the journal is still being read".to_string(),
        }
    }

    /// Run until SIGINT or SIGTERM, or until going on would be wrong; then stop in order.
    pub fn wait(mut self) -> Result<(), StartError> {
        let engine = &mut self.engine;
        let early = self.runtime.block_on(async {
            tokio::select! {
                () = signalled() => None,
                end = engine => Some(end),
            }
        });
        match early {
            None => self.stop(),
            Some(end) => {
                let outcome = ended(end);
                self.shut_down();
                outcome
            }
        }
    }

    /// Stop in order: finish requests, save the state, hand over the lead. Running jobs run on.
    pub fn stop(mut self) -> Result<(), StartError> {
        info!("stopping: requests under way are finished, running jobs run on");
        let _ = self.close_door.send(true);
        let _ = self.runtime.block_on(&mut self.door);
        self.stop.store(true, Ordering::Relaxed);
        let outcome = ended(self.runtime.block_on(&mut self.engine));
        self.shut_down();
        outcome
    }

    fn shut_down(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("a thread had panicked");
            }
        }
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn ended(end: Result<End, oneshot::error::RecvError>) -> Result<(), StartError> {
    match end {
        Ok(End::Stopped) => Ok(()),
        // Nothing is broken: a person has to decide.
        Ok(End::Broken(fault @ StoreError::Misconfigured(_))) => Err(StartError::Store(fault)),
        Ok(End::Broken(fault)) => Err(StartError::Broken(fault)),
        Err(_) => Err(StartError::Panicked("engine")),
    }
}

/// Without a collector this ends at once.
fn trace_jobs(
    config: &Config,
    cluster: Cluster,
    closing: watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let (telemetry, environment) = (config.telemetry.clone(), config.environment.clone());
    async move {
        if let Err(fault) = telemetry::trace_jobs(cluster, telemetry, environment, closed(closing)).await {
            warn!(%fault, "jobs are not traced");
        }
    }
}

async fn closed(mut closing: watch::Receiver<bool>) {
    // An error means that the server is gone, which is reason enough to close.
    let _ = closing.wait_for(|closed| *closed).await;
}

async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        warn!("signals cannot be caught; stop the server with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn listen(address: SocketAddr) -> Result<tokio::net::TcpListener, StartError> {
    tokio::net::TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Where the configuration says that the database is.
pub fn store_config(config: &Config) -> Result<StoreConfig, StartError> {
    Ok(match &config.database {
        Database::Sqlite { path } => StoreConfig::Sqlite { path: path.clone() },
        Database::Postgres { url, pool } => {
            let parsed = url.reveal().parse::<PostgresConfig>()?;
            StoreConfig::Postgres(PostgresConfig {
                max_open_conns: pool.connections_max as usize,
                max_idle_conns: pool.idle_max as usize,
                conn_max_lifetime_mins: pool.lifetime_ms_max.map_or(0, |ms| (ms / 60_000).max(1) as u64),
                ..parsed
            })
        }
    })
}

/// Where the database is, for messages; never with a password.
fn database_place(config: &Config) -> String {
    match &config.database {
        Database::Sqlite { path } => format!("database file `{}`", path.display()),
        Database::Postgres { url, .. } => format!("database `{url}`"),
    }
}

fn start_agents(config: &Config, nodes: Nodes, ear: &Arc<Ear>) -> Result<Vec<Box<dyn Agent>>, StartError> {
    let pause = |ms: i64| Duration::from_millis(ms.max(1) as u64);
    let heartbeat = pause(config.agent.heartbeat_ms);
    Ok(match nodes {
        Nodes::None => Vec::new(),
        Nodes::Simulated(cluster) => {
            let simulated = SimulatedConfig {
                heartbeat,
                readings: pause(config.agent.metrics_ms),
                health_checks: pause(config.agent.health_check_ms),
                ..SimulatedConfig::new(cluster.registrations(), &config.data_dir)
            };
            vec![Box::new(Simulated::start(simulated, ear.mouth())?)]
        }
        Nodes::Real { gpus } => {
            let shim = vec![std::env::current_exe()?.into_os_string(), "shim".into()];
            let mut runner = RunnerConfig::new(&config.data_dir, shim);
            runner.gpus = counted_gpus(gpus);
            runner.heartbeat = heartbeat;
            runner.node = config.agent.node_id.clone().unwrap_or(runner.node);
            vec![Box::new(Runner::start(runner, ear.mouth())?)]
        }
    })
}

/// GPUs that are given out and counted, but not there: real discovery comes with the hardware adapters.
fn counted_gpus(count: u32) -> Vec<muster_protocol::agent::Gpu> {
    let gpu = |index| muster_protocol::agent::Gpu {
        uuid: format!("counted-{index}"),
        model: "counted".to_string(),
        memory_mib: 16_384,
        numa_node: None,
        nvlink: Vec::new(),
        socket: None,
        pcie_switch: None,
        mig: Vec::new(),
        power_limit_milliwatts: None,
    };
    (0..count).map(gpu).collect()
}

fn notice_silence(ear: &Ear, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        ear.notice_silence();
        // Short sleeps, so that stopping does not wait for this thread.
        for _ in 0..10 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    Ok(std::thread::Builder::new().name(name.to_string()).spawn(work)?)
}

/// With tokens, the first start makes one administrator's token and keeps it where only its owner can read
/// it. Returns its secret, to be shown once.
pub fn bootstrap_token(running: &Running, config: &Config) -> Result<Option<identity::Secret>, StartError> {
    let cluster = &running.cluster;
    if config.auth != AuthMode::Tokens || !matches!(cluster.role(), Role::Leading { .. }) {
        return Ok(None);
    }
    let now = cluster.now();
    let Some((token, secret)) = cluster.read(|state| identity::bootstrap(&config.data_dir, state, now))?
    else {
        return Ok(None);
    };
    if let Err(declined) = cluster.ask_blocking(Actor::system(), Command::AddToken { token }) {
        warn!(%declined, "no first token was made; restart the server");
        return Ok(None);
    }
    Ok(Some(secret))
}
