use muster_core::Timestamp;
use muster_core::objects::enrolment::JoinToken;

use super::*;

const TERM: LeaderEpoch = LeaderEpoch { epoch: 4, nonce: 9 };

/// A state in which `n1` has joined with the tokens `old` and then `new`.
fn state() -> State {
    let mut state = State::empty();
    for id in ["old", "new"] {
        let node: NodeId = "n1".parse().unwrap();
        let (id, hash, made_by) = (id.to_string(), String::new(), "ada".to_string());
        let (made_at, expires_at) = (Timestamp(1), Timestamp(1_000));
        let token = JoinToken { id: id.clone(), hash, node: Some(node.clone()), made_by, made_at, expires_at };
        for command in [Command::AddJoinToken { token: Box::new(token) }, Command::EnrolNode { node, token: id }] {
            let decision = state.decide(&muster_core::Actor::system(), &command, Timestamp(1)).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        }
    }
    state
}

fn view(state: &State, leading: Option<LeaderEpoch>) -> LinkView<'_> {
    LinkView { leading, state, servers: &[] }
}

fn hello(enrolment: &str) -> v1::AgentHello {
    let (node, enrolment, incarnation) = ("n1".to_string(), enrolment.to_string(), "i".to_string());
    v1::AgentHello { protocol: LINK_PROTOCOL, node, enrolment, incarnation, ..v1::AgentHello::default() }
}

fn goodbye_reason(admission: &Admission) -> Option<GoodbyeReason> {
    let Admission::Refused(frames) = admission else { return None };
    match &frames.last()?.body {
        Some(server_frame::Body::Goodbye(goodbye)) => Some(goodbye.reason()),
        _ => None,
    }
}

#[test]
fn only_the_current_enrolment_of_a_node_is_admitted_and_only_by_a_certain_leader() {
    let state = state();
    let valid = |_: &str, _: &str| Ok(());
    assert!(matches!(view(&state, Some(TERM)).admit(&hello("new"), valid), Admission::Accepted { .. }));
    assert_eq!(goodbye_reason(&view(&state, None).admit(&hello("new"), valid)), Some(GoodbyeReason::NotLeader));
    let foreign = |_: &str, _: &str| Err(PeerError::Other("of another node".to_string()));
    let refused = view(&state, Some(TERM)).admit(&hello("new"), foreign);
    assert_eq!(goodbye_reason(&refused), Some(GoodbyeReason::NotEnrolled));
    let newer = v1::AgentHello { protocol: LINK_PROTOCOL + 2, ..hello("new") };
    let refused = view(&state, Some(TERM)).admit(&newer, valid);
    assert_eq!(goodbye_reason(&refused), Some(GoodbyeReason::WrongVersion));
}

#[test]
fn a_revoked_agent_is_told_that_it_owes_nothing_also_with_an_expired_certificate() {
    let state = state();
    for is_expired in [false, true] {
        let check = |_: &str, _: &str| if is_expired { Err(PeerError::Expired) } else { Ok(()) };
        let Admission::Refused(frames) = view(&state, Some(TERM)).admit(&hello("old"), check) else { panic!() };
        let bodies: Vec<_> = frames.into_iter().filter_map(|frame| frame.body).collect();
        let [server_frame::Body::Hello(_), server_frame::Body::Orders(orders), server_frame::Body::Goodbye(goodbye)] =
            &bodies[..]
        else {
            panic!("{bodies:?}")
        };
        let orders: Orders = muster_json::from_str(orders).unwrap();
        assert_eq!((orders.incarnation.as_str(), orders.attempts.len()), ("i", 0));
        assert_eq!((orders.epoch, orders.nonce, orders.generation), (TERM.epoch, TERM.nonce, state.seq));
        assert_eq!(goodbye.reason(), GoodbyeReason::NotEnrolled);
    }
    let expired = |_: &str, _: &str| Err(PeerError::Expired);
    assert_eq!(view(&state, Some(TERM)).admit(&hello("new"), expired), Admission::CertificateExpired);
}

#[test]
fn a_report_that_is_too_large_is_acknowledged_unread_and_a_registration_beyond_the_limits_ends_the_connection() {
    let frame = |json: String| {
        let report = v1::Report { sequence: 7, json };
        v1::AgentFrame { body: Some(agent_frame::Body::Report(report)) }
    };
    let (state, peer) = (state(), LinePeer { node: "n1", enrolment: "new", is_open: true });
    let read = |json: String| view(&state, Some(TERM)).read_frame(peer, frame(json));
    let failing = |bytes: usize| Report::NodeHealth {
        node: "n1".to_string(),
        failure: Some("x".repeat(bytes)),
        incarnation: String::new(),
    };
    let too_large = read(muster_json::to_string(&failing(300_000)));
    assert_eq!(too_large, Ok(LineInput::UnreadableReport { sequence: 7 }));
    let Ok(LineInput::Report { report, .. }) = read(muster_json::to_string(&failing(200_000))) else { panic!() };
    assert!(muster_json::to_string(&*report).len() < 5_000, "its text is cut");
    let taints = vec!["t"; 65];
    let registration = serde_json::json!({"Registered": {"node": "n1", "cpus": 1, "memory_mib": 1, "taints": taints}});
    let refused = read(registration.to_string()).unwrap_err();
    assert_eq!(refused.message, "the registration of this node has 65 taints; the maximum is 64");
}

#[test]
fn a_report_counts_only_on_an_open_line_of_the_leader_and_about_its_own_node() {
    let state = state();
    let frame = |node: &str| {
        let report = Report::Heartbeat { node: node.to_string(), following: None, sent_at_boot_ms: 1 };
        let report = v1::Report { sequence: 7, json: muster_json::to_string(&report) };
        v1::AgentFrame { body: Some(agent_frame::Body::Report(report)) }
    };
    let peer = LinePeer { node: "n1", enrolment: "new", is_open: true };
    let read = |leading, peer, node| view(&state, leading).read_frame(peer, frame(node)).map_err(|bye| bye.reason());
    assert!(matches!(read(Some(TERM), peer, "n1"), Ok(LineInput::Report { sequence: 7, .. })));
    assert_eq!(read(None, peer, "n1"), Err(GoodbyeReason::NotLeader));
    assert_eq!(read(Some(TERM), peer, "n2"), Err(GoodbyeReason::ProtocolError));
    assert_eq!(read(Some(TERM), LinePeer { enrolment: "old", ..peer }, "n1"), Err(GoodbyeReason::NotEnrolled));
    assert_eq!(read(Some(TERM), LinePeer { is_open: false, ..peer }, "n1"), Err(GoodbyeReason::NotEnrolled));
}
