//! The commissioning document's own examples, verbatim.

use serde_json::json;

use crate::house::House;

/// The body of the document's curl, byte for byte.
const CURL_BODY: &str = r#"{
    "tenant_id": "default",
    "name": "api-job",
    "priority": 500,
    "gpu_count": 1,
    "gpu_memory_mb": 16000,
    "cpu_cores": 4,
    "memory_mb": 32000,
    "image": "nvidia/cuda:12.0-base"
  }"#;

#[test]
fn the_curl_of_the_document_works_on_a_fresh_install() {
    let house = House::empty();
    let headers = [("User-Agent", "curl/8.5.0"), ("Accept", "*/*"), ("Content-Type", "application/json")];
    let reply = house.client().send("POST", "/api/v1/jobs", &headers, CURL_BODY.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text);
    let answer = reply.json();
    assert_eq!((answer["job_id"].as_str(), answer["status"].as_str()), (Some("job-1"), Some("submitted")));
    assert_eq!(reply.header("location"), "/api/v1/jobs/job-1");

    let job = house.get("/api/v1/jobs/job-1");
    assert_eq!(job["state"], "pending", "no node is registered, so it waits");
    let asked = [
        ("tenant_id", json!("default")),
        ("name", json!("api-job")),
        ("priority", json!(500)),
        ("gpu_count", json!(1)),
        ("gpu_memory_mb", json!(16000)),
        ("cpu_cores", json!(4)),
        ("memory_mb", json!(32000)),
        ("image", json!("nvidia/cuda:12.0-base")),
        ("queue_position", json!(1)),
        ("estimated_wait", json!(null)),
    ];
    for (field, expected) in asked {
        assert_eq!(job[field], expected, "{field}");
    }
}

#[test]
fn ten_jobs_of_rising_priority_run_highest_first() {
    let house = House::with(
        &[],
        Some(
            "nodes: [{ name: n, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 1, memory_mib: 16384 } }]",
        ),
    )
    .with_gpus(1);
    // The first one takes the only GPU, so that the others queue up behind it.
    let first =
        house.submit(json!({"script": "x", "priority": 10_000, "annotations": {"muster.sim/runtime": "1s"}}));
    house.until_state(&first, "running");
    for number in 1..=10 {
        house.submit(json!({"name": format!("job-{number}"), "gpu_count": 1, "priority": number * 100,
            "script": "nvidia-smi", "annotations": {"muster.sim/runtime": "50ms"}}));
    }
    assert_eq!(house.get("/api/v1/jobs")["total"], 11);
    house.until("all to end", |house| house.get("/api/v1/jobs?state=completed")["total"] == 11);
    let list = house.get("/api/v1/jobs");
    let mut jobs: Vec<_> = list["jobs"].as_array().unwrap().clone();
    jobs.sort_by_key(|job| job["scheduled_at_ms"].as_i64());
    let names: Vec<&str> = jobs.iter().skip(1).map(|job| job["name"].as_str().unwrap()).collect();
    let expected: Vec<String> = (1..=10).rev().map(|number| format!("job-{number}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn create_tenant_of_the_document_is_usable_at_once() {
    let house = House::new();
    // What its command line sends: the other quotas are left out and must not mean zero.
    let body = json!({"name": "ml-team", "max_gpus": 10, "priority_tier": "high", "max_cpu_cores": 64, "max_memory_mb": 256000});
    let reply = house.client().post("/api/v1/tenants", &body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    assert_eq!(reply.json()["id"], "ml-team");
    assert_eq!(reply.json()["priority_tier"], "high");
    assert_eq!(reply.json()["max_concurrent_jobs"], json!(null));
    let job = house.submit(json!({"tenant_id": "ml-team", "gpu_count": 2, "script": "true"}));
    assert_eq!(house.get(&format!("/api/v1/jobs/{job}"))["priority"], 1000, "its tier is its usual priority");
}

#[test]
fn the_seven_counters_are_right() {
    let house = House::new();
    house.until_state(&house.sleeper("1h", 3), "running");
    house.submit(json!({"gpu_count": 4, "script": "true", "priority": 1, "hold": true}));
    let ended = house.sleeper("10ms", 1);
    house.until_state(&ended, "completed");
    let status = house.get("/api/v1/cluster/status");
    let expected = [
        ("total_gpus", 8),
        ("available_gpus", 5),
        ("total_nodes", 2),
        ("online_nodes", 2),
        ("total_jobs", 3),
        ("pending_jobs", 1),
        ("running_jobs", 1),
        ("allocated_gpus", 3),
        ("held_jobs", 1),
    ];
    for (counter, value) in expected {
        assert_eq!(status[counter], value, "{counter}");
    }
    assert_eq!((status["role"].as_str(), status["simulated"].as_bool()), (Some("leading"), Some(true)));
}

#[test]
fn a_job_goes_from_pending_to_completed_without_help() {
    let house = House::new();
    let job = house.sleeper("300ms", 2);
    let running = house.until_state(&job, "running");
    assert_eq!(running["allocated_gpus"].as_array().unwrap().len(), 2);
    assert!(running["node_name"].is_string());
    assert_eq!(running["queue_position"], json!(null));
    let done = house.until_state(&job, "completed");
    assert_eq!((done["phase"].as_str(), done["exit_code"].as_i64()), (Some("Done"), Some(0)));
    assert_eq!(done["allocated_gpus"], json!([]));
    assert!(done["completed_at_ms"].as_i64() >= done["started_at_ms"].as_i64());
    assert!(done["gpu_hours"].as_f64().unwrap() > 0.0);
}

#[test]
fn over_quota_is_403_with_the_error_member() {
    let house = House::new();
    house.client().post("/api/v1/tenants", &json!({"name": "small", "max_gpus": 5}));
    let reply =
        house.client().post("/api/v1/jobs", &json!({"tenant_id": "small", "gpu_count": 6, "script": "true"}));
    house.refused(&reply, 403, "over-quota");
    assert_eq!(reply.json()["error"], reply.json()["detail"]);
    assert_eq!(reply.json()["hint"], "ask for at most 5 GPUs, or have the quota raised");
    assert_eq!(reply.header("content-type"), "application/problem+json");
}
