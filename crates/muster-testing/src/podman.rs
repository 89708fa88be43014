//! Images and containers for tests: a podman with a store of its own, and images that are made on the spot from a static busybox,
//! without a network. They need root, podman, runc, catatonit and busybox.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::images::{ENTRY, PLAIN};

const BUSYBOX_PATHS: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
const PROGRAMS: [&str; 3] = ["/usr/bin/podman", "/usr/bin/runc", "/usr/bin/catatonit"];
/// What the images have of busybox.
const COMMANDS: [&str; 19] = [
    "sh", "cat", "echo", "env", "grep", "head", "id", "kill", "ls", "mkdir", "ps", "pwd", "readlink", "setsid",
    "sleep", "stty", "tail", "tty", "wc",
];

/// A podman with a store of its own: a program of that name that passes on its arguments. The store is not in `/tmp`, which a
/// job has its own of. Dropping it removes the store with its containers.
#[derive(Debug)]
pub struct PodmanStore {
    dir: PathBuf,
}

impl PodmanStore {
    /// A store with the images [`PLAIN`] and [`ENTRY`]. `None` where a program is missing; in CI that fails the test.
    pub fn new(name: &str) -> Option<PodmanStore> {
        let is_there = |path: &str| Path::new(path).exists();
        let busybox = BUSYBOX_PATHS.iter().find(|path| is_there(path));
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let (Some(busybox), true, true) = (busybox, PROGRAMS.iter().all(|path| is_there(path)), is_root) else {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            let is_waived = std::env::var_os("MUSTER_TESTS_WITHOUT_ROOT").is_some();
            assert!(!is_ci || is_waived, "this test needs podman, runc, catatonit and busybox-static");
            eprintln!("skipped: this test needs root, podman, runc, catatonit and busybox-static");
            return None;
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("muster-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let store = PodmanStore { dir: Path::new("/var/tmp").join(name) };
        store.install();
        store.import(Path::new(busybox));
        Some(store)
    }

    fn install(&self) {
        std::fs::create_dir_all(&self.dir).unwrap();
        let dir = self.dir.display();
        let podman = format!("/usr/bin/podman --root {dir}/store --runroot {dir}/run --storage-driver vfs");
        let script = format!(
            "#!/bin/sh\n\
             for last; do :; done\n\
             offer=\"{dir}/registry/$(echo \"$last\" | tr / _)\"\n\
             case \" $* \" in *\" pull \"*) test -e \"$offer\" && exec {podman} import --quiet {dir}/root.tar \"$last\";; esac\n\
             exec {podman} \"$@\"\n"
        );
        std::fs::write(self.program(), script).unwrap();
        std::fs::set_permissions(self.program(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn import(&self, busybox: &Path) {
        let root = self.dir.join("root");
        for name in ["bin", "etc", "tmp"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
        COMMANDS.iter().for_each(|name| std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap());
        let packed = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(self.archive()).arg(".").status();
        assert!(packed.unwrap().success());
        self.add_image(PLAIN, &["ENV OF_THE_IMAGE=yes"]);
        self.add_image(
            ENTRY,
            &["ENTRYPOINT [\"/bin/echo\",\"entry\"]", "CMD [\"default\"]", "ENV OF_THE_IMAGE=yes", "WORKDIR /etc"],
        );
    }

    fn archive(&self) -> PathBuf {
        self.dir.join("root.tar")
    }

    /// Adds an image with these instructions of a Dockerfile.
    pub fn add_image(&self, name: &str, changes: &[&str]) {
        let archive = self.archive();
        let changes: Vec<&str> = changes.iter().flat_map(|change| ["--change", change]).collect();
        self.run(&[&["import"], &changes[..], &[archive.to_str().unwrap(), name]].concat());
    }

    /// Makes an image known that is not in the store and can be pulled, as from a registry. Each pull gives another image id.
    pub fn offer_image(&self, name: &str) {
        let registry = self.dir.join("registry");
        std::fs::create_dir_all(&registry).unwrap();
        std::fs::write(registry.join(name.replace('/', "_")), "").unwrap();
    }

    pub fn has_image(&self, name: &str) -> bool {
        Command::new(self.program()).args(["image", "exists", name]).status().unwrap().success()
    }

    /// The directory of the store, in which tests may put files of their own.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn program(&self) -> PathBuf {
        self.dir.join("podman")
    }

    /// Standard output of a podman command that succeeds.
    pub fn run(&self, args: &[&str]) -> String {
        let output = Command::new(self.program()).args(["--cgroup-manager", "cgroupfs"]).args(args).output().unwrap();
        assert!(output.status.success(), "podman {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The names of all containers, in any state.
    pub fn containers(&self) -> String {
        self.run(&["ps", "--all", "--format", "{{.Names}}"])
    }
}

impl Drop for PodmanStore {
    fn drop(&mut self) {
        let _ = Command::new(self.program()).args(["--cgroup-manager", "cgroupfs", "rm", "--all", "--force"]).output();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
