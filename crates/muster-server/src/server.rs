//! Startup and shutdown of a server: store, engine, planner and further threads, in-process agents, HTTP listener.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_agent::inventory::counted_gpus;
use muster_agent::{Agent, Runner, RunnerConfig, SimulatedAgents, SimulatedAgentsConfig};
use muster_core::{Actor, Command};
use muster_store::{PostgresConfig, Store, StoreConfig, StoreError};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::agents::ReportReceiver;
use crate::clock::{Clock, SteadyClock, SystemClock};
use crate::cluster::{Cluster, INBOX_REQUESTS_MAX, ServerRole};
use crate::config::{AuthMode, Config, Cors, Database};
use crate::data_folder::{ClusterMarker, FolderLock};
use crate::dispatch::{self, Dispatch};
use crate::engine_loop::{EngineExit, EngineLoop};
use crate::evaluations::EvaluationLimiter;
use crate::exec_source::{ExecRouter, ExecSource, LocalPrograms, SimulatedPrograms};
use crate::forecaster::Forecaster;
use crate::grpc::{self, GrpcListener};
use crate::http::{self, AllowedOrigins, AppState, AppStateInner, RateLimiter};
use crate::link::{LinkListener, RemoteAgents, RemoteLogs, RemotePrograms};
use crate::log_source::{DataFolderLogs, LogRouter, LogSource};
use crate::planner::Planner;
use crate::policies::{Interpreter, MeteredInterpreter, PolicyCallMetrics};
use crate::power::{PowerControl, PowerKeeper, PowerProgram, PowerSchedule};
use crate::readings::Readings;
use crate::round_stats::RoundStats;
use crate::secrets::SecretVault;
use crate::shadow::{Shadow, ShadowEvaluator};
use crate::silence::SilenceTimeouts;
use crate::tls::{ConnectionLimits, Connections};
use crate::whatif::WhatIfReplay;
use crate::{identity, telemetry, tls};

pub use crate::start_error::StartError;

/// Most connections to the metrics port, which serves loopback and a few scrapers.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// The nodes whose agents run inside this process.
pub enum InProcessNodes {
    None,
    /// A cluster of simulated nodes.
    Simulated(muster_agent::Cluster),
    /// This machine: jobs run as real processes. Its GPUs are placeholders, which are only counted.
    Real {
        gpus: u32,
    },
}

/// A running server.
pub struct RunningServer {
    cluster: Cluster,
    address: SocketAddr,
    scheme: &'static str,
    /// Where gRPC is served.
    grpc: Option<SocketAddr>,
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    close_listener: watch::Sender<bool>,
    http_task: tokio::task::JoinHandle<()>,
    engine_exit: oneshot::Receiver<EngineExit>,
    threads: Vec<JoinHandle<()>>,
    /// Held until the server has stopped.
    _folder_lock: FolderLock,
}

/// Adapters of the outbound ports that the binary supplies; `None` disables the feature.
#[derive(Clone, Default)]
pub struct Adapters {
    pub whatif_replay: Option<Arc<Mutex<dyn WhatIfReplay>>>,
    /// Runs the active policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Runs policies for the shadow evaluator, so that its calls never delay those of the planner.
    pub shadow_interpreter: Option<Arc<dyn Interpreter>>,
}

impl Adapters {
    /// Count the calls of the active policies in `metrics`.
    fn with_policy_call_metrics(self, metrics: &Arc<PolicyCallMetrics>) -> Adapters {
        let metered = |inner| -> Arc<dyn Interpreter> { Arc::new(MeteredInterpreter::new(inner, metrics.clone())) };
        Adapters { interpreter: self.interpreter.map(metered), ..self }
    }
}

/// Start a server. Returns when it listens; [`RunningServer::wait_until_ready`] waits until it leads or stands by.
pub fn start(config: &Config, nodes: InProcessNodes, adapters: Adapters) -> Result<RunningServer, StartError> {
    let folder_lock = FolderLock::acquire(&config.data_dir)?;
    let descriptors = tls::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(listen(config.listen))?;
    let address = listener.local_addr()?;
    let grpc = runtime.block_on(GrpcListener::bind(config))?;
    let grpc_address = grpc.as_ref().map(|grpc| grpc.address);
    let store = muster_store::open(&store_config(config)?)?;
    let policy_calls = Arc::new(PolicyCallMetrics::default());
    let adapters = adapters.with_policy_call_metrics(&policy_calls);
    let link = runtime.block_on(LinkListener::bind(config, !matches!(nodes, InProcessNodes::None)))?;
    let agent_link = link.as_ref().map(|link| link.address().clone());
    let mut threads = ServerThreads::start(config, (store, &folder_lock), (nodes, link.as_ref()), &adapters)?;

    let (close_listener, closing) = watch::channel(false);
    let names = certificate_names(config);
    let acceptor = config.tls.as_ref().map(|tls| tls::acceptor(tls, &config.data_dir, &names)).transpose()?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let api = &config.api;
    let limits = ConnectionLimits::new(api.connections_max, api.connections_per_address_max, descriptors);
    if let Some(link) = link {
        let (closing, served) = (closing.clone(), (threads.cluster.clone(), threads.receiver.clone()));
        runtime.spawn(async move { link.serve(served, limits, || shutdown_requested(closing.clone())).await });
    }
    let connections = match config.auth {
        AuthMode::Local => Connections::new(limits).without_tokens(),
        AuthMode::Tokens => Connections::new(limits),
    };
    let app = AppStateInner {
        agent_link,
        ..app_state(config, &threads, (adapters, policy_calls), (closing.clone(), connections))
    };
    let app = AppState::from(app);
    runtime.block_on(serve_metrics(config, &app, closing.clone()));
    let router = http::router(app.clone());
    let http_task = runtime.spawn(serve_apis((app, router), (listener, grpc), acceptor, closing));
    runtime.spawn(trace_jobs(config, threads.cluster.clone(), close_listener.subscribe()));
    Ok(RunningServer {
        address,
        scheme,
        grpc: grpc_address,
        runtime,
        stop: threads.stop.clone(),
        close_listener,
        http_task,
        threads: std::mem::take(&mut threads.threads),
        engine_exit: threads.engine_exit,
        cluster: threads.cluster,
        _folder_lock: folder_lock,
    })
}

/// Serve REST and gRPC until `closing`. Both have the same certificate, and their connections count together.
async fn serve_apis(
    (app, rest): (AppState, axum::Router),
    (listener, grpc): (tokio::net::TcpListener, Option<GrpcListener>),
    acceptor: Option<TlsAcceptor>,
    closing: watch::Receiver<bool>,
) {
    let (connections, shutdown) = (app.connections.clone(), shutdown_requested(closing.clone()));
    let serving_rest = tls::serve((listener, connections.clone()), acceptor.clone(), rest.clone(), shutdown);
    let serving_grpc = async move {
        let Some(grpc) = grpc else { return };
        let router = grpc::router(&app, rest).await;
        tls::serve((grpc.listener, connections), acceptor, router, shutdown_requested(closing)).await;
    };
    tokio::join!(serving_rest, serving_grpc);
}

/// Serve the metrics on a port of their own, if `metrics.port` is set. That port requires no token, so it is for
/// loopback only; `/metrics` of the server serves the same metrics.
async fn serve_metrics(config: &Config, app: &AppState, closing: watch::Receiver<bool>) {
    let Some(address) = config.metrics.listen.filter(|_| config.metrics.enabled) else { return };
    if !address.ip().is_loopback() {
        warn!(%address, "metrics.port ignored: it is served on loopback only; read /metrics of the server with a token");
        return;
    }
    match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => {
            let router = http::metrics_router(app.clone(), &config.metrics.path);
            let connections = Connections::new(ConnectionLimits {
                total_max: METRICS_CONNECTIONS_MAX,
                per_address_max: METRICS_CONNECTIONS_MAX,
            })
            .without_tokens();
            tokio::spawn(tls::serve((listener, connections), None, router, shutdown_requested(closing)));
        }
        Err(fault) => {
            warn!(%address, %fault, "cannot listen on metrics.port; /metrics of the server serves the same metrics");
        }
    }
}

/// Names and addresses, besides the host name, that a certificate of the server's own CA covers.
fn certificate_names(config: &Config) -> Vec<String> {
    let address = Some(config.listen.ip()).filter(|ip| !ip.is_unspecified());
    config.api.allowed_hosts.iter().cloned().chain(address.map(|ip| ip.to_string())).collect()
}

fn app_state(
    config: &Config,
    threads: &ServerThreads,
    (adapters, policy_calls): (Adapters, Arc<PolicyCallMetrics>),
    (stopping, connections): (watch::Receiver<bool>, Connections),
) -> AppStateInner {
    let cors = match &config.api.cors {
        Cors::SameOrigin => Vec::new(),
        Cors::Any => vec!["*".to_string()],
        Cors::Origins(origins) => origins.clone(),
    };
    AppStateInner {
        cluster: threads.cluster.clone(),
        identity: config.auth.into(),
        allowed_origins: AllowedOrigins { hosts: config.api.allowed_hosts.clone(), cors_origins: cors },
        rate_limiter: RateLimiter::new(config.api.rate_limit_rps),
        connections,
        access_denials: Default::default(),
        evaluations: EvaluationLimiter::default(),
        logs: threads.logs.clone(),
        programs: threads.programs.clone(),
        rounds: threads.rounds.clone(),
        readings: threads.readings.clone(),
        event_counters: Arc::default(),
        policy_calls,
        metrics: config.metrics.clone(),
        whatif_replay: adapters.whatif_replay,
        interpreter: adapters.interpreter,
        admission_slots: http::admission_slots(),
        power: threads.power.clone(),
        shadow: threads.shadow.clone(),
        secrets: threads.secrets.clone(),
        agent_link: None,
        stopping,
    }
}

/// The threads of a server and what they share with the HTTP handlers.
struct ServerThreads {
    cluster: Cluster,
    rounds: Arc<RoundStats>,
    readings: Arc<Readings>,
    receiver: Arc<ReportReceiver>,
    logs: Arc<dyn LogSource>,
    programs: Arc<ExecRouter>,
    power: Option<Arc<dyn PowerControl>>,
    shadow: Arc<Shadow>,
    secrets: Arc<SecretVault>,
    stop: Arc<AtomicBool>,
    engine_exit: oneshot::Receiver<EngineExit>,
    threads: Vec<JoinHandle<()>>,
}

impl ServerThreads {
    fn start(
        config: &Config,
        (store, folder): (Store, &FolderLock),
        (nodes, link): (InProcessNodes, Option<&LinkListener>),
        adapters: &Adapters,
    ) -> Result<ServerThreads, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(SystemClock));
        let (inbox, requests) = mpsc::sync_channel(INBOX_REQUESTS_MAX);
        let cluster = Cluster::new(inbox, store.tables, clock.clone());
        let timeouts = SilenceTimeouts::new(&config.silence, config.agent.heartbeat_ms);
        let (to_dispatch, dispatch_inputs) = mpsc::channel();
        let receiver = ReportReceiver::new(cluster.clone(), clock.clone(), timeouts, to_dispatch.clone());
        let is_simulated = matches!(nodes, InProcessNodes::Simulated(_));
        let mut agents = start_agents(config, nodes, &receiver)?;
        let readings = receiver.readings();
        let remote_logs = link.map(|link| RemoteLogs::new(link.connections.clone(), cluster.clone()));
        let logs = Arc::new(log_router(config, &agents, remote_logs));
        let remote_programs = link.map(|link| RemotePrograms::new(link.connections.clone(), cluster.clone()));
        let programs = Arc::new(exec_router(config, &agents, is_simulated, remote_programs));
        // Last, because it takes the orders of all nodes that no agent before it serves.
        let remote_agents = link.map(|link| RemoteAgents::new(link.connections.clone()));
        agents.extend(remote_agents.map(|remote| Box::new(remote) as Box<dyn Agent>));
        let stop = Arc::new(AtomicBool::new(false));
        let power = power_control(config, &stop)?;
        let power_keeper = power.clone().map(|control| {
            let schedule = Mutex::new(PowerSchedule::new(config.power.fences));
            Arc::new(PowerKeeper { control, schedule, cluster: cluster.clone(), clock: clock.clone() })
        });
        let rounds = Arc::new(RoundStats::default());
        let (to_planner, planner_feed) = mpsc::channel();
        let (to_forecaster, states) = mpsc::sync_channel(1);
        let (to_shadow_evaluator, shadow_states) = mpsc::sync_channel(1);
        let shadow = Arc::new(Shadow::default());
        let planner = Planner {
            feed: planner_feed,
            cluster: cluster.clone(),
            savepoints: store.savepoints.clone(),
            clock: clock.clone(),
            interval: Duration::from_millis(config.scheduling_interval_ms.max(1) as u64),
            rounds: rounds.clone(),
            forecaster: to_forecaster,
            interpreter: adapters.interpreter.clone(),
            shadow: shadow.clone(),
            shadow_evaluator: to_shadow_evaluator,
        };
        let shadow_evaluator = ShadowEvaluator {
            states: shadow_states,
            shadow: shadow.clone(),
            interpreter: adapters.shadow_interpreter.clone(),
            clock: clock.clone(),
        };
        let forecaster = Forecaster { states, cluster: cluster.clone(), clock: clock.clone() };
        let secrets = Arc::new(SecretVault::new(store.secrets, config.secrets_key_path()));
        let dispatch = Dispatch {
            inputs: dispatch_inputs,
            cluster: cluster.clone(),
            agents,
            secrets: secrets.clone(),
            lacking_secrets: Default::default(),
        };
        let engine_loop = EngineLoop {
            savepoints: store.savepoints,
            cluster: cluster.clone(),
            inbox: requests,
            subscribers: vec![
                // A failed send means that the planner's thread has ended.
                Box::new(move |update| drop(to_planner.send(update))),
                dispatch::journal_subscriber(to_dispatch),
            ],
            clock,
            holder: folder.holder.clone(),
            marker: ClusterMarker::new(&config.data_dir, database_location(config), config.new_cluster)?,
            settings: config.settings.clone(),
            link_ca: link.map(|link| link.address().ca_fingerprint.clone()),
            stop: stop.clone(),
        };
        let (exited, engine_exit) = oneshot::channel();
        let mut journal = store.journal;
        if let Some(former) = &folder.former_holder {
            journal.declare_holder_dead(former);
        }
        let (stopping, watched) = (stop.clone(), receiver.clone());
        let mut threads = vec![
            spawn_thread("planner", move || planner.run())?,
            spawn_thread("forecaster", move || forecaster.run())?,
            spawn_thread("shadow", move || shadow_evaluator.run())?,
            spawn_thread("dispatch", move || dispatch.run())?,
            spawn_thread("node-timeouts", move || watch_silent_nodes(&watched, &stopping))?,
            spawn_thread("engine", move || drop(exited.send(engine_loop.run(journal))))?,
        ];
        if let Some(keeper) = power_keeper {
            let stopping = stop.clone();
            threads.push(spawn_thread("power-control", move || keeper.run(&stopping))?);
        }
        Ok(ServerThreads {
            cluster,
            rounds,
            readings,
            receiver,
            logs,
            programs,
            power,
            shadow,
            secrets,
            stop,
            engine_exit,
            threads,
        })
    }
}

impl RunningServer {
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Where gRPC is served, such as `http://127.0.0.1:50051`. `None` if it is off.
    pub fn grpc_url(&self) -> Option<String> {
        Some(format!("{}://{}", self.scheme, self.grpc?))
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Wait until this server leads or stands by, for ever if `limit` is `None`; false if the limit passed before. Returns
    /// the error of an engine that ended at once. While the database does not answer, the log repeats that every few
    /// seconds.
    pub fn wait_until_ready(&mut self, limit: Option<Duration>) -> Result<bool, StartError> {
        let begin = std::time::Instant::now();
        while limit.is_none_or(|limit| begin.elapsed() < limit) {
            if matches!(self.cluster.role(), ServerRole::Leading { .. } | ServerRole::Standby { .. }) {
                return Ok(true);
            }
            match self.engine_exit.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {}
                Ok(end) => return exit_result(Ok(end)).map(|()| false),
                Err(oneshot::error::TryRecvError::Closed) => return Err(StartError::Panicked("engine")),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    pub fn why_not_ready(&self) -> String {
        match self.cluster.role() {
            ServerRole::Unavailable { why } => why,
            _ => "the journal is being replayed".to_string(),
        }
    }

    /// Run until SIGINT or SIGTERM, or until the engine ends; then shut down in order.
    pub fn wait(mut self) -> Result<(), StartError> {
        let engine_exit = &mut self.engine_exit;
        let early_exit = self.runtime.block_on(async {
            tokio::select! {
                () = termination_signal() => None,
                end = engine_exit => Some(end),
            }
        });
        match early_exit {
            None => self.stop(),
            Some(end) => {
                let outcome = exit_result(end);
                self.shut_down();
                outcome
            }
        }
    }

    /// Stop in order: finish open requests, write a savepoint, release the leader lease. Running jobs continue.
    pub fn stop(mut self) -> Result<(), StartError> {
        info!("stopping: open requests are finished; running jobs continue");
        let _ = self.close_listener.send(true);
        let _ = self.runtime.block_on(&mut self.http_task);
        self.stop.store(true, Ordering::Relaxed);
        let outcome = exit_result(self.runtime.block_on(&mut self.engine_exit));
        self.shut_down();
        outcome
    }

    fn shut_down(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("a thread has panicked");
            }
        }
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn exit_result(end: Result<EngineExit, oneshot::error::RecvError>) -> Result<(), StartError> {
    match end {
        Ok(EngineExit::Stopped) => Ok(()),
        // The store is intact: the operator has to correct the configuration.
        Ok(EngineExit::Broken(fault @ StoreError::Misconfigured(_))) => Err(StartError::Store(fault)),
        Ok(EngineExit::Broken(fault)) => Err(StartError::Broken(fault)),
        Err(_) => Err(StartError::Panicked("engine")),
    }
}

/// Export job traces until the server stops. Ends at once if no collector is configured.
fn trace_jobs(config: &Config, cluster: Cluster, closing: watch::Receiver<bool>) -> impl Future<Output = ()> + use<> {
    let (telemetry, environment) = (config.telemetry.clone(), config.environment.clone());
    async move {
        if let Err(fault) = telemetry::trace_jobs(cluster, telemetry, environment, shutdown_requested(closing)).await {
            warn!(%fault, "jobs are not traced");
        }
    }
}

async fn shutdown_requested(mut closing: watch::Receiver<bool>) {
    // An error means that the server has been dropped.
    let _ = closing.wait_for(|closed| *closed).await;
}

async fn termination_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
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

/// The location of the database for messages, without its password.
fn database_location(config: &Config) -> String {
    match &config.database {
        Database::Sqlite { path } => format!("database file `{}`", path.display()),
        Database::Postgres { url, .. } => format!("database `{url}`"),
    }
}

fn start_agents(
    config: &Config,
    nodes: InProcessNodes,
    receiver: &Arc<ReportReceiver>,
) -> Result<Vec<Box<dyn Agent>>, StartError> {
    let interval = |ms: i64| Duration::from_millis(ms.max(1) as u64);
    let heartbeat = interval(config.agent.heartbeat_ms);
    Ok(match nodes {
        InProcessNodes::None => Vec::new(),
        InProcessNodes::Simulated(cluster) => {
            let simulated = SimulatedAgentsConfig {
                heartbeat_interval: heartbeat,
                reading_interval: interval(config.agent.metrics_ms),
                health_check_interval: interval(config.agent.health_check_ms),
                ..SimulatedAgentsConfig::new(cluster.registrations(), &config.data_dir)
            };
            vec![Box::new(SimulatedAgents::start(simulated, receiver.report_sink())?)]
        }
        InProcessNodes::Real { gpus } => {
            let shim = vec![std::env::current_exe()?.into_os_string(), "shim".into()];
            let mut runner = RunnerConfig::new(&config.data_dir, shim);
            runner.gpus = counted_gpus("", gpus);
            runner.heartbeat_interval = heartbeat;
            runner.launcher = config.agent.launcher.clone();
            runner.node = config.agent.node_id.clone().unwrap_or(runner.node);
            vec![Box::new(Runner::start(runner, receiver.report_sink())?)]
        }
    })
}

/// Output of the nodes inside this process is in the data folder; other nodes are asked over the agent link.
fn log_router(config: &Config, agents: &[Box<dyn Agent>], remote: Option<RemoteLogs>) -> LogRouter {
    let names = agents.iter().flat_map(|agent| agent.nodes());
    let own = DataFolderLogs::new(&config.data_dir, names.filter_map(|name| name.parse().ok()));
    let remote = remote.map(|remote| Arc::new(remote) as Arc<dyn LogSource>);
    LogRouter::new(remote.into_iter().collect(), Arc::new(own))
}

/// Programs run inside jobs of this process's agent, or of connected ones.
fn exec_router(
    config: &Config,
    agents: &[Box<dyn Agent>],
    is_simulated: bool,
    remote: Option<RemotePrograms>,
) -> ExecRouter {
    let names = agents.iter().flat_map(|agent| agent.nodes()).filter_map(|name| name.parse().ok());
    let own: Arc<dyn ExecSource> = match is_simulated {
        true => Arc::new(SimulatedPrograms::new(names)),
        false => Arc::new(LocalPrograms::new(&config.data_dir, names)),
    };
    ExecRouter(
        [Some(own), remote.map(|remote| Arc::new(remote) as Arc<dyn ExecSource>)].into_iter().flatten().collect(),
    )
}

/// The power program of the site, if there is one.
fn power_control(config: &Config, stop: &Arc<AtomicBool>) -> Result<Option<Arc<dyn PowerControl>>, StartError> {
    let Some(path) = config.power.program.clone() else { return Ok(None) };
    let program = PowerProgram::new(path, config.power.timeout_ms, stop.clone()).map_err(StartError::PowerProgram)?;
    Ok(Some(Arc::new(program)))
}

fn watch_silent_nodes(receiver: &ReportReceiver, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        receiver.report_silent_nodes();
        // Short sleeps, so that stopping does not wait for this thread.
        for _ in 0..10 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    Ok(std::thread::Builder::new().name(name.to_string()).spawn(work)?)
}

/// In token mode, create the first administrator token and write it to a file that only its owner can read. Returns the
/// secret, to be shown once; `None` if there is nothing to create.
pub fn bootstrap_token(running: &RunningServer, config: &Config) -> Result<Option<identity::Secret>, StartError> {
    let cluster = &running.cluster;
    if config.auth != AuthMode::Tokens || !matches!(cluster.role(), ServerRole::Leading { .. }) {
        return Ok(None);
    }
    let now = cluster.now();
    let Some((token, secret)) = cluster.read(|state| identity::bootstrap(&config.data_dir, state, now))? else {
        return Ok(None);
    };
    if let Err(declined) = cluster.execute_blocking(Actor::system(), Command::AddToken { token }) {
        warn!(%declined, "the first administrator token was not created; restart the server");
        return Ok(None);
    }
    Ok(Some(secret))
}
