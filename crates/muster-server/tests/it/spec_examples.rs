//! The examples of the specification, verbatim.

use serde_json::json;

use crate::test_server::TestServer;

/// The body of the curl example, byte for byte.
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
fn the_curl_example_of_the_specification_works_on_a_fresh_install() {
    let server = TestServer::without_nodes();
    let headers = [("User-Agent", "curl/8.5.0"), ("Accept", "*/*"), ("Content-Type", "application/json")];
    let reply = server.client().send("POST", "/api/v1/jobs", &headers, CURL_BODY.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text);
    let submitted = reply.json();
    assert_eq!((submitted["job_id"].as_str(), submitted["status"].as_str()), (Some("job-1"), Some("submitted")));
    assert_eq!(reply.header("location"), "/api/v1/jobs/job-1");

    let job = server.get("/api/v1/jobs/job-1");
    assert_eq!(job["state"], "pending", "no node is registered, so the job waits");
    let expected = [
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
    for (field, value) in expected {
        assert_eq!(job[field], value, "{field}");
    }
}

#[test]
fn ten_jobs_of_rising_priority_run_highest_first() {
    let server = TestServer::with_settings(
        &[],
        Some("nodes: [{ name: n, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 1, memory_mib: 16384 } }]"),
    )
    .wait_for_gpus(1);
    // The first one takes the only GPU, so that the others queue up behind it.
    let first = server.submit(json!({"script": "x", "priority": 10_000, "annotations": {"muster.sim/runtime": "1s"}}));
    server.wait_for_state(&first, "running");
    for number in 1..=10 {
        server.submit(json!({"name": format!("job-{number}"), "gpu_count": 1, "priority": number * 100,
            "script": "nvidia-smi", "annotations": {"muster.sim/runtime": "50ms"}}));
    }
    assert_eq!(server.get("/api/v1/jobs")["total"], 11);
    server.wait_until("all to end", |server| server.get("/api/v1/jobs?state=completed")["total"] == 11);
    let list = server.get("/api/v1/jobs");
    let mut jobs: Vec<_> = list["jobs"].as_array().unwrap().clone();
    jobs.sort_by_key(|job| job["scheduled_at_ms"].as_i64());
    let names: Vec<&str> = jobs.iter().skip(1).map(|job| job["name"].as_str().unwrap()).collect();
    let expected: Vec<String> = (1..=10).rev().map(|number| format!("job-{number}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_tenant_created_as_in_the_specification_can_submit_at_once() {
    let server = TestServer::new();
    // The request of its command line: quotas that are not sent must not mean zero.
    let body = json!({"name": "ml-team", "max_gpus": 10, "priority_tier": "high", "max_cpu_cores": 64, "max_memory_mb": 256000});
    let reply = server.client().post("/api/v1/tenants", &body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    assert_eq!(reply.json()["id"], "ml-team");
    assert_eq!(reply.json()["priority_tier"], "high");
    assert_eq!(reply.json()["max_concurrent_jobs"], json!(null));
    let job = server.submit(json!({"tenant_id": "ml-team", "gpu_count": 2, "script": "true"}));
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}"))["priority"], 1000, "the tier is the default priority");
}

#[test]
fn cluster_status_counts_gpus_nodes_and_jobs() {
    let server = TestServer::new();
    server.wait_for_state(&server.submit_sleeper("1h", 3), "running");
    server.submit(json!({"gpu_count": 4, "script": "true", "priority": 1, "hold": true}));
    let ended = server.submit_sleeper("10ms", 1);
    server.wait_for_state(&ended, "completed");
    let status = server.get("/api/v1/cluster/status");
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
fn a_job_goes_from_pending_over_running_to_completed() {
    let server = TestServer::new();
    let job = server.submit_sleeper("300ms", 2);
    let running = server.wait_for_state(&job, "running");
    assert_eq!(running["allocated_gpus"].as_array().unwrap().len(), 2);
    assert!(running["node_name"].is_string());
    assert_eq!(running["queue_position"], json!(null));
    let done = server.wait_for_state(&job, "completed");
    assert_eq!((done["phase"].as_str(), done["exit_code"].as_i64()), (Some("Done"), Some(0)));
    assert_eq!(done["allocated_gpus"], json!([]));
    assert!(done["completed_at_ms"].as_i64() >= done["started_at_ms"].as_i64());
    assert!(done["gpu_hours"].as_f64().unwrap() > 0.0);
}

#[test]
fn over_quota_is_403_with_the_error_member() {
    let server = TestServer::new();
    server.client().post("/api/v1/tenants", &json!({"name": "small", "max_gpus": 5}));
    let reply = server.client().post("/api/v1/jobs", &json!({"tenant_id": "small", "gpu_count": 6, "script": "true"}));
    server.expect_problem(&reply, 403, "over-quota");
    assert_eq!(reply.json()["error"], reply.json()["detail"]);
    assert_eq!(reply.json()["hint"], "request at most 5 GPUs, or ask an admin to raise the quota");
    assert_eq!(reply.header("content-type"), "application/problem+json");
}
