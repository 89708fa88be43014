//! Adapter (PowerControl): a program of the site, called as `PROGRAM ACTION NODE`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_agent::site_program::{self, SiteProgram};
use muster_core::objects::node::PowerAction;

use super::{PowerControl, PowerTarget};

/// The power program of a site.
pub struct PowerProgram {
    program: SiteProgram,
    /// Ends a running program when the server stops.
    stop: Arc<AtomicBool>,
}

impl PowerProgram {
    /// An error says why the program may not be run.
    pub fn new(path: PathBuf, timeout_ms: i64, stop: Arc<AtomicBool>) -> Result<PowerProgram, String> {
        site_program::check(&path)?;
        Ok(PowerProgram { program: SiteProgram { path, timeout_ms: timeout_ms.max(1).unsigned_abs() }, stop })
    }
}

impl PowerControl for PowerProgram {
    fn control(&self, action: PowerAction, node: &PowerTarget) -> Result<String, String> {
        let interrupted = || self.stop.load(Ordering::Relaxed).then(|| "the server stops".to_string());
        let arguments = [action.as_str(), node.name.as_str()];
        site_program::run_with_arguments(&self.program, &arguments, &environment(node), &mut { interrupted })
    }
}

/// `MUSTER_NODE`, its host name and address, and `MUSTER_LABEL_ZONE` for the label `zone`.
fn environment(node: &PowerTarget) -> Vec<(OsString, OsString)> {
    let PowerTarget { name, hostname, address, labels } = node;
    let of_node = [("MUSTER_NODE", name), ("MUSTER_NODE_HOSTNAME", hostname), ("MUSTER_NODE_ADDRESS", address)];
    let of_node = of_node.map(|(variable, value)| (variable.to_string(), value));
    let of_labels = labels.iter().map(|(key, value)| (label_variable(key), value));
    of_node.into_iter().chain(of_labels).map(|(variable, value)| (variable.into(), value.into())).collect()
}

fn label_variable(key: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("MUSTER_LABEL_{}", key.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn node() -> PowerTarget {
        let labels = [("muster.io/bmc".to_string(), "10.0.0.9".to_string())].into();
        PowerTarget { name: "n1".to_string(), hostname: "n1.site".to_string(), address: "10.0.0.1".to_string(), labels }
    }

    /// The folder of one test, removed at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("muster-power-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn program(Folder(dir): &Folder, text: &str) -> PathBuf {
        let path = dir.join("power");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn control(text: &str, timeout_ms: i64) -> Result<String, String> {
        let dir = Folder::new("exit");
        let power = PowerProgram::new(program(&dir, text), timeout_ms, Arc::default()).unwrap();
        power.control(PowerAction::Fence, &node())
    }

    #[test]
    fn only_exit_code_0_within_the_time_limit_confirms_an_action() {
        let shown = control("echo \"$1 $2 $MUSTER_NODE_ADDRESS $MUSTER_LABEL_MUSTER_IO_BMC\"", 60_000);
        assert_eq!(shown, Ok("fence n1 10.0.0.1 10.0.0.9".to_string()));
        assert_eq!(control("echo no BMC; exit 4", 60_000), Err("exit code 4: no BMC".to_string()));
        assert_eq!(control("sleep 300", 200), Err("it ran longer than 0.2 s".to_string()));
    }

    #[test]
    fn a_program_that_others_can_change_is_refused() {
        let dir = Folder::new("open");
        let path = program(&dir, "exit 0");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = PowerProgram::new(path, 1_000, Arc::default()).err().unwrap();
        assert!(refused.contains("writable by others"), "{refused}");
    }
}
