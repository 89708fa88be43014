//! Windows, the bookings of nodes by operators: the commands about them (step 4), and which jobs they admit.

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::NodeId;
use crate::ids::TenantId;
use crate::objects::job::Job;
use crate::objects::window::Window;
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::usage::guarantee::is_below;
use crate::time::Timestamp;

/// Most windows at one time: the planner represents a set of windows by the bits of one `u64`.
const WINDOWS_MAX: usize = 64;

impl State {
    pub(super) fn decide_open_window(&self, by: &Actor, window: &Window, now: Timestamp) -> Result<Decision, Refusal> {
        let invalid = |field, problem: String| Err(Refusal::Invalid { field, problem });
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if window.name.is_empty() || window.name.len() > 63 || !plain(&window.name) {
            return invalid("name", "must be 1 to 63 of a-z, A-Z, 0-9, `-`, `_`, `.`".to_string());
        }
        if self.windows.contains_key(&window.name) {
            return invalid("name", format!("there is a window `{}` already", window.name));
        }
        if self.windows.len() >= WINDOWS_MAX {
            return invalid("name", format!("there are {WINDOWS_MAX} windows already; close one"));
        }
        if window.nodes.is_empty() {
            return invalid("nodes", "a window needs at least one node".to_string());
        }
        for node in &window.nodes {
            self.node(node)?;
        }
        if window.until <= window.from.max(now) {
            return invalid("until", "must be later than now and later than `from`".to_string());
        }
        if let Some(tenant) = &window.tenant {
            self.tenant(tenant)?;
        }
        let window = Window { by: by.name.clone(), ..window.clone() };
        Ok(Decision::done(vec![Event::WindowOpened { window: Box::new(window), at: now }]))
    }

    pub(super) fn decide_close_window(&self, name: &str, now: Timestamp) -> Result<Decision, Refusal> {
        match self.windows.contains_key(name) {
            true => Ok(Decision::done(vec![self.window_closed(name, "closed before its end", now)])),
            false => Err(Refusal::UnknownWindow { name: name.to_string() }),
        }
    }

    /// Close the windows whose end has passed.
    pub(super) fn close_old_windows(&self, now: Timestamp, events: &mut Vec<Event>) {
        let over = self.windows.values().filter(|window| window.until <= now);
        events.extend(over.map(|window| self.window_closed(&window.name, "its end has passed", now)));
    }

    fn window_closed(&self, name: &str, why: &str, at: Timestamp) -> Event {
        Event::WindowClosed { name: name.to_string(), why: why.to_string(), at }
    }
}

impl Window {
    /// True if the window is booked for a tenant or an ancestor of it.
    pub fn is_open_to(&self, state: &State, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_some_and(|top| is_below(state, tenant, top))
    }
}

impl State {
    /// True if every window on a node admits a job that starts now: it is open to the tenant, or the job ends before
    /// it.
    pub(crate) fn windows_admit(&self, job: &Job, node: &NodeId, now: Timestamp) -> bool {
        let ends_by = job.spec.time_limit_ms.map(|limit| now.plus(limit).plus(self.settings.stop_grace_ms));
        let excludes = |window: &&Window| {
            window.nodes.contains(node) && !window.is_open_to(self, &job.spec.tenant) && window.until > now
        };
        self.windows.values().filter(excludes).all(|window| ends_by.is_some_and(|end| end <= window.from))
    }
}
