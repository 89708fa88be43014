//! Usage of running attempts, requeued jobs, and jobs on a GPU that is declared unhealthy.

use serde_json::{Value, json};

use crate::test_server::TestServer;

/// Submit a long job and wait until it runs.
fn submit_running_job(server: &TestServer, tenant: &str, user: &str, gpus: u32) -> String {
    let job = server.submit(json!({"tenant_id": tenant, "user": user, "command": ["x"], "gpu_count": gpus,
        "annotations": {"muster.sim/runtime": "10m"}}));
    server.wait_for_state(&job, "running");
    job
}

fn now_ms(server: &TestServer) -> u64 {
    server.get("/api/v1/cluster/status")["time_ms"].as_u64().unwrap()
}

/// GPU-milliseconds that these jobs have held until a time, computed from their attempts.
fn held_gpu_ms_of_attempts(server: &TestServer, jobs: &[&str], until_ms: u64) -> u64 {
    let of_job = |job: &&str| {
        let attempts = server.get(&format!("/api/v1/jobs/{job}/attempts"));
        let attempts = attempts["attempts"].as_array().unwrap().iter();
        let of_attempt = |attempt: &Value| {
            let end = attempt["ended_at_ms"].as_u64().unwrap_or(until_ms);
            attempt["gpu_count"].as_u64().unwrap() * (end - attempt["placed_at_ms"].as_u64().unwrap())
        };
        attempts.map(of_attempt).sum::<u64>()
    };
    jobs.iter().map(of_job).sum()
}

#[test]
fn usage_includes_running_attempts() {
    let server = TestServer::new();
    let price = json!({"name": "red", "billing_enabled": true, "cost_per_gpu_hour": 3600.0});
    assert_eq!(server.client().post("/api/v1/tenants", &price).status, 201);
    let short = server.submit(json!({"tenant_id": "red", "user": "ada", "command": ["x"], "gpu_count": 2,
        "annotations": {"muster.sim/runtime": "200ms"}}));
    server.wait_for_state(&short, "completed");
    let mine = submit_running_job(&server, "red", "ada", 4);
    let theirs = submit_running_job(&server, "default", "bob", 3);
    for (by, key, jobs) in [
        ("tenant", "red", vec![short.as_str(), mine.as_str()]),
        ("tenant", "default", vec![theirs.as_str()]),
        ("user", "ada", vec![&short, &mine]),
        ("job", mine.as_str(), vec![&mine]),
    ] {
        let before = held_gpu_ms_of_attempts(&server, &jobs, now_ms(&server));
        let report = server.get(&format!("/api/v1/usage?by={by}"));
        let after = held_gpu_ms_of_attempts(&server, &jobs, now_ms(&server));
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        let used = row["gpu_ms"].as_u64().unwrap();
        assert!((before..=after).contains(&used), "{by} {key}: {used} is not within {before}..={after}");
        assert_eq!(row["running_attempts"], 1, "{by} {key}");
        if by == "tenant" && key == "red" {
            let cost = row["cost"].as_f64().unwrap();
            assert!((before as f64..=after as f64).contains(&(cost * 1e3)), "one a GPU-second: {cost}");
        }
        let sum: u64 = report["rows"].as_array().unwrap().iter().map(|row| row["gpu_ms"].as_u64().unwrap()).sum();
        assert_eq!(report["total"]["gpu_ms"], sum);
    }
    let (before, tenant) =
        (held_gpu_ms_of_attempts(&server, &[&short, &mine], now_ms(&server)), server.get("/api/v1/tenants/red"));
    assert!(tenant["total_gpu_hours"].as_f64().unwrap() * 3.6e6 >= before as f64 - 1.0, "{tenant}");
    let job = server.get(&format!("/api/v1/jobs/{mine}"));
    assert!(job["gpu_hours"].as_f64().unwrap() > 0.0, "{job}");
    let past = server.get(&format!("/api/v1/usage?to={}", now_ms(&server) - 1));
    assert_eq!((&past["total"]["running_attempts"], &past["includes_running"]), (&json!(0), &json!(false)));
}

#[test]
fn a_preempted_job_shows_no_start_node_or_exit_of_its_former_attempt() {
    let server = TestServer::new();
    let victim = submit_running_job(&server, "default", "ada", 4);
    let other = submit_running_job(&server, "default", "ada", 4);
    let strong = server.submit(json!({"command": ["x"], "tasks": [{"count": 2, "gpus": 4}],
        "priority": "critical", "annotations": {"muster.sim/runtime": "10m"}}));
    server.wait_for_state(&strong, "running");
    for job in [&victim, &other] {
        let waits = server.wait_for_state(job, "preempted");
        for field in ["started_at", "scheduled_at", "actual_duration", "node_name", "exit_code", "signal"] {
            assert_eq!(waits[field], Value::Null, "{field} is of the former attempt: {waits}");
        }
        assert_eq!((&waits["nodes"], &waits["preempted_count"]), (&json!([]), &json!(1)));
        let attempts = server.get(&format!("/api/v1/jobs/{job}/attempts"));
        let former = &attempts["attempts"][0];
        assert_eq!((&former["state"], former["started_at"].is_string()), (&json!("Preempted"), true));
    }
}

#[test]
fn declaring_a_gpu_unhealthy_names_its_jobs_and_applies_the_jobs_rule() {
    let server = TestServer::new();
    let job = submit_running_job(&server, "default", "ada", 2);
    let gpus = server.get(&format!("/api/v1/jobs/{job}"))["allocated_gpus"].clone();
    let path = |index: usize| {
        let (node, gpu) = gpus[index].as_str().unwrap().split_once('/').unwrap();
        format!("/api/v1/gpus/{node}/{gpu}/health")
    };
    let declare = |index: usize, rule: Value| {
        let reply = server.client().post(&path(index), &json!({"health": "unhealthy", "why": "XID 79", "jobs": rule}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let kept = declare(0, Value::Null);
    assert_eq!((&kept["jobs"], &kept["jobs_rule"]), (&json!([job]), &json!("keep")));
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}"))["phase"], "Running");
    let moved = declare(0, json!("requeue"));
    assert_eq!((&moved["jobs"], &moved["jobs_rule"]), (&json!([job]), &json!("requeue")));
    server.wait_until("the job to run elsewhere", |server| {
        let again = server.get(&format!("/api/v1/jobs/{job}"));
        again["attempts"] == 2 && again["state"] == "running" && again["requeue_count"] == 1
    });
    let again = server.get(&format!("/api/v1/jobs/{job}"));
    assert!(!again["allocated_gpus"].as_array().unwrap().contains(&gpus[0]), "{again}");
    let events = server.get("/api/v1/jobs/1/events?limit=1000");
    assert!(events["events"].as_array().unwrap().iter().any(|event| event["kind"] == "AttemptStopping"));
    let audit = server.get("/api/v1/audit?limit=10");
    let acts: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter_map(|one| one["object"].as_str()).collect();
    let declared = format!("{} (jobs: requeue)", gpus[0].as_str().unwrap());
    assert!(acts.contains(&declared.as_str()), "{acts:?}");
    let reply = server.client().post(&path(0), &json!({"health": "unhealthy", "jobs": "eat"}));
    assert!(server.expect_problem(&reply, 422, "invalid").contains("none of keep, requeue, stop"));
}
