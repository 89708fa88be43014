//! Tokens from creation to expiry, and the permissions of each role.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use muster_core::Event;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn new_token(role: Role) -> NewToken {
    let tenant = (!role.is_cluster_wide()).then(|| tenant("red"));
    NewToken { name: "mia".to_string(), role, tenant, expires_at: None, priority_max: None }
}

fn state_with(tokens: &[&Token]) -> State {
    let mut state = State::default();
    for token in tokens {
        state.apply(&Event::TokenAdded { token: (*token).clone(), at: NOW });
    }
    state
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("muster-identity-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_minted_token_authenticates_its_owner() {
    let (token, secret) = mint(new_token(Role::Member), NOW).unwrap();
    let state = state_with(&[&token]);
    let caller = Authenticator::Tokens.authenticate(Some(secret.reveal()), &state, NOW).unwrap();
    let expected = Caller {
        actor: Actor::bearer(&token),
        role: Role::Member,
        tenant: Some(tenant("red")),
        token: Some(token.id.clone()),
    };
    assert_eq!(caller, expected);
    assert!(!muster_json::to_string(&token).contains(secret.reveal()), "the secret is not stored");
    assert_eq!(format!("{secret:?}"), format!("mst_{}_***", token.id));
}

#[test]
fn two_minted_tokens_differ_in_id_and_secret() {
    let (first, first_secret) = mint(new_token(Role::Viewer), NOW).unwrap();
    let (second, second_secret) = mint(new_token(Role::Viewer), NOW).unwrap();
    assert_ne!(first.id, second.id);
    assert_ne!(first_secret, second_secret);
    // The id of one token with the secret of the other is no valid token, even with a correct checksum.
    assert!(!secret::matches_hash(first_secret.reveal(), &second.hash));
}

#[test]
fn local_mode_needs_no_token() {
    let caller = Authenticator::Local.authenticate(None, &State::default(), NOW).unwrap();
    assert_eq!((caller.actor.name.as_str(), caller.role, caller.tenant), ("local", Role::Admin, None));
}

#[test]
fn all_rejected_tokens_get_one_message_and_distinct_log_reasons() {
    let (token, good) = mint(new_token(Role::Member), NOW).unwrap();
    let short = NewToken { expires_at: Some(NOW), ..new_token(Role::Member) };
    let (ended, ended_secret) = mint(short, Timestamp(0)).unwrap();
    let (revoked, revoked_secret) = mint(new_token(Role::Member), NOW).unwrap();
    let mut changed = token.clone();
    changed.hash = revoked.hash.clone();
    let state = state_with(&[&changed, &ended]);
    let slip = good.reveal().replacen(['a', 'b', 'c'], "d", 1);
    let cut = &good.reveal()[..80];
    let id = |token: &Token| token.id.clone();
    let cases = [
        (None, AuthError::Missing),
        (Some(""), AuthError::Malformed),
        (Some("mst_"), AuthError::Malformed),
        (Some("mst_x_y"), AuthError::Malformed),
        (Some("ghp_0123456789"), AuthError::Malformed),
        (Some("mst_é_\u{fffd}"), AuthError::Malformed),
        (Some(slip.as_str()), AuthError::Malformed),
        (Some(cut), AuthError::Malformed),
        (Some(revoked_secret.reveal()), AuthError::Unknown { id: id(&revoked) }),
        (Some(good.reveal()), AuthError::WrongSecret { id: id(&token) }),
        (Some(ended_secret.reveal()), AuthError::Expired { id: id(&ended) }),
    ];
    let mut reasons = Vec::new();
    for (bearer, expected) in cases {
        let error = Authenticator::Tokens.authenticate(bearer, &state, NOW).unwrap_err();
        assert_eq!(error.to_string(), "a valid token is needed; send `Authorization: Bearer mst_…`");
        assert_eq!(error, expected, "{bearer:?}");
        reasons.push(error.reason());
    }
    reasons.dedup();
    assert_eq!(reasons.len(), 5, "{reasons:?}");
}

#[test]
fn the_checksum_rejects_every_single_character_error() {
    let (_, secret) = mint(new_token(Role::Member), NOW).unwrap();
    let text = secret.reveal();
    for index in 0..text.len() {
        let mut bytes = text.as_bytes().to_vec();
        bytes[index] = if bytes[index] == b'0' { b'1' } else { b'0' };
        let damaged = String::from_utf8(bytes).unwrap();
        assert_eq!(secret::token_id(&damaged), None, "{damaged}");
    }
}

#[test]
fn each_role_has_its_permissions_in_its_tenant_in_others_and_on_the_cluster() {
    use Permission::*;
    let permissions = [Read, ManageJobs, ManageTenant, Operate, Administer];
    // For each role its permissions in its own tenant, in another tenant, and on the cluster.
    let matrix = [
        (Role::Viewer, "l....", ".....", "l...."),
        (Role::Member, "lw...", ".....", "l...."),
        (Role::TenantAdmin, "lwm..", ".....", "l...."),
        (Role::Operator, "lwmo.", "lwmo.", "lwmo."),
        (Role::Admin, "lwmoa", "lwmoa", "lwmoa"),
    ];
    for (role, own, foreign, cluster) in matrix {
        let (token, _) = mint(new_token(role), NOW).unwrap();
        let caller = Caller::from_token(&token);
        for (scope, allowed) in [(Some("red"), own), (Some("blue"), foreign), (None, cluster)] {
            let scope = scope.map(tenant);
            let may = |permission: &Permission| caller.may(*permission, scope.as_ref());
            let found: String = permissions
                .iter()
                .zip("lwmoa".chars())
                .map(|(permission, letter)| if may(permission) { letter } else { '.' })
                .collect();
            assert_eq!(found, allowed, "{} at {scope:?}", role.as_str());
        }
    }
}

#[test]
fn a_caller_cannot_grant_a_role_above_its_own() {
    let roles = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];
    // For each role the roles that it may grant in its own tenant, in another tenant, and on the cluster.
    let matrix = [
        (Role::Viewer, ".....", ".....", "....."),
        (Role::Member, ".....", ".....", "....."),
        (Role::TenantAdmin, "vmt..", ".....", "....."),
        (Role::Operator, "vmt..", "vmt..", "...o."),
        (Role::Admin, "vmt..", "vmt..", "...oa"),
    ];
    for (role, own, foreign, cluster) in matrix {
        let caller = Caller::from_token(&mint(new_token(role), NOW).unwrap().0);
        for (scope, allowed) in [(Some("red"), own), (Some("blue"), foreign), (None, cluster)] {
            let scope = scope.map(tenant);
            let may = |granted: &Role| caller.may_grant(*granted, scope.as_ref());
            let found: String =
                roles.iter().zip("vmtoa".chars()).map(|(role, letter)| if may(role) { letter } else { '.' }).collect();
            assert_eq!(found, allowed, "{} at {scope:?}", role.as_str());
        }
    }
}

#[test]
fn the_first_start_creates_one_administrator_token() {
    let folder = folder("bootstrap");
    let (token, secret) = bootstrap(&folder, &State::default(), NOW).unwrap().unwrap();
    assert_eq!((token.role, token.tenant.clone()), (Role::Admin, None));
    let path = admin_token_path(&folder);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(read_token_file(&path).unwrap(), secret);
    let state = state_with(&[&token]);
    assert!(bootstrap(&folder, &state, NOW).unwrap().is_none(), "the second start finds it");
    assert!(Authenticator::Tokens.authenticate(Some(secret.reveal()), &state, NOW).is_ok());
    // The server died before the token was durable, or the last administrator token was revoked.
    let (_, again) = bootstrap(&folder, &State::default(), NOW).unwrap().unwrap();
    assert_eq!(read_token_file(&path).unwrap(), again);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn token_files_that_others_can_read_are_refused() {
    let folder = folder("modes");
    let (_, secret) = mint(new_token(Role::Member), NOW).unwrap();
    let path = folder.join("token");
    write_private(&path, secret.reveal().as_bytes()).unwrap();
    for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let read = read_token_file(&path);
        assert_eq!(read.is_ok(), is_private, "{mode:o}");
        if let Err(error) = read {
            let shown = path.display();
            let expected = format!(
                "`{shown}` can be read by others (mode {mode:04o}); run `chmod 600 {shown}`, and revoke the token \
                 if it was ever exposed"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
    write_private(&path, b"hello\n").unwrap();
    assert!(matches!(read_token_file(&path), Err(FileError::NoToken { .. })));
    assert!(matches!(read_token_file(&folder.join("none")), Err(FileError::Read { .. })));
    fs::remove_dir_all(folder).unwrap();
}
