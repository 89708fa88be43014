use super::*;

fn session(servers: &[&str]) -> Session {
    let config = SessionConfig {
        node: "n1".to_string(),
        enrolment: "e".to_string(),
        incarnation: "i".to_string(),
        agent_version: "0.1.0".to_string(),
        heartbeat_interval_ms: 1_000,
        jitter_seed: 7,
    };
    Session::new(config, servers.iter().map(ToString::to_string).collect())
}

fn frame(body: server_frame::Body) -> SessionInput {
    SessionInput::Frame(Box::new(v1::ServerFrame { body: Some(body) }))
}

fn hello(servers: &[&str]) -> SessionInput {
    let servers = servers.iter().map(ToString::to_string).collect();
    frame(server_frame::Body::Hello(v1::ServerHello { protocol: 1, servers, ..v1::ServerHello::default() }))
}

fn goodbye(reason: v1::GoodbyeReason) -> SessionInput {
    let (message, servers) = ("because".to_string(), Vec::new());
    frame(server_frame::Body::Goodbye(v1::Goodbye { reason: reason.into(), message, servers }))
}

fn heartbeat() -> SessionInput {
    SessionInput::Report(Box::new(Report::Heartbeat { node: "n1".to_string(), following: None, sent_at_boot_ms: 5 }))
}

fn connected_to(outputs: &[SessionOutput]) -> Option<&str> {
    outputs.iter().find_map(|output| match output {
        SessionOutput::Connect { server } => Some(server.as_str()),
        _ => None,
    })
}

fn sent_reports(outputs: &[SessionOutput]) -> Vec<u64> {
    let sequence = |output: &SessionOutput| match output {
        SessionOutput::Send(frame) => match &frame.body {
            Some(agent_frame::Body::Report(report)) => Some(report.sequence),
            _ => None,
        },
        _ => None,
    };
    outputs.iter().filter_map(sequence).collect()
}

/// An open session and the time.
fn open(servers: &[&str]) -> (Session, i64) {
    let mut session = session(servers);
    assert_eq!(connected_to(&session.handle(0, SessionInput::Tick)), Some(servers[0]));
    session.handle(1, SessionInput::Connected);
    session.handle(2, hello(&[]));
    assert!(session.is_open());
    (session, 2)
}

/// Ticks until the session connects to a server.
fn next_connection(session: &mut Session) -> (String, i64) {
    for _ in 0..100 {
        let due = session.next_due_ms();
        let outputs = session.handle(due, SessionInput::Tick);
        if let Some(server) = connected_to(&outputs) {
            return (server.to_string(), due);
        }
    }
    panic!("it never connects");
}

#[test]
fn reports_wait_for_the_greeting_of_the_server() {
    let mut session = session(&["a:1"]);
    session.handle(0, SessionInput::Tick);
    assert_eq!(sent_reports(&session.handle(0, heartbeat())), [0u64; 0]);
    let outputs = session.handle(1, SessionInput::Connected);
    assert!(
        matches!(&outputs[..], [SessionOutput::Send(frame)] if matches!(frame.body, Some(agent_frame::Body::Hello(_))))
    );
    assert_eq!(sent_reports(&session.handle(2, hello(&[]))), [1]);
}

#[test]
fn a_standby_sends_the_agent_to_the_other_servers() {
    let mut session = session(&["a:1", "b:1"]);
    session.handle(0, SessionInput::Tick);
    session.handle(1, SessionInput::Connected);
    let outputs = session.handle(2, goodbye(v1::GoodbyeReason::NotLeader));
    assert!(outputs.contains(&SessionOutput::Disconnect));
    let (server, at) = next_connection(&mut session);
    assert_eq!(server, "b:1");
    assert!(at <= 2 + BACKOFF_MS_MIN, "{at}");
}

#[test]
fn pauses_grow_to_a_maximum_and_shrink_after_success() {
    let mut session = session(&["a:1"]);
    session.handle(0, SessionInput::Tick);
    let mut pauses = Vec::new();
    let mut now = 0;
    for _ in 0..12 {
        session.handle(now, SessionInput::Disconnected { why: "refused".to_string() });
        let (_, at) = next_connection(&mut session);
        pauses.push(at - now);
        now = at;
    }
    assert!(pauses.iter().all(|pause| (BACKOFF_MS_MIN / 2..=BACKOFF_MS_MAX).contains(pause)), "{pauses:?}");
    assert!(pauses[11] > BACKOFF_MS_MAX / 3 && pauses[0] <= 2 * BACKOFF_MS_MIN, "{pauses:?}");
    session.handle(now, SessionInput::Connected);
    session.handle(now, hello(&[]));
    session.handle(now, frame(server_frame::Body::Received(v1::ReportsReceived { sequence: 0 })));
    session.handle(now, SessionInput::Disconnected { why: "gone".to_string() });
    assert!(next_connection(&mut session).1 - now <= 2 * BACKOFF_MS_MIN);
}

#[test]
fn a_silent_server_is_left_although_the_connection_looks_alive() {
    let (mut session, now) = open(&["a:1", "b:1"]);
    let due = session.next_due_ms();
    assert_eq!(due, now + 3 * 1_000 + SILENCE_MARGIN_MS);
    assert_eq!(session.handle(due - 1, SessionInput::Tick), []);
    let outputs = session.handle(due, SessionInput::Tick);
    assert_eq!(outputs[0], SessionOutput::Disconnect);
    assert_eq!(next_connection(&mut session).0, "b:1");
}

#[test]
fn unacknowledged_reports_are_sent_again_to_the_next_server() {
    let (mut session, now) = open(&["a:1"]);
    assert_eq!(sent_reports(&session.handle(now, heartbeat())), [1]);
    session.handle(now, SessionInput::Disconnected { why: "cut".to_string() });
    let (_, now) = next_connection(&mut session);
    session.handle(now, SessionInput::Connected);
    assert_eq!(sent_reports(&session.handle(now, hello(&[]))), [1]);
    session.handle(now, frame(server_frame::Body::Received(v1::ReportsReceived { sequence: 1 })));
    session.handle(now, SessionInput::Disconnected { why: "cut".to_string() });
    let (_, now) = next_connection(&mut session);
    session.handle(now, SessionInput::Connected);
    assert_eq!(sent_reports(&session.handle(now, hello(&[]))), [0u64; 0]);
}

#[test]
fn frames_of_a_connection_that_was_given_up_are_ignored() {
    let (mut session, now) = open(&["a:1"]);
    session.handle(now, SessionInput::Disconnected { why: "cut".to_string() });
    let orders = r#"{"node":"n1","epoch":9,"generation":9,"attempts":[]}"#.to_string();
    assert_eq!(session.handle(now, frame(server_frame::Body::Orders(orders))), []);
    assert_eq!(session.handle(now, hello(&[])), []);
}

#[test]
fn orders_that_cannot_be_read_end_the_connection() {
    let (mut session, now) = open(&["a:1"]);
    let outputs = session.handle(now, frame(server_frame::Body::Orders("{".to_string())));
    assert_eq!(outputs[0], SessionOutput::Disconnect);
}

#[test]
fn a_frame_before_the_greeting_ends_the_connection() {
    let mut session = session(&["a:1"]);
    session.handle(0, SessionInput::Tick);
    session.handle(1, SessionInput::Connected);
    let echo = frame(server_frame::Body::HeartbeatEcho(v1::HeartbeatEcho { sent_at_boot_ms: 1 }));
    assert_eq!(session.handle(2, echo)[0], SessionOutput::Disconnect);
}

#[test]
fn a_refused_agent_tells_why_and_asks_rarely() {
    for reason in [v1::GoodbyeReason::NotEnrolled, v1::GoodbyeReason::WrongVersion, v1::GoodbyeReason::Replaced] {
        let (mut session, now) = open(&["a:1", "b:1"]);
        let outputs = session.handle(now, goodbye(reason));
        let refused = SessionOutput::Notify(SessionNotice::Refused { why: "because".to_string() });
        assert!(outputs.contains(&refused), "{outputs:?}");
        assert!(next_connection(&mut session).1 - now >= REFUSED_BACKOFF_MS / 2);
    }
}

#[test]
fn servers_are_learned_once_and_bounded() {
    let (mut session, now) = open(&["a:1"]);
    let many: Vec<String> = (0..40).map(|index| format!("s{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["not an address/"]).collect();
    let outputs = session.handle(now, hello(&many));
    let remembered = outputs.iter().find_map(|output| match output {
        SessionOutput::RememberServers(servers) => Some(servers.len()),
        _ => None,
    });
    assert_eq!(remembered, Some(SERVERS_MAX));
    let outputs = session.handle(now, hello(&["s0:50052"]));
    assert!(!outputs.iter().any(|output| matches!(output, SessionOutput::RememberServers(_))));
}

#[test]
fn a_server_that_greets_and_closes_is_not_asked_more_and_more_often() {
    let (mut session, mut now) = open(&["a:1"]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        session.handle(now, SessionInput::Disconnected { why: "unreadable".to_string() });
        let (_, at) = next_connection(&mut session);
        pauses.push(at - now);
        now = at;
        session.handle(now, SessionInput::Connected);
        session.handle(now, hello(&[]));
    }
    assert!(pauses[7] >= BACKOFF_MS_MAX / 2, "{pauses:?}");
}

#[test]
fn an_echo_of_a_heartbeat_that_this_agent_never_sent_is_ignored() {
    let (mut session, now) = open(&["a:1"]);
    let echo = |sent_at_boot_ms| frame(server_frame::Body::HeartbeatEcho(v1::HeartbeatEcho { sent_at_boot_ms }));
    assert_eq!(session.handle(now, echo(5)), [], "no heartbeat was sent");
    session.handle(now, heartbeat());
    assert_eq!(session.handle(now, echo(6)), [], "of the former installation of the node");
    assert_eq!(session.handle(now, echo(4)), [], "of another one, whose boot clock is behind");
    let node = "n1".to_string();
    let acknowledged = SessionOutput::AcknowledgeHeartbeat(HeartbeatEcho { node, sent_at_boot_ms: 5 });
    assert_eq!(session.handle(now, echo(5)), [acknowledged]);
}
