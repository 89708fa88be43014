//! GPU shares: requested, allocated, shown.

use serde_json::{Value, json};

use crate::test_server::{TWO_NODES, TestServer};

/// One node with one GPU.
const ONE_GPU: &str = "nodes:
  - { name: n, count: 1, cpus: 32, memory_gib: 256, gpus: { model: NVIDIA H100, count: 1, memory_mib: 80000 } }";

fn share_job(share: f64) -> Value {
    json!({"name": "part", "command": ["serve"], "gpu_share": share, "annotations": {"muster.sim/runtime": "1h"}})
}

fn half_share(gpu: &str) -> Value {
    let why = "the GPU is not partitioned: MPS enforces the limits";
    json!({"gpu": gpu, "mode": "mps", "compute_milli": 500, "memory_mib": 40_000, "why": why})
}

#[test]
fn a_job_shows_its_gpu_shares() {
    let server = TestServer::with_settings(&[], Some(ONE_GPU)).wait_for_gpus(1);
    let (first, second) = (server.submit(share_job(0.5)), server.submit(share_job(0.5)));
    let running = server.wait_for_state(&first, "running");
    server.wait_for_state(&second, "running");
    let gpu = running["allocated_gpus"][0].as_str().unwrap().to_string();
    assert_eq!(running["allocated_gpus"], json!([gpu]));
    assert_eq!(running["shares"], json!([half_share(&gpu)]));
    assert_eq!((running["gpu_count"].as_u64(), running["gpu_amount"].as_f64()), (Some(1), Some(0.5)));
    assert_eq!(
        (running["tasks"][0]["gpu_share"].as_f64(), &running["tasks"][0]["isolation"]),
        (Some(0.5), &json!("none"))
    );

    let held = server.get(&format!("/api/v1/allocations/{second}:1"));
    assert_eq!((&held["gpu_ids"], &held["shares"]), (&json!([gpu]), &json!([half_share(&gpu)])));
    let listed = server.get("/api/v1/jobs");
    assert_eq!(listed["jobs"][0]["gpu_amount"], json!(0.5));

    assert_eq!(server.client().delete(&format!("/api/v1/jobs/{second}")).status, 200);
    server.wait_for_state(&second, "cancelled");
    let ended = server.get(&format!("/api/v1/allocations/{second}:1"));
    assert_eq!(ended["shares"], json!([half_share(&gpu)]), "an ended allocation shows its shares too");
}

#[test]
fn a_shared_gpu_shows_its_used_fraction_and_holders() {
    let server = TestServer::with_settings(&[], Some(ONE_GPU)).wait_for_gpus(1);
    let (small, large) = (server.submit(share_job(0.25)), server.submit(share_job(0.5)));
    server.wait_for_state(&small, "running");
    let job = server.wait_for_state(&large, "running");
    let gpu = job["allocated_gpus"][0].as_str().unwrap().replace("gpu-", "");
    let shown = server.get(&format!("/api/v1/gpus/{gpu}"));
    assert_eq!((shown["state"].as_str(), shown["used_milli"].as_u64()), (Some("shared"), Some(750)));
    assert_eq!((&shown["allocated"], &shown["job_id"]), (&json!(true), &Value::Null));
    let holders = json!([
        {"job_id": small, "allocation_id": format!("{small}:1"), "tenant_id": "default", "mode": "mps",
            "compute_milli": 250, "memory_mib": 20_000},
        {"job_id": large, "allocation_id": format!("{large}:1"), "tenant_id": "default", "mode": "mps",
            "compute_milli": 500, "memory_mib": 40_000},
    ]);
    assert_eq!(shown["holders"], holders);
    assert_eq!(server.get("/api/v1/gpus?state=shared")["total"], 1);
    assert_eq!(server.get("/api/v1/cluster/status")["available_gpus"], 0, "a job holds a share of it");
    assert_eq!(server.get(&format!("/api/v1/nodes/{}", job["node_name"].as_str().unwrap()))["gpu_allocation"], 0.75);
    assert_eq!(server.get("/api/v1/tenants/default")["current_gpus"], json!(0.75));
    let metrics = server.client().get("/metrics").text;
    let ratio = metrics.lines().find(|line| line.starts_with("muster_gpu_allocated_ratio")).unwrap();
    assert!(ratio.ends_with(" 0.75"), "{ratio}");

    let third = server.submit(share_job(0.5));
    server.wait_until("a reason to wait", |server| {
        server.get(&format!("/api/v1/jobs/{third}"))["reasons"][0]["reason"] == "Capacity"
    });
}

#[test]
fn a_job_on_whole_gpus_shows_no_shares() {
    let server = TestServer::new();
    let job = server.submit_sleeper("1h", 1);
    let running = server.wait_for_state(&job, "running");
    for absent in ["shares", "gpu_amount"] {
        assert!(running.get(absent).is_none(), "{absent}");
    }
    assert_eq!(server.get("/api/v1/tenants/default")["current_gpus"], json!(1));
    let gpu = running["allocated_gpus"][0].as_str().unwrap().replace("gpu-", "");
    let shown = server.get(&format!("/api/v1/gpus/{gpu}"));
    assert_eq!((shown["state"].as_str(), shown["used_milli"].as_u64()), (Some("held"), Some(1_000)));
    assert_eq!(shown["holders"][0]["mode"], "whole");
}

#[test]
fn a_task_group_may_set_its_own_gpu_share() {
    let server = TestServer::with_settings(&[], Some(TWO_NODES)).wait_for_gpus(8);
    let job = server
        .submit(json!({"script": "x", "gpu_share": 0.1 + 0.2, "isolation": "memory", "hold": true, "tasks": [
        {"name": "lead", "gpu_share": 1.0, "isolation": "none"}, {"name": "reader", "count": 3}]}));
    let tasks = server.get(&format!("/api/v1/jobs/{job}"))["tasks"].clone();
    assert_eq!((&tasks[0]["gpu_share"], &tasks[0]["isolation"]), (&json!(1.0), &Value::Null));
    assert_eq!((&tasks[1]["gpu_share"], &tasks[1]["isolation"]), (&json!(0.3), &json!("memory")));
}

/// Two tasks of one gang may share a GPU: the GPU is listed once, and each share is listed.
#[test]
fn tasks_of_a_gang_may_share_a_gpu() {
    let server = TestServer::with_settings(&[], Some(ONE_GPU)).wait_for_gpus(1);
    let mut gang = share_job(0.5);
    gang["tasks"] = json!([{"count": 2}]);
    let plan = server.client().post("/api/v1/jobs/plan", &gang).json();
    assert_eq!((plan["gpus"].as_array().unwrap().len(), plan["shares"].as_array().unwrap().len()), (1, 2));
    let id = server.submit(gang);
    let running = server.wait_for_state(&id, "running");
    let gpu = running["allocated_gpus"][0].as_str().unwrap();
    assert_eq!(running["allocated_gpus"], json!([gpu]));
    assert_eq!(running["shares"], json!([half_share(gpu), half_share(gpu)]));
    assert_eq!(server.get("/api/v1/gpus")["gpus"][0]["holders"].as_array().unwrap().len(), 2);
}
