//! Rights of actors depend on their kind, never on their name.

use muster_core::facts::command::{Actor, ActorKind, Command};
use muster_core::objects::token::{Role, Token};
use muster_core::{Event, Refusal, Timestamp};

use crate::world::World;

fn token(name: &str) -> Token {
    Token {
        id: "t1".to_string(),
        hash: String::new(),
        name: name.to_string(),
        role: Role::Member,
        tenant: Some("default".parse().unwrap()),
        made_at: Timestamp(0),
        expires_at: None,
        priority_max: None,
    }
}

/// The number of audited acts of a decision.
fn acts(world: &World, by: &Actor) -> usize {
    let command = Command::CancelJob { job: muster_core::JobId::single(7) };
    let (events, _) = world.state.decide_audited(by, &command, world.now);
    events.iter().filter(|event| matches!(event, Event::Acted { .. })).count()
}

#[test]
fn acts_under_a_token_named_like_the_server_are_audited() {
    let world = World::new();
    // Older versions created tokens with this name.
    let named_like_the_server = Actor::bearer(&token("muster"));
    assert_eq!(named_like_the_server.name, Actor::system().name);
    assert_eq!(acts(&world, &named_like_the_server), 1);
    assert_eq!((acts(&world, &Actor::local("muster")), acts(&world, &Actor::system())), (1, 0));
}

#[test]
fn only_the_server_creates_tokens_with_reserved_names() {
    let world = World::new();
    let add = |by: &Actor, name: &str| {
        world.state.decide(by, &Command::AddToken { token: token(name) }, world.now).map(|_| ())
    };
    let kind = ActorKind::Token { role: Role::Admin, tenant: None, priority_max: None };
    let admin = Actor { name: "ann".to_string(), kind };
    for name in ["muster", "ADMIN", " local ", "policies.dir", "system"] {
        let refused = Refusal::ReservedName { name: name.to_string() };
        assert_eq!(add(&admin, name), Err(refused.clone()));
        assert_eq!(add(&Actor::local("local"), name), Err(refused));
    }
    assert_eq!((add(&Actor::system(), "admin"), add(&admin, "administrator")), (Ok(()), Ok(())));
}
