//! Parts of GPUs: what was asked, what was given, and who sees it.

use serde_json::{Value, json};

use crate::house::{House, TWO_NODES};

/// One node with one GPU.
const ONE_GPU: &str = "nodes:
  - { name: n, count: 1, cpus: 32, memory_gib: 256, gpus: { model: NVIDIA H100, count: 1, memory_mib: 80000 } }";

fn part(share: f64) -> Value {
    json!({"name": "part", "command": ["serve"], "gpu_share": share, "annotations": {"muster.sim/runtime": "1h"}})
}

fn half_of(gpu: &str) -> Value {
    let why = "the GPU is not partitioned and can keep each within limits";
    json!({"gpu": gpu, "mode": "mps", "compute_milli": 500, "memory_mib": 40_000, "why": why})
}

#[test]
fn jobs_are_told_what_they_have_of_a_gpu() {
    let house = House::with(&[], Some(ONE_GPU)).with_gpus(1);
    let (first, second) = (house.submit(part(0.5)), house.submit(part(0.5)));
    let running = house.until_state(&first, "running");
    house.until_state(&second, "running");
    let gpu = running["allocated_gpus"][0].as_str().unwrap().to_string();
    assert_eq!(running["allocated_gpus"], json!([gpu]));
    assert_eq!(running["shares"], json!([half_of(&gpu)]));
    assert_eq!((running["gpu_count"].as_u64(), running["gpu_amount"].as_f64()), (Some(1), Some(0.5)));
    assert_eq!(
        (running["tasks"][0]["gpu_share"].as_f64(), &running["tasks"][0]["isolation"]),
        (Some(0.5), &json!("none"))
    );

    let held = house.get(&format!("/api/v1/allocations/{second}:1"));
    assert_eq!((&held["gpu_ids"], &held["shares"]), (&json!([gpu]), &json!([half_of(&gpu)])));
    let listed = house.get("/api/v1/jobs");
    assert_eq!(listed["jobs"][0]["gpu_amount"], json!(0.5));

    assert_eq!(house.client().delete(&format!("/api/v1/jobs/{second}")).status, 200);
    house.until_state(&second, "cancelled");
    let ended = house.get(&format!("/api/v1/allocations/{second}:1"));
    assert_eq!(ended["shares"], json!([half_of(&gpu)]), "history tells it too");
}

#[test]
fn a_shared_gpu_says_how_much_of_it_is_held_and_by_whom() {
    let house = House::with(&[], Some(ONE_GPU)).with_gpus(1);
    let (small, large) = (house.submit(part(0.25)), house.submit(part(0.5)));
    house.until_state(&small, "running");
    let job = house.until_state(&large, "running");
    let gpu = job["allocated_gpus"][0].as_str().unwrap().replace("gpu-", "");
    let shown = house.get(&format!("/api/v1/gpus/{gpu}"));
    assert_eq!((shown["state"].as_str(), shown["used_milli"].as_u64()), (Some("shared"), Some(750)));
    assert_eq!((&shown["allocated"], &shown["job_id"]), (&json!(true), &Value::Null));
    let holders = json!([
        {"job_id": small, "allocation_id": format!("{small}:1"), "tenant_id": "default", "mode": "mps",
            "compute_milli": 250, "memory_mib": 20_000},
        {"job_id": large, "allocation_id": format!("{large}:1"), "tenant_id": "default", "mode": "mps",
            "compute_milli": 500, "memory_mib": 40_000},
    ]);
    assert_eq!(shown["holders"], holders);
    assert_eq!(house.get("/api/v1/gpus?state=shared")["total"], 1);
    assert_eq!(house.get("/api/v1/cluster/status")["available_gpus"], 0, "somebody holds a part of it");
    assert_eq!(
        house.get(&format!("/api/v1/nodes/{}", job["node_name"].as_str().unwrap()))["gpu_allocation"],
        0.75
    );
    assert_eq!(house.get("/api/v1/tenants/default")["current_gpus"], json!(0.75));
    let metrics = house.client().get("/metrics").text;
    let ratio = metrics.lines().find(|line| line.starts_with("muster_gpu_allocated_ratio")).unwrap();
    assert!(ratio.ends_with(" 0.75"), "{ratio}");

    let third = house.submit(part(0.5));
    house.until("a reason to wait", |house| {
        house.get(&format!("/api/v1/jobs/{third}"))["reasons"][0]["reason"] == "Capacity"
    });
}

#[test]
fn a_whole_gpu_is_shown_as_before() {
    let house = House::new();
    let job = house.sleeper("1h", 1);
    let running = house.until_state(&job, "running");
    for absent in ["shares", "gpu_amount"] {
        assert!(running.get(absent).is_none(), "{absent}");
    }
    assert_eq!(house.get("/api/v1/tenants/default")["current_gpus"], json!(1));
    let gpu = running["allocated_gpus"][0].as_str().unwrap().replace("gpu-", "");
    let shown = house.get(&format!("/api/v1/gpus/{gpu}"));
    assert_eq!((shown["state"].as_str(), shown["used_milli"].as_u64()), (Some("held"), Some(1_000)));
    assert_eq!(shown["holders"][0]["mode"], "whole");
}

#[test]
fn a_group_of_tasks_may_ask_for_a_part_of_its_own() {
    let house = House::with(&[], Some(TWO_NODES)).with_gpus(8);
    let job = house.submit(
        json!({"script": "x", "gpu_share": 0.1 + 0.2, "isolation": "memory", "hold": true, "tasks": [
        {"name": "lead", "gpu_share": 1.0, "isolation": "none"}, {"name": "reader", "count": 3}]}),
    );
    let tasks = house.get(&format!("/api/v1/jobs/{job}"))["tasks"].clone();
    assert_eq!((&tasks[0]["gpu_share"], &tasks[0]["isolation"]), (&json!(1.0), &Value::Null));
    assert_eq!((&tasks[1]["gpu_share"], &tasks[1]["isolation"]), (&json!(0.3), &json!("memory")));
}

/// Two tasks of one gang may have the same GPU: it is listed once, and each part is told.
#[test]
fn tasks_of_a_gang_may_share_a_gpu() {
    let house = House::with(&[], Some(ONE_GPU)).with_gpus(1);
    let mut gang = part(0.5);
    gang["tasks"] = json!([{"count": 2}]);
    let plan = house.client().post("/api/v1/jobs/plan", &gang).json();
    assert_eq!((plan["gpus"].as_array().unwrap().len(), plan["shares"].as_array().unwrap().len()), (1, 2));
    let id = house.submit(gang);
    let running = house.until_state(&id, "running");
    let gpu = running["allocated_gpus"][0].as_str().unwrap();
    assert_eq!(running["allocated_gpus"], json!([gpu]));
    assert_eq!(running["shares"], json!([half_of(gpu), half_of(gpu)]));
    assert_eq!(house.get("/api/v1/gpus")["gpus"][0]["holders"].as_array().unwrap().len(), 2);
}
