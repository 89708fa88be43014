//! Guards of the commands about windows.

use crate::command::Actor;
use crate::event::Event;
use crate::refusal::Refusal;
use crate::state::State;
use crate::state::decide::Decision;
use crate::time::Timestamp;
use crate::window::Window;

/// Windows at one time: the planner tells them apart by the bits of one word.
const WINDOWS_MAX: usize = 64;

impl State {
    pub(super) fn decide_open_window(
        &self,
        by: &Actor,
        window: &Window,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
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
            return invalid("until", "must be later than now and than the beginning".to_string());
        }
        if let Some(tenant) = &window.tenant {
            self.tenant(tenant)?;
        }
        let window = Window { by: by.name.clone(), ..window.clone() };
        Ok(Decision::done(vec![Event::WindowOpened { window: Box::new(window), at: now }]))
    }

    pub(super) fn decide_close_window(&self, name: &str, now: Timestamp) -> Result<Decision, Refusal> {
        match self.windows.contains_key(name) {
            true => Ok(Decision::done(vec![self.window_closed(name, "it was closed", now)])),
            false => Err(Refusal::UnknownWindow { name: name.to_string() }),
        }
    }

    /// Windows whose time is over.
    pub(super) fn close_old_windows(&self, now: Timestamp, events: &mut Vec<Event>) {
        let over = self.windows.values().filter(|window| window.until <= now);
        events.extend(over.map(|window| self.window_closed(&window.name, "its time is over", now)));
    }

    fn window_closed(&self, name: &str, why: &str, at: Timestamp) -> Event {
        Event::WindowClosed { name: name.to_string(), why: why.to_string(), at }
    }
}
