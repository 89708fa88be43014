//! What the server wants to tell each connected agent. Pure: no network, no clock.
//!
//! A line holds at most one frame of each kind, because a newer one replaces an older one, and a few log requests. So a
//! node that reads slowly costs a bounded amount of memory and delays nobody else.

use std::collections::{BTreeMap, VecDeque};

use muster_protocol::agent::{Orders, OrdersAge};
use muster_wire::v1::{self, GoodbyeReason, server_frame};

/// Requests for logs that a node may have unanswered. Their answers travel on the connection of its heartbeats.
pub const LOG_READS_MAX: usize = 16;

/// The connections of all agents.
#[derive(Debug, Default)]
pub struct Switchboard {
    lines: BTreeMap<String, Line>,
    /// Frames after which the connection of a closed line ends, by number of the line.
    last_frames: BTreeMap<u64, Vec<v1::ServerFrame>>,
    lines_opened: u64,
}

/// The connection of one agent.
#[derive(Debug)]
struct Line {
    number: u64,
    enrolment: String,
    incarnation: String,
    /// Number of the connection, by the count of its agent.
    connection: u64,
    greeting: Option<v1::ServerHello>,
    orders: Option<Orders>,
    received: Option<u64>,
    echo: Option<i64>,
    log_reads: VecDeque<v1::LogRead>,
}

/// The next frames for a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum NextFrames {
    Frames(Vec<v1::ServerFrame>),
    /// The connection is closed after them.
    Last(Vec<v1::ServerFrame>),
}

/// The agent of an open line.
#[derive(Debug, Clone, Copy)]
pub struct ConnectedAgent<'a> {
    pub node: &'a str,
    pub enrolment: &'a str,
    /// As in its hello.
    pub incarnation: &'a str,
}

/// A new line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedLine {
    pub number: u64,
    /// The former line of the node, to be woken: its connection ends.
    pub replaced: Option<u64>,
}

/// The node has no connection, or too many unanswered requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineError {
    NotConnected,
    Busy,
}

impl Switchboard {
    /// Opens the line of a node and returns its number. A former line of the node is closed: the agent opens a new
    /// connection only when it has given up the old one.
    ///
    /// An error is the goodbye for a connection that the same agent has given up since, whose hello arrives late.
    pub fn open(&mut self, hello: &v1::AgentHello, greeting: v1::ServerHello) -> Result<OpenedLine, v1::Goodbye> {
        let is_older = |line: &Line| line.incarnation == hello.incarnation && line.connection > hello.connection;
        if self.lines.get(&hello.node).is_some_and(is_older) {
            return Err(goodbye(GoodbyeReason::Replaced, "the agent has opened a newer connection since"));
        }
        self.lines_opened += 1;
        let line = Line {
            number: self.lines_opened,
            enrolment: hello.enrolment.clone(),
            incarnation: hello.incarnation.clone(),
            connection: hello.connection,
            greeting: Some(greeting),
            orders: None,
            received: None,
            echo: None,
            log_reads: VecDeque::new(),
        };
        let replaced = self.lines.insert(hello.node.clone(), line);
        let replaced = replaced.map(|former| former.number);
        let why = goodbye(GoodbyeReason::Replaced, "the same node has connected again from elsewhere");
        replaced.into_iter().for_each(|former| drop(self.last_frames.insert(former, vec![goodbye_frame(why.clone())])));
        Ok(OpenedLine { number: self.lines_opened, replaced })
    }

    /// The connection of a line has ended.
    pub fn close(&mut self, node: &str, number: u64) {
        if self.line(node, number).is_some() {
            self.lines.remove(node);
        }
        self.last_frames.remove(&number);
    }

    /// Closes one line with a goodbye.
    pub fn dismiss(&mut self, node: &str, number: u64, goodbye: v1::Goodbye) {
        if self.line(node, number).is_some() {
            self.lines.remove(node);
        }
        self.last_frames.entry(number).or_insert_with(|| vec![goodbye_frame(goodbye)]);
    }

    /// Closes the lines that `check` refuses, with the last frames that it returns. Returns the lines to wake.
    pub fn close_refused(
        &mut self,
        check: impl Fn(ConnectedAgent<'_>) -> Result<(), Vec<v1::ServerFrame>>,
    ) -> Vec<u64> {
        let mut closed = Vec::new();
        self.lines.retain(|node, line| {
            let agent = ConnectedAgent { node, enrolment: &line.enrolment, incarnation: &line.incarnation };
            let refused = check(agent).err();
            closed.extend(refused.map(|last_frames| (line.number, last_frames)));
            closed.last().is_none_or(|(number, _)| *number != line.number)
        });
        let numbers = closed.iter().map(|(number, _)| *number).collect();
        self.last_frames.extend(closed);
        numbers
    }

    pub fn is_open(&self, node: &str, number: u64) -> bool {
        self.number_of(node) == Some(number)
    }

    /// The number of a node's line.
    pub fn number_of(&self, node: &str) -> Option<u64> {
        self.lines.get(node).map(|line| line.number)
    }

    /// The numbers of connected lines, with their nodes.
    pub fn connected(&self) -> impl Iterator<Item = (&str, u64)> {
        self.lines.iter().map(|(node, line)| (node.as_str(), line.number))
    }

    /// Queues orders, in place of older ones that were not sent yet. Returns the line to wake.
    pub fn deliver_orders(&mut self, orders: Orders) -> Option<u64> {
        let line = self.lines.get_mut(&orders.node)?;
        let age = line.orders.as_ref().map(|queued| orders.stamp().age_beside(queued.stamp()));
        if age != Some(OrdersAge::Older) {
            line.orders = Some(orders);
        }
        Some(line.number)
    }

    /// Queues the echo of a heartbeat. Returns the line to wake.
    pub fn acknowledge_heartbeat(&mut self, node: &str, sent_at_boot_ms: i64) -> Option<u64> {
        let line = self.lines.get_mut(node)?;
        line.echo = line.echo.max(Some(sent_at_boot_ms));
        Some(line.number)
    }

    /// Notes that the reports of a line up to this sequence number have been received.
    pub fn note_received(&mut self, node: &str, number: u64, sequence: u64) {
        if let Some(line) = self.line(node, number) {
            line.received = line.received.max(Some(sequence));
        }
    }

    /// Queues a request for a log. Returns the line to wake.
    pub fn request_log(&mut self, node: &str, read: v1::LogRead) -> Result<u64, LineError> {
        let line = self.lines.get_mut(node).ok_or(LineError::NotConnected)?;
        if line.log_reads.len() >= LOG_READS_MAX {
            return Err(LineError::Busy);
        }
        line.log_reads.push_back(read);
        Ok(line.number)
    }

    /// The next frames for the connection of a line.
    pub fn next_frames(&mut self, node: &str, number: u64) -> NextFrames {
        if let Some(last) = self.last_frames.remove(&number) {
            return NextFrames::Last(last);
        }
        self.take_frames(node, number).map_or(NextFrames::Last(Vec::new()), NextFrames::Frames)
    }

    /// Takes the frames that wait on a line, in the order in which the agent needs them. `None` if the line is closed.
    fn take_frames(&mut self, node: &str, number: u64) -> Option<Vec<v1::ServerFrame>> {
        let line = self.line(node, number)?;
        let bodies = [
            line.greeting.take().map(server_frame::Body::Hello),
            line.received.take().map(|sequence| server_frame::Body::Received(v1::ReportsReceived { sequence })),
            line.echo
                .take()
                .map(|sent_at_boot_ms| server_frame::Body::HeartbeatEcho(v1::HeartbeatEcho { sent_at_boot_ms })),
            line.orders.take().map(|orders| server_frame::Body::Orders(muster_json::to_string(&orders))),
        ];
        let log_reads = line.log_reads.drain(..).map(server_frame::Body::LogRead);
        let bodies = bodies.into_iter().flatten().chain(log_reads);
        Some(bodies.map(|body| v1::ServerFrame { body: Some(body) }).collect())
    }

    fn line(&mut self, node: &str, number: u64) -> Option<&mut Line> {
        self.lines.get_mut(node).filter(|line| line.number == number)
    }
}

pub fn goodbye_frame(goodbye: v1::Goodbye) -> v1::ServerFrame {
    v1::ServerFrame { body: Some(server_frame::Body::Goodbye(goodbye)) }
}

pub fn goodbye(reason: GoodbyeReason, message: &str) -> v1::Goodbye {
    v1::Goodbye { reason: reason.into(), message: message.to_string(), servers: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node: &str) -> v1::AgentHello {
        v1::AgentHello { node: node.to_string(), enrolment: "e".to_string(), ..v1::AgentHello::default() }
    }

    fn orders(epoch: u64, generation: u64) -> Orders {
        let (node, incarnation) = ("n1".to_string(), String::new());
        Orders {
            node,
            incarnation,
            epoch,
            generation,
            attempts: Vec::new(),
            nonce: 0,
            pools: Vec::new(),
            reboot_from: None,
            secrets: Vec::new(),
        }
    }

    fn open(board: &mut Switchboard, node: &str) -> u64 {
        let number = board.open(&hello(node), v1::ServerHello::default()).unwrap().number;
        let frames = board.take_frames(node, number).unwrap();
        assert!(matches!(frames[..], [v1::ServerFrame { body: Some(server_frame::Body::Hello(_)) }]));
        number
    }

    fn bodies(board: &mut Switchboard, number: u64) -> Vec<server_frame::Body> {
        board.take_frames("n1", number).unwrap().into_iter().filter_map(|frame| frame.body).collect()
    }

    #[test]
    fn a_slow_reader_gets_the_newest_orders_only() {
        let mut board = Switchboard::default();
        let line = open(&mut board, "n1");
        for generation in 0..1_000 {
            assert_eq!(board.deliver_orders(orders(1, generation)), Some(line));
            board.acknowledge_heartbeat("n1", generation as i64);
            board.note_received("n1", line, generation);
        }
        board.deliver_orders(orders(1, 7));
        let sent = bodies(&mut board, line);
        assert_eq!(sent.len(), 3);
        let newest = server_frame::Body::Orders(muster_json::to_string(&orders(1, 999)));
        assert_eq!(sent[2], newest);
        assert_eq!(sent[0], server_frame::Body::Received(v1::ReportsReceived { sequence: 999 }));
    }

    #[test]
    fn orders_of_a_new_epoch_replace_those_of_an_old_one() {
        let mut board = Switchboard::default();
        let line = open(&mut board, "n1");
        board.deliver_orders(orders(2, 1));
        board.deliver_orders(orders(1, 900));
        let newest = server_frame::Body::Orders(muster_json::to_string(&orders(2, 1)));
        assert_eq!(bodies(&mut board, line), [newest]);
    }

    #[test]
    fn orders_of_a_history_that_repeats_an_epoch_replace_those_of_the_lost_one() {
        let mut board = Switchboard::default();
        let line = open(&mut board, "n1");
        board.deliver_orders(Orders { nonce: 1, ..orders(5, 900) });
        let newest = Orders { nonce: 2, ..orders(5, 7) };
        board.deliver_orders(newest.clone());
        assert_eq!(bodies(&mut board, line), [server_frame::Body::Orders(muster_json::to_string(&newest))]);
    }

    #[test]
    fn a_second_connection_of_a_node_closes_the_first() {
        let mut board = Switchboard::default();
        let first = open(&mut board, "n1");
        let opened = board.open(&hello("n1"), v1::ServerHello::default());
        let OpenedLine { number: second, replaced } = opened.unwrap();
        assert_eq!(replaced, Some(first));
        assert!(matches!(board.next_frames("n1", first), NextFrames::Last(last) if last.len() == 1));
        board.close("n1", first);
        assert!(board.is_open("n1", second), "the end of the first connection does not close the second");
        board.note_received("n1", first, 9);
        board.take_frames("n1", second).unwrap();
        assert_eq!(bodies(&mut board, second), [], "reports of the first are not acknowledged on the second");
        board.close("n1", second);
        assert_eq!(board.number_of("n1"), None);
    }

    #[test]
    fn the_late_hello_of_a_connection_that_was_given_up_replaces_nothing() {
        let mut board = Switchboard::default();
        let of = |incarnation: &str, connection| v1::AgentHello {
            incarnation: incarnation.to_string(),
            connection,
            ..hello("n1")
        };
        let mut open = |hello: v1::AgentHello| board.open(&hello, v1::ServerHello::default()).is_ok();
        assert!(open(of("a", 2)));
        assert!(!open(of("a", 1)));
        assert!(open(of("a", 3)));
        assert!(open(of("b", 1)), "the agent has restarted");
    }

    #[test]
    fn revoked_nodes_are_disconnected_and_the_others_stay() {
        let mut board = Switchboard::default();
        open(&mut board, "n1");
        let other = open(&mut board, "n2");
        let why = goodbye(GoodbyeReason::NotEnrolled, "removed");
        let last_frames = vec![goodbye_frame(why)];
        let check = |agent: ConnectedAgent<'_>| if agent.node == "n2" { Err(last_frames.clone()) } else { Ok(()) };
        assert_eq!(board.close_refused(check), [other]);
        assert_eq!(board.next_frames("n2", other), NextFrames::Last(last_frames));
        assert_eq!(board.next_frames("n2", other), NextFrames::Last(Vec::new()), "the connection ends");
        assert!(board.number_of("n1").is_some() && board.number_of("n2").is_none());
    }

    #[test]
    fn unanswered_requests_for_logs_are_bounded() {
        let mut board = Switchboard::default();
        let line = open(&mut board, "n1");
        let asked = (0..100).map(|_| board.request_log("n1", v1::LogRead::default()));
        let refused = asked.filter(|asked| *asked == Err(LineError::Busy)).count();
        assert_eq!(refused, 100 - LOG_READS_MAX);
        assert_eq!(bodies(&mut board, line).len(), LOG_READS_MAX);
        assert_eq!(board.request_log("n9", v1::LogRead::default()), Err(LineError::NotConnected));
    }
}
