//! Secrets of jobs, over the real link: from standard input to a file in memory, and to no disk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::agents::{ONE_GPU, Site};

/// Jobs print it in capitals, so that the search for it does not find their output.
const VALUE: &str = "needle-0451-in-the-haystack";
const VALUE_IN_BASE64: &str = "bmVlZGxlLTA0NTEtaW4tdGhlLWhheXN0YWNr";

fn set(site: &Site, name: &str) -> Output {
    let mut command = Command::new(site.folder.join("bin/muster"));
    command.args(["secret", "set", name]).env("MUSTER_SERVER", format!("http://{}", site.address));
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{VALUE}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The files of server, agents and clients that hold the value, in either form.
fn files_with_the_value(dir: &Path) -> Vec<PathBuf> {
    let contains = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with_the_value(&path));
        } else if path.is_file() && !path.is_symlink() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            found.extend((contains(&bytes, VALUE) || contains(&bytes, VALUE_IN_BASE64)).then_some(path));
        }
    }
    found
}

#[test]
fn a_secret_goes_from_standard_input_to_the_job_and_to_no_disk() {
    let mut site = Site::new("secrets");
    let _agent = site.joined("g1", ONE_GPU);
    let missing = site.refused(&["submit", "--gpus", "1", "--secret", "TOKEN", "--", "true"]);
    assert!(missing.contains("there is no secret `TOKEN`") && missing.contains("muster secret set TOKEN"), "{missing}");
    let set_once = set(&site, "TOKEN");
    assert!(set_once.status.success(), "{}", String::from_utf8_lossy(&set_once.stderr));
    assert!(site.ok(&["secret", "ls"]).contains("TOKEN"));

    let script = "tr a-z A-Z < $MUSTER_SECRETS_DIR/token.txt; echo; stat -c %a $MUSTER_SECRETS_DIR/token.txt";
    let run = ["run", "--quiet", "--gpus", "1", "--secret", "TOKEN=token.txt", "--", "sh", "-c", script];
    assert_eq!(site.ok(&run), format!("{}\n400\n", VALUE.to_uppercase()));
    assert!(site.ok(&["show", "job-1"]).contains("TOKEN=token.txt"));

    // A job that uses a secret which is removed before its start says so.
    let submitted = site.ok(&["submit", "--hold", "--gpus", "1", "--secret", "TOKEN", "--", "true"]);
    let job = submitted.trim();
    site.ok(&["secret", "rm", "TOKEN", "--yes"]);
    site.ok(&["release", job]);
    site.wait("the job has failed", || site.phase(job) == "Failed");
    let why = site.ok(&["why", job]);
    assert!(why.contains("the secret `TOKEN` was removed"), "{why}");

    // A server that has lost its key says so, makes no other, and takes the right one without a restart.
    assert!(set(&site, "TOKEN").status.success());
    site.kill_server();
    let key = files_named(&site.folder, "secrets.key").pop().unwrap();
    std::fs::rename(&key, site.folder.join("saved.key")).unwrap();
    site.start_server();
    site.wait_for_node("g1", "Ready");
    let refused = set(&site, "TOKEN");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("no key for secrets"), "{stderr}");
    assert!(!key.exists());
    std::fs::rename(site.folder.join("saved.key"), &key).unwrap();
    assert_eq!(site.ok(&run), format!("{}\n400\n", VALUE.to_uppercase()));

    assert_eq!(files_with_the_value(&site.folder), [] as [PathBuf; 0], "database, journal, savepoints, logs, attempts");
    site.kill_server();
    assert_eq!(files_with_the_value(&site.folder), [] as [PathBuf; 0]);
}

fn files_named(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_named(&path, name));
        } else if path.file_name().is_some_and(|found| found == name) {
            found.push(path);
        }
    }
    found
}
