//! Topology and MIG partitions of GPUs: declared, requested, shown; placement scores.

use serde_json::{Value, json};

use crate::test_server::TestServer;

/// One node with two GPUs that can be partitioned.
const TWO_GPUS: &str = "nodes:
  - { name: n01, cpus: 32, memory_gib: 256, gpus: { model: NVIDIA H200, count: 2, memory_mib: 143771 } }";

fn server_with_two_mig_gpus() -> TestServer {
    TestServer::with_settings(&[("scheduler.repartition_after", "0s")], Some(TWO_GPUS)).wait_for_gpus(2)
}

fn partition_gpu(server: &TestServer, gpu: &str, profiles: Value) -> crate::client::HttpReply {
    let body = json!({"profiles": profiles, "why": "for notebooks"});
    server.client().post(&format!("/api/v1/gpus/{gpu}/partition"), &body)
}

fn isolated_share_job(share: f64) -> Value {
    json!({"command": ["serve"], "gpu_share": share, "isolation": "full", "annotations": {"muster.sim/runtime": "1h"}})
}

#[test]
fn a_gpu_is_partitioned_and_jobs_get_its_mig_instances() {
    let server = server_with_two_mig_gpus();
    let whole = server.get("/api/v1/gpus/n01/1");
    assert_eq!((&whole["mig"], whole["state"].as_str()), (&json!([]), Some("free")));
    assert!(whole["mig_profiles"].as_array().unwrap().contains(&json!("3g.71gb")), "{whole}");

    let reply = partition_gpu(&server, "n01/gpu-1", json!(["3g.71gb", "4g.71gb"]));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let shown = reply.json();
    let profiles: Vec<&Value> = shown["mig"].as_array().unwrap().iter().map(|one| &one["profile"]).collect();
    assert_eq!(profiles, [&json!("4g.71gb"), &json!("3g.71gb")], "in order of their start: {shown}");
    assert_eq!(shown["state"], "partitioned");
    assert_eq!(server.get("/api/v1/gpus?state=partitioned")["total"], 1);
    assert_eq!(
        server.get("/api/v1/cluster/status")["available_gpus"],
        1,
        "a partitioned GPU is not available as a whole"
    );

    let job = server.submit(isolated_share_job(0.4));
    let running = server.wait_for_state(&job, "running");
    assert_eq!(running["shares"][0]["profile"], "3g.71gb");
    let held = server.get("/api/v1/gpus/n01/1")["mig"].clone();
    let held: Vec<(&Value, &Value)> =
        held.as_array().unwrap().iter().map(|one| (&one["profile"], &one["held"])).collect();
    assert_eq!(held, [(&json!("4g.71gb"), &json!(false)), (&json!("3g.71gb"), &json!(true))]);

    let busy = server.expect_problem(&partition_gpu(&server, "n01/1", json!([])), 409, "gpu-busy");
    assert_eq!(busy, "`n01/gpu-1` is in use");
    assert_eq!(server.client().delete(&format!("/api/v1/jobs/{job}")).status, 200);
    server.wait_for_state(&job, "cancelled");
    assert_eq!(partition_gpu(&server, "n01/1", json!([])).json()["state"], "free", "without a partition");
    let waits = server.submit(isolated_share_job(0.4));
    server.wait_until("a reason to wait", |server| {
        let reasons = server.get(&format!("/api/v1/jobs/{waits}"))["reasons"].clone();
        reasons.as_array().unwrap().iter().any(|reason| reason["reason"] == "Partition")
    });

    let audit = server.get("/api/v1/audit?limit=100");
    let acts = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["action"] == "gpu.partition");
    let acts: Vec<(&Value, &Value)> = acts.map(|entry| (&entry["object"], &entry["refused"])).collect();
    let gpu = json!("n01/gpu-1");
    assert!(acts.iter().all(|(object, _)| **object == gpu), "{acts:?}");
    assert_eq!(acts.iter().filter(|(_, refused)| refused.is_null()).count(), 2, "{acts:?}");
}

#[test]
fn an_impossible_partition_is_refused() {
    let server = server_with_two_mig_gpus();
    let unknown = server.expect_problem(&partition_gpu(&server, "n01/0", json!(["9g.1gb"])), 422, "invalid");
    assert!(unknown.starts_with("profiles: `NVIDIA H200` has no profile `9g.1gb`; it has 1g.18gb"), "{unknown}");
    let full = server.expect_problem(&partition_gpu(&server, "n01/0", json!(["7g.141gb", "1g.18gb"])), 422, "invalid");
    assert!(full.contains("has no room for 7g.141gb, 1g.18gb at once"), "{full}");
    server.expect_problem(&partition_gpu(&server, "n01/2", json!([])), 404, "unknown-gpu");
    server.expect_problem(&partition_gpu(&server, "nowhere/0", json!([])), 404, "unknown-node");
    let body = json!({"profile": ["1g.18gb"]});
    server.expect_problem(&server.client().post("/api/v1/gpus/n01/0/partition", &body), 400, "unknown-field");
    assert_eq!(server.get("/api/v1/gpus/n01/0")["mig"], json!([]));
}

#[test]
fn a_node_can_be_declared_with_its_topology() {
    let server = TestServer::without_nodes();
    let gpu = |numa: u32, peer: u8| {
        json!({"model": "NVIDIA H200", "memory_mb": 143_771, "numa_node": numa, "socket": numa,
            "pcie_switch": 7 - numa, "nvlink": [peer]})
    };
    let gpus = [gpu(0, 1), gpu(0, 0), gpu(1, 3), gpu(1, 2)];
    let numa =
        json!([{"cpu_cores": 8, "memory_mb": 1_024, "socket": 0}, {"cpu_cores": 8, "memory_mb": 2_048, "socket": 1}]);
    let node = json!({"name": "a1", "cpu_cores": 16, "memory_mb": 65_536, "simulated": true, "rack": "r1",
        "block": "b1", "numa_nodes": numa, "gpus": gpus});
    let reply = server.client().post("/api/v1/nodes", &node);
    assert_eq!(reply.status, 201, "{}", reply.text);
    let shown = server.get("/api/v1/nodes/a1");
    assert_eq!((&shown["rack"], &shown["block"], &shown["numa_nodes"]), (&json!("r1"), &json!("b1"), &numa));
    let third = &shown["gpus"][2];
    for (field, value) in
        [("numa_node", json!(1)), ("socket", json!(1)), ("pcie_switch", json!(6)), ("nvlink", json!([3]))]
    {
        assert_eq!(third[field], value, "{field}");
    }

    // Nothing starts on the node before its agent joins, and a job that it could never hold is refused: no NUMA node
    // has three GPUs.
    let outcome = |gpus: u32, locality: Value| {
        let mut job = json!({"command": ["x"], "gpu_count": gpus});
        job.as_object_mut().unwrap().extend(locality.as_object().unwrap().clone());
        server.client().post("/api/v1/jobs/plan", &job).json()["outcome"].clone()
    };
    assert_eq!(outcome(2, json!({"topology": "same-numa"})), "waits");
    assert_eq!(outcome(3, json!({"topology": "same-numa"})), "refused");
    assert_eq!(outcome(3, json!({"topology": "nvlink"})), "refused");
    assert_eq!(outcome(3, json!({"allow_cross_numa": false})), "refused");
    assert_eq!(outcome(3, json!({"prefer_nvlink": true})), "waits");
}

#[test]
fn a_job_shows_its_topology_request_and_its_placement_score() {
    let server = TestServer::new();
    let with_topology = json!({"command": ["x"], "gpu_count": 2, "topology": "nvlink", "allow_cross_numa": false,
        "prefer_nvlink": true, "hold": true});
    let shown = server.get(&format!("/api/v1/jobs/{}", server.submit(json!({"command": ["x"], "hold": true}))));
    assert_eq!((&shown["prefer_nvlink"], shown.get("allow_cross_numa")), (&json!(false), None));
    let shown = server.get(&format!("/api/v1/jobs/{}", server.submit(with_topology)));
    assert_eq!(
        (&shown["topology"], &shown["allow_cross_numa"], &shown["prefer_nvlink"]),
        (&json!("nvlink"), &json!(false), &json!(true))
    );

    // Three of four GPUs, on two NUMA nodes: the score has a locality cost, and one GPU is left over.
    let planned = server.client().post("/api/v1/jobs/plan", &json!({"command": ["x"], "gpu_count": 3})).json();
    let job = server.submit_sleeper("1h", 3);
    server.wait_for_state(&job, "running");
    let attempts = server.get(&format!("/api/v1/jobs/{job}/attempts"));
    let score = &attempts["attempts"][0]["score"];
    assert_eq!(score["compared"], 1, "both nodes are of one kind: {score}");
    let locality = score["terms"].as_array().unwrap().iter().find(|term| term["name"] == "locality");
    assert_eq!(locality.unwrap()["milli"], 180, "{score}");
    assert_eq!(&server.get(&format!("/api/v1/allocations/{job}:1"))["score"], score);
    let why = server.get(&format!("/api/v1/jobs/{job}/why"));
    assert_eq!((&why["score"], why["nodes"].as_array().unwrap().len()), (score, 1));
    assert_eq!(&planned["score"], score, "the dry run has the same score");
}
