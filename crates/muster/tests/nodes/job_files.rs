//! What the jobs write themselves: the time, every tenth of a second, in a file of each process.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Runs for a time that depends on the index in the array, without starting another process, and writes `done` at the end.
/// All nodes of a test have one clock.
const SCRIPT: &str = r#"#!/usr/bin/env bash
file="$FILES/$MUSTER_JOB_ID-attempt-$MUSTER_ATTEMPT-$BASHPID"
end=$((${EPOCHREALTIME/./} + (RUNTIME_MS + (MUSTER_ARRAY_INDEX * 7919) % RUNTIME_MS) * 1000))
exec {silence}<> <(:)
while now=${EPOCHREALTIME/./}; ((now < end)); do
    echo $now >> "$file"
    read -r -t 0.1 -u $silence
done
echo $now >> "$file"
echo done >> "$file"
"#;

/// The folder of the files.
pub struct JobFiles {
    folder: PathBuf,
}

/// One process of a job, as the process itself wrote it. Times in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct WrittenAttempt {
    pub number: u32,
    pub first_us: u64,
    pub last_us: u64,
    pub is_done: bool,
}

impl JobFiles {
    /// Everyone may write there: jobs have an account of their own.
    pub fn create(folder: PathBuf) -> JobFiles {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let script = folder.join("job.sh");
        std::fs::write(&script, SCRIPT).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        JobFiles { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn script(&self) -> PathBuf {
        self.folder.join("job.sh")
    }

    /// The processes of each job that wrote something, by the number of their attempt.
    pub fn attempts(&self) -> BTreeMap<String, Vec<WrittenAttempt>> {
        let mut jobs: BTreeMap<String, Vec<WrittenAttempt>> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some((job, process)) = name.split_once("-attempt-") else { continue };
            let (number, _pid) = process.split_once('-').unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let times: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
            let (Some(first), Some(last)) = (times.first(), times.last()) else { continue };
            jobs.entry(job.to_string()).or_default().push(WrittenAttempt {
                number: number.parse().unwrap(),
                first_us: *first,
                last_us: *last,
                is_done: text.ends_with("done\n"),
            });
        }
        jobs.values_mut().for_each(|attempts| attempts.sort_by_key(|attempt| attempt.number));
        jobs
    }
}
