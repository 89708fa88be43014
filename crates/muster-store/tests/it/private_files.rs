//! Permissions of the database files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use muster_store::{StoreConfig, open};

const FILES: [&str; 4] = ["muster.db", "muster.db-wal", "muster.db-shm", "muster.db.lock"];

fn modes(folder: &Path) -> Vec<String> {
    let mode = |name: &&str| std::fs::metadata(folder.join(name)).map(|facts| facts.permissions().mode() & 0o777);
    FILES.iter().map(|name| mode(name).map_or("none".to_string(), |mode| format!("{mode:03o}"))).collect()
}

#[test]
fn database_files_are_accessible_to_their_owner_only() {
    let folder = std::env::temp_dir().join(format!("muster-store-private-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let config = StoreConfig::Sqlite { path: folder.join("muster.db") };
    let lead = || {
        let mut store = open(&config).unwrap();
        store.journal.acquire_leadership("n1", 60_000).unwrap();
        store
    };
    let store = lead();
    assert_eq!(modes(&folder), ["600"; 4], "new files");
    for name in FILES {
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    drop(store);
    let _store = lead();
    assert_eq!(modes(&folder), ["600"; 4], "files that an older release left accessible");
    std::fs::remove_dir_all(folder).unwrap();
}
