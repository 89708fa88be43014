//! Messages between servers, nodes and users: lost, late, doubled and overtaken.

use super::{Coming, ToServer, World};

/// How the network is, until some moment.
pub struct Weather {
    pub until: i64,
    /// So many messages in a thousand are lost, and as many come twice.
    pub per_mille: u64,
    pub delay_ms_max: i64,
}

impl World<'_> {
    /// Send something, between a server and a node if they are named. It may be lost, late or doubled.
    pub(super) fn send(&mut self, between: Option<(usize, usize)>, coming: Coming) {
        let is_cut =
            between.is_some_and(|pair| self.cuts.get(&pair).is_some_and(|until| *until > self.now()));
        let bad = self.weather.until > self.now();
        if is_cut || (bad && self.random.happens(self.weather.per_mille)) {
            return;
        }
        let most = if bad { self.weather.delay_ms_max } else { 20 };
        if bad
            && self.random.happens(self.weather.per_mille)
            && let Some(twin) = twin(&coming)
        {
            self.after(1, most, twin);
        }
        self.after(1, most, coming);
    }
}

/// The same message once more; only what the network carries can come twice.
fn twin(coming: &Coming) -> Option<Coming> {
    match coming {
        Coming::ToServer(server, ToServer::Report(report)) => {
            Some(Coming::ToServer(*server, ToServer::Report(report.clone())))
        }
        Coming::ToServer(server, ToServer::Letter(letter)) => {
            Some(Coming::ToServer(*server, ToServer::Letter(*letter)))
        }
        Coming::ToNode(node, orders) => Some(Coming::ToNode(*node, orders.clone())),
        Coming::ToUser(letter, answer) => Some(Coming::ToUser(*letter, answer.clone())),
        _ => None,
    }
}
