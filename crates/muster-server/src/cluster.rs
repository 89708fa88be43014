//! The handle that HTTP handlers, planner and dispatch share: it sends commands to the engine and reads the replica of
//! committed state.
//!
//! The engine updates the replica after each commit and before it replies. A caller therefore finds its own change in
//! the next read, and no reader sees a change that could still be lost.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use muster_core::planner::{Forecast, Verdicts};
use muster_core::{Actor, Answer, Command, Event, Refusal, State, Timestamp};
use muster_store::{Entry, LeaderEpoch, Tables};
use tokio::sync::{broadcast, oneshot};

use crate::clock::Clock;

/// Commands that may wait for the engine; further ones are declined.
pub const INBOX_REQUESTS_MAX: usize = 16_384;

/// Batches that a subscriber may lag behind; beyond that it misses batches and must start over from the state.
const SUBSCRIBER_LAG_BATCHES_MAX: usize = 1_024;

/// Duration of the leader lease. Three renewals fit into it, and a takeover after a crash takes about this long.
pub const LEADER_LEASE: Duration = Duration::from_secs(6);

/// True if a leader may still act that sent its last successful renewal this long ago.
pub fn is_lease_fresh(since_renewal: Duration) -> bool {
    since_renewal < LEADER_LEASE * 2 / 3
}

/// The handle of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    inbox: SyncSender<CommandRequest>,
    replica: RwLock<State>,
    role: RwLock<ServerRole>,
    /// Monotonic time of the last renewal of the leader lease.
    lease_renewed_at: RwLock<Duration>,
    verdicts: RwLock<Arc<Verdicts>>,
    forecast: RwLock<Arc<Forecast>>,
    events: broadcast::Sender<Arc<Batch>>,
    tables: Arc<dyn Tables>,
    clock: Arc<dyn Clock>,
}

/// A command with the channel of its answer.
pub struct CommandRequest {
    pub by: Actor,
    pub command: Command,
    pub reply: oneshot::Sender<Result<Answer, CommandError>>,
}

/// Journal entries of one transaction, in order; never empty.
#[derive(Debug)]
pub struct Batch {
    pub entries: Vec<Entry>,
}

impl Batch {
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.entries.iter().map(|entry| &entry.event)
    }
}

/// The current role of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerRole {
    /// Replaying the journal.
    Starting,
    /// The only server that writes.
    Leading { term: LeaderEpoch },
    /// Another server is the leader.
    Standby { leader: String },
    /// The database does not answer or refuses.
    Unavailable { why: String },
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The state of the cluster does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This server cannot take the command now, and has not confirmed it. If the write failed halfway, the outcome is
    /// unknown.
    #[error("{why}")]
    Unavailable { why: String },
}

impl CommandError {
    fn unavailable(why: impl Into<String>) -> CommandError {
        CommandError::Unavailable { why: why.into() }
    }
}

impl Cluster {
    /// A handle of the engine that receives from the other end of `inbox`.
    pub fn new(inbox: SyncSender<CommandRequest>, tables: Arc<dyn Tables>, clock: Arc<dyn Clock>) -> Cluster {
        let shared = Shared {
            inbox,
            replica: RwLock::default(),
            role: RwLock::new(ServerRole::Starting),
            lease_renewed_at: RwLock::default(),
            verdicts: RwLock::default(),
            forecast: RwLock::default(),
            events: broadcast::Sender::new(SUBSCRIBER_LAG_BATCHES_MAX),
            tables,
            clock,
        };
        Cluster { shared: Arc::new(shared) }
    }

    /// Send a command to the engine and wait until its events are durable.
    pub async fn execute(&self, by: Actor, command: Command) -> Result<Answer, CommandError> {
        let answer = self.send(by, command)?;
        answer.await.unwrap_or_else(|_| Err(CommandError::unavailable("the server is stopping")))
    }

    /// [`Cluster::execute`] for callers outside the async runtime.
    pub fn execute_blocking(&self, by: Actor, command: Command) -> Result<Answer, CommandError> {
        let answer = self.send(by, command)?;
        answer.blocking_recv().unwrap_or_else(|_| Err(CommandError::unavailable("the server is stopping")))
    }

    /// Send a command without waiting for its answer.
    pub fn enqueue(&self, by: Actor, command: Command) -> Result<(), CommandError> {
        self.send(by, command).map(drop)
    }

    fn send(
        &self,
        by: Actor,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Answer, CommandError>>, CommandError> {
        let (reply, answer) = oneshot::channel();
        match self.shared.inbox.try_send(CommandRequest { by, command, reply }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => {
                Err(CommandError::unavailable("the server is busy: too many requests wait; try again in a moment"))
            }
            Err(TrySendError::Disconnected(_)) => Err(CommandError::unavailable("the server is stopping")),
        }
    }

    /// Read the committed state. Keep it short: the engine cannot publish a commit meanwhile.
    pub fn read<T>(&self, query: impl FnOnce(&State) -> T) -> T {
        query(&self.shared.replica.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn role(&self) -> ServerRole {
        self.shared.role.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Monotonic time at which this server was the leader for certain, because the lease was renewed after it.
    pub fn lease_renewed_at(&self) -> Duration {
        *self.shared.lease_renewed_at.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no other server can lead yet: the last renewal of the lease is recent. A server that was paused may have
    /// been replaced although it has not stepped down.
    pub fn is_lease_fresh(&self) -> bool {
        is_lease_fresh(self.shared.clock.elapsed().saturating_sub(self.lease_renewed_at()))
    }

    /// The verdicts of the last planning round: why each waiting job waits.
    pub fn verdicts(&self) -> Arc<Verdicts> {
        self.shared.verdicts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last forecast of start times.
    pub fn forecast(&self) -> Arc<Forecast> {
        self.shared.forecast.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All batches from now on, each once it is durable.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.shared.events.subscribe()
    }

    /// The SQL tables, for history and lists. Their calls block: use a blocking thread.
    pub fn tables(&self) -> Arc<dyn Tables> {
        self.shared.tables.clone()
    }

    /// The time of the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// How far the wall clock of this machine is ahead of [`Cluster::now`].
    pub fn wall_clock_ahead_ms(&self) -> i64 {
        self.shared.clock.wall_clock_ahead_ms()
    }

    // For the engine and the planner only.

    /// Apply a committed batch to the replica and send it to the subscribers.
    pub(crate) fn publish(&self, batch: Arc<Batch>) {
        let mut replica = self.shared.replica.write().unwrap_or_else(PoisonError::into_inner);
        for event in batch.events() {
            replica.apply(event);
        }
        drop(replica);
        // An error means that there is no subscriber.
        let _ = self.shared.events.send(batch);
    }

    /// Replace the replica.
    pub(crate) fn reset(&self, state: State) {
        *self.shared.replica.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub(crate) fn set_role(&self, role: ServerRole) {
        *self.shared.role.write().unwrap_or_else(PoisonError::into_inner) = role;
    }

    pub(crate) fn set_lease_renewed_at(&self, at: Duration) {
        *self.shared.lease_renewed_at.write().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub(crate) fn set_forecast(&self, forecast: Forecast) {
        *self.shared.forecast.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(forecast);
    }

    pub(crate) fn set_verdicts(&self, verdicts: Verdicts) {
        *self.shared.verdicts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(verdicts);
    }
}
