//! The binary as a worker for policies, as whoever asks would start it.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_policy::{Confinement, PolicyValue, Worker, WorkerCommand};

#[test]
fn the_muster_binary_serves_as_policy_worker() {
    let launch =
        WorkerCommand { program: env!("CARGO_BIN_EXE_muster").into(), args: vec!["policy-worker".into()] };
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
    let job = PolicyValue::Record(vec![("gpus", PolicyValue::Int(4))]);
    assert_eq!(worker.call("gpus", std::slice::from_ref(&job)), Ok(PolicyValue::Int(5)));
    let greedy = worker.call("greedy", &[]).unwrap_err().to_string();
    assert!(greedy.contains("it exceeded its memory limit of 256 MiB"), "{greedy}");
    assert_eq!(worker.call("gpus", &[job]), Ok(PolicyValue::Int(5)));
}
