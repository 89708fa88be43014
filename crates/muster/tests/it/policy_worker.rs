//! The binary as a worker for policies, as whoever asks would start it.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_policy::{Confinement, Launch, Plain, Worker};

#[test]
fn the_binary_is_a_worker() {
    let launch = Launch { program: env!("CARGO_BIN_EXE_muster").into(), words: vec!["policy-worker".into()] };
    let patient = Confinement { call_time: Duration::from_secs(1), ..Confinement::default() };
    let mut worker = Worker::new(launch, patient);
    let source = "
def gpus(job):
    return job.gpus + 1
def greedy(n = 1 << 30):
    return len('a' * n)
";
    let files = BTreeMap::from([("policy.gsky".to_string(), source.to_string())]);
    worker.load(&files).unwrap();
    let job = Plain::Record(vec![("gpus", Plain::Int(4))]);
    assert_eq!(worker.call("gpus", std::slice::from_ref(&job)), Ok(Plain::Int(5)));
    let greedy = worker.call("greedy", &[]).unwrap_err().to_string();
    assert!(greedy.contains("it wanted more memory than the 256 MiB it may have"), "{greedy}");
    assert_eq!(worker.call("gpus", &[job]), Ok(Plain::Int(5)));
}
