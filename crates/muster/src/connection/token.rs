//! The token that identifies the caller. It is never sent to another machine without encryption.

use std::path::{Path, PathBuf};

use muster_server::identity::{Secret, admin_token_path, read_token_file};

use super::address::ServerAddress;
use crate::error::{CliError, Exit};

/// The token of the named file, else of the variable, else of the data folder of a server on this machine.
pub fn resolve(
    file: Option<PathBuf>,
    variable: Option<String>,
    data_dir: &Path,
    server: &ServerAddress,
) -> Result<Option<Secret>, CliError> {
    let token = match (file, variable) {
        (Some(file), _) => Some(read_token(&file)?),
        (None, Some(text)) => Some(Secret::parse(&text).ok_or_else(invalid_token)?),
        (None, None) => local_admin_token(data_dir, server)?,
    };
    match token {
        Some(_) if !server.tls && !server.loopback => Err(unencrypted_connection(server)),
        token => Ok(token),
    }
}

/// The administrator's token of the local server; never used for a server on another machine.
fn local_admin_token(data_dir: &Path, server: &ServerAddress) -> Result<Option<Secret>, CliError> {
    let file = admin_token_path(data_dir);
    if !server.loopback || !file.is_file() {
        return Ok(None);
    }
    read_token(&file).map(Some)
}

fn read_token(file: &Path) -> Result<Secret, CliError> {
    read_token_file(file).map_err(|error| CliError::usage(error.to_string()))
}

fn invalid_token() -> CliError {
    CliError::usage("MUSTER_TOKEN is not a valid token, or was truncated when it was copied")
        .hint("a token begins with `mst_`; `muster token create NAME` creates one")
}

fn unencrypted_connection(server: &ServerAddress) -> CliError {
    CliError::new(Exit::NotAllowed, format!("refusing to send a token to {} without encryption", server.text))
        .hint("use an https:// address, or reach the server through a tunnel on this machine")
}

#[cfg(test)]
mod tests {
    use muster_core::Timestamp;
    use muster_core::objects::token::Role;
    use muster_server::identity::{NewToken, mint, write_private};

    use super::*;

    fn token() -> String {
        let new_token =
            NewToken { name: "ann".into(), role: Role::Admin, tenant: None, expires_at: None, priority_max: None };
        mint(new_token, Timestamp(0)).unwrap().1.reveal().to_string()
    }

    fn resolve_for(server: &str, variable: Option<String>, data_dir: &Path) -> Result<Option<Secret>, CliError> {
        resolve(None, variable, data_dir, &server.parse().unwrap())
    }

    #[test]
    fn a_token_is_never_sent_in_the_clear() {
        let nowhere = Path::new("/nowhere");
        assert!(resolve_for("http://gpu.example.org", Some(token()), nowhere).is_err());
        assert!(resolve_for("https://gpu.example.org", Some(token()), nowhere).unwrap().is_some());
        assert!(resolve_for("http://127.0.0.1:1", Some(token()), nowhere).unwrap().is_some());
    }

    #[test]
    fn a_damaged_token_is_noticed_before_it_is_sent() {
        let error = resolve_for("http://127.0.0.1:1", Some("mst_x".into()), Path::new("/nowhere")).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
    }

    #[test]
    fn the_token_of_the_local_server_is_used_only_for_the_local_server() {
        let dir = std::env::temp_dir().join(format!("muster-token-{}", std::process::id()));
        write_private(&admin_token_path(&dir), token().as_bytes()).unwrap();
        assert!(resolve_for("http://localhost:1", None, &dir).unwrap().is_some());
        assert!(resolve_for("https://gpu.example.org", None, &dir).unwrap().is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
