//! What every door holds: a way to ask the engine, and a view of what is durable.
//!
//! Readers see the replica, which the engine brings up to date after each commit and before it replies. So
//! whoever got an answer finds it in the next read, and nobody sees what could still be lost.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, PoisonError, RwLock};

use muster_core::plan::{Forecast, Verdicts};
use muster_core::{Actor, Answer, Command, Event, Refusal, State, Timestamp};
use muster_store::{Entry, Tables};
use tokio::sync::{broadcast, oneshot};

use crate::clock::Clock;

/// How many asks may wait for the engine before new ones are turned away.
pub const INBOX_SIZE: usize = 16_384;

/// Batches that a slow listener may be behind before it has to start over.
const LISTENER_LAG: usize = 1_024;

/// The cluster, as doors, planner and dispatch see it. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    inbox: SyncSender<Ask>,
    replica: RwLock<State>,
    role: RwLock<Role>,
    verdicts: RwLock<Arc<Verdicts>>,
    forecast: RwLock<Arc<Forecast>>,
    events: broadcast::Sender<Arc<Batch>>,
    tables: Arc<dyn Tables>,
    clock: Arc<dyn Clock>,
}

/// One command on its way to the engine.
pub struct Ask {
    /// Who asks.
    pub by: Actor,
    /// What.
    pub command: Command,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Answer, Declined>>,
}

/// Events that were committed together; never empty.
#[derive(Debug)]
pub struct Batch {
    /// The facts with their numbers, in order.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// The facts alone.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.entries.iter().map(|entry| &entry.event)
    }
}

/// What this server is at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Reading the journal.
    Starting,
    /// The only one that writes.
    Leading {
        /// Its turn.
        epoch: u64,
    },
    /// Another server leads.
    Standby {
        /// Which.
        leader: String,
    },
    /// The database cannot be reached or refuses.
    Away {
        /// What happened.
        why: String,
    },
}

/// Why a command has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// The state of the cluster does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This server cannot take it now; nothing was promised. The outcome may be unknown.
    #[error("{why}")]
    Unavailable {
        /// What to know.
        why: String,
    },
}

impl Declined {
    fn unavailable(why: impl Into<String>) -> Declined {
        Declined::Unavailable { why: why.into() }
    }
}

impl Cluster {
    /// A cluster whose engine takes its asks from the other end of `inbox`.
    pub fn new(inbox: SyncSender<Ask>, tables: Arc<dyn Tables>, clock: Arc<dyn Clock>) -> Cluster {
        let shared = Shared {
            inbox,
            replica: RwLock::default(),
            role: RwLock::new(Role::Starting),
            verdicts: RwLock::default(),
            forecast: RwLock::default(),
            events: broadcast::Sender::new(LISTENER_LAG),
            tables,
            clock,
        };
        Cluster { shared: Arc::new(shared) }
    }

    /// Ask the engine, and wait until the answer is durable.
    pub async fn ask(&self, by: Actor, command: Command) -> Result<Answer, Declined> {
        let answer = self.send(by, command)?;
        answer.await.unwrap_or_else(|_| Err(Declined::unavailable("the server is stopping")))
    }

    /// The same for callers outside the async runtime.
    pub fn ask_blocking(&self, by: Actor, command: Command) -> Result<Answer, Declined> {
        let answer = self.send(by, command)?;
        answer.blocking_recv().unwrap_or_else(|_| Err(Declined::unavailable("the server is stopping")))
    }

    /// Hand a command in without waiting for the answer.
    pub fn tell(&self, by: Actor, command: Command) -> Result<(), Declined> {
        self.send(by, command).map(drop)
    }

    fn send(
        &self,
        by: Actor,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Answer, Declined>>, Declined> {
        let (reply, answer) = oneshot::channel();
        match self.shared.inbox.try_send(Ask { by, command, reply }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(Declined::unavailable(
                "the server is busy: too many requests wait; try again in a moment",
            )),
            Err(TrySendError::Disconnected(_)) => Err(Declined::unavailable("the server is stopping")),
        }
    }

    /// Look at what is durable. Keep it short: commits wait while someone looks.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.replica.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What this server is at the moment.
    pub fn role(&self) -> Role {
        self.shared.role.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the planner last said of the jobs that wait.
    pub fn verdicts(&self) -> Arc<Verdicts> {
        self.shared.verdicts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When jobs start, as it was last told.
    pub fn forecast(&self) -> Arc<Forecast> {
        self.shared.forecast.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every batch from now on, as it becomes durable.
    pub fn listen(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.shared.events.subscribe()
    }

    /// The tables, for history and lists. Their calls block: use a blocking thread.
    pub fn tables(&self) -> Arc<dyn Tables> {
        self.shared.tables.clone()
    }

    /// The time of the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    // For the engine and the planner only.

    /// Bring the readers up to date.
    pub(crate) fn publish(&self, batch: Arc<Batch>) {
        let mut replica = self.shared.replica.write().unwrap_or_else(PoisonError::into_inner);
        for event in batch.events() {
            replica.apply(event);
        }
        drop(replica);
        // Nobody listening is fine.
        let _ = self.shared.events.send(batch);
    }

    /// Give the readers a state to start from.
    pub(crate) fn reset(&self, state: State) {
        *self.shared.replica.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub(crate) fn set_role(&self, role: Role) {
        *self.shared.role.write().unwrap_or_else(PoisonError::into_inner) = role;
    }

    pub(crate) fn set_forecast(&self, forecast: Forecast) {
        *self.shared.forecast.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(forecast);
    }

    pub(crate) fn set_verdicts(&self, verdicts: Verdicts) {
        *self.shared.verdicts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(verdicts);
    }
}
