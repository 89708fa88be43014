//! The binary as a policy worker, started as a server starts it.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_policy::{Confinement, PolicyValue, Worker, WorkerCommand};

#[test]
fn the_muster_binary_serves_as_policy_worker() {
    let command = WorkerCommand { program: env!("CARGO_BIN_EXE_muster").into(), args: vec!["policy-worker".into()] };
    let confinement = Confinement { call_time: Duration::from_secs(1), ..Confinement::default() };
    let mut worker = Worker::new(command, confinement);
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
