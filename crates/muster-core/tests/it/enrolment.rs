//! Join tokens are used once, for the node they are meant for, and only while they are valid.

use muster_core::facts::command::{Actor, Command};
use muster_core::objects::enrolment::JoinToken;
use muster_core::objects::node::NodeStatus;
use muster_core::state::JOIN_TOKEN_MS_MAX;
use muster_core::{Refusal, Timestamp};

use crate::world::World;

fn join_token(id: &str, node: Option<&str>, expires_at: i64) -> Command {
    let node = node.map(|node| node.parse().unwrap());
    let (made_by, made_at) = ("ada".to_string(), Timestamp(0));
    let token = JoinToken {
        id: id.to_string(),
        hash: String::new(),
        node,
        made_by,
        made_at,
        expires_at: Timestamp(expires_at),
    };
    Command::AddJoinToken { token: Box::new(token) }
}

fn execute(world: &mut World, command: &Command) -> Result<(), Refusal> {
    let decision = world.state.decide(&Actor::system(), command, world.now)?;
    decision.events.iter().for_each(|event| world.state.apply(event));
    Ok(())
}

fn enrol(world: &mut World, node: &str, token: &str) -> Result<(), &'static str> {
    let command = Command::EnrolNode { node: node.parse().unwrap(), token: token.to_string() };
    execute(world, &command).map_err(|refusal| refusal.code())
}

fn world_with(tokens: &[(&str, Option<&str>)]) -> World {
    let mut world = World::new();
    for (id, node) in tokens {
        let expires_at = world.now.0 + 60_000;
        execute(&mut world, &join_token(id, *node, expires_at)).unwrap();
    }
    world
}

#[test]
fn a_join_token_is_used_once() {
    let mut world = world_with(&[("a", None)]);
    assert_eq!(enrol(&mut world, "g1", "a"), Ok(()));
    assert!(world.state.is_enrolled(&"g1".parse().unwrap(), "a"));
    assert_eq!(enrol(&mut world, "g2", "a"), Err("join-token-unusable"));
    assert_eq!(enrol(&mut world, "g2", "never-made"), Err("join-token-unusable"));
}

#[test]
fn an_expired_join_token_is_refused_and_removed() {
    let mut world = world_with(&[("a", None)]);
    world.now = world.now.plus(60_000);
    assert_eq!(enrol(&mut world, "g1", "a"), Err("join-token-unusable"));
    execute(&mut world, &Command::Tick).unwrap();
    assert!(world.state.join_tokens.is_empty());
}

#[test]
fn a_token_for_one_node_enrols_no_other() {
    let mut world = world_with(&[("a", Some("g1"))]);
    assert_eq!(enrol(&mut world, "g2", "a"), Err("join-token-of-another-node"));
    assert_eq!(enrol(&mut world, "g1", "a"), Ok(()));
}

#[test]
fn a_token_for_any_node_cannot_take_over_a_node_that_has_joined() {
    let mut world = world_with(&[("a", None), ("b", None), ("c", Some("g1"))]);
    enrol(&mut world, "g1", "a").unwrap();
    assert_eq!(enrol(&mut world, "g1", "b"), Err("node-enrolled"));
    assert_eq!(enrol(&mut world, "g1", "c"), Ok(()), "a token for this very node replaces the enrolment");
    let node = "g1".parse().unwrap();
    assert!(!world.state.is_enrolled(&node, "a") && world.state.is_enrolled(&node, "c"));
}

#[test]
fn a_node_served_within_the_server_cannot_be_taken_over() {
    let mut world = world_with(&[("a", None)]);
    let facts = Box::new(muster_testing::node().build());
    execute(&mut world, &Command::RegisterNode { node: "g1".parse().unwrap(), facts }).unwrap();
    assert_eq!(enrol(&mut world, "g1", "a"), Err("node-enrolled"));
}

#[test]
fn removing_a_node_revokes_its_enrolment() {
    let mut world = world_with(&[("a", None), ("b", None)]);
    enrol(&mut world, "g1", "a").unwrap();
    let node = "g1".parse().unwrap();
    execute(&mut world, &Command::RemoveNode { node }).unwrap();
    assert!(!world.state.is_enrolled(&"g1".parse().unwrap(), "a"), "it had not registered yet");
    enrol(&mut world, "g1", "b").unwrap();
    let (node, facts) = ("g1".parse().unwrap(), Box::new(muster_testing::node().build()));
    execute(&mut world, &Command::RegisterNode { node, facts }).unwrap();
    let (node, status) = ("g1".parse().unwrap(), NodeStatus::Draining);
    execute(&mut world, &Command::SetNodeState { node, status, why: String::new() }).unwrap();
    execute(&mut world, &Command::RemoveNode { node: "g1".parse().unwrap() }).unwrap();
    assert!(!world.state.is_enrolled(&"g1".parse().unwrap(), "b"));
}

#[test]
fn join_tokens_are_short_lived_and_their_ids_never_recur() {
    let mut world = world_with(&[("a", None)]);
    let now = world.now.0;
    for expires_at in [now, now - 1, now + JOIN_TOKEN_MS_MAX + 1] {
        let refused = execute(&mut world, &join_token("b", None, expires_at)).unwrap_err();
        assert_eq!(refused.code(), "invalid", "{expires_at}");
    }
    enrol(&mut world, "g1", "a").unwrap();
    let refused = execute(&mut world, &join_token("a", None, now + 1_000)).unwrap_err();
    assert_eq!(refused.code(), "duplicate-token", "certificates name the token");
}

#[test]
fn the_ca_changes_only_while_no_node_is_enrolled() {
    let choose =
        |world: &mut World, ca: &str| execute(world, &Command::ChooseClusterCa { fingerprint: ca.to_string() });
    let mut world = world_with(&[]);
    choose(&mut world, "one").unwrap();
    let expires_at = world.now.0 + 60_000;
    execute(&mut world, &join_token("a", None, expires_at)).unwrap();
    choose(&mut world, "two").unwrap();
    assert_eq!(enrol(&mut world, "g1", "a"), Err("join-token-unusable"), "it names the former CA");
    execute(&mut world, &join_token("b", None, expires_at)).unwrap();
    enrol(&mut world, "g1", "b").unwrap();
    assert_eq!(choose(&mut world, "two"), Ok(()));
    assert_eq!(choose(&mut world, "one").unwrap_err().code(), "other-cluster-ca");
}
