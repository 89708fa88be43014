//! Jobs: every field, job control, arrays, dependencies, why and dry run.

use serde_json::{Value, json};

use crate::test_server::{TWO_NODES, TestServer};

/// A submission with every field.
fn job_with_every_field() -> Value {
    json!({
        "tenant_id": "default", "name": "all", "user": "ada", "priority": "high",
        "gpu_memory_mb": 4096, "gpu_models": ["H100"], "cpu_cores": 2, "memory_mb": 2048,
        "tasks": [{"name": "lead", "count": 1, "gpus": 1}, {"name": "worker", "count": 2, "gpus": 1, "cpu_cores": 4}],
        "gang_scheduling": true, "topology": "any",
        "script": "echo hi", "environment": {"A": "1"}, "image": "cuda:12", "command": ["run"], "args": ["-v"],
        "directory": "/tmp", "mounts": ["/data:/in:ro"], "time_limit": "2h30m", "signal": "USR1@300", "hold": true,
        "max_restarts": 2, "max_requeues": 3,
        "on_node_lost": "requeue", "checkpoint_enabled": true, "checkpoint_path": "/ckpt",
        "checkpoint_interval": 600, "start_after": "2026-03-01T09:00:00Z",
        "labels": {"team": "vision"}, "annotations": {"muster.sim/runtime": "1s"}
    })
}

#[test]
fn every_submitted_field_is_returned() {
    let server = TestServer::new();
    let id = server.submit(job_with_every_field());
    let job = server.get(&format!("/api/v1/jobs/{id}"));
    let expected = [
        ("id", json!("job-1")),
        ("job_id", json!("job-1")),
        ("user", json!("ada")),
        ("state", json!("pending")),
        ("phase", json!("Held")),
        ("priority", json!(1000)),
        ("gpu_count", json!(3)),
        ("gpu_memory_mb", json!(4096)),
        ("cpu_cores", json!(10)),
        ("memory_mb", json!(6144)),
        ("max_runtime_minutes", json!(150)),
        ("max_runtime", json!("2h30m")),
        ("script", json!("echo hi")),
        ("environment", json!({"A": "1"})),
        ("image", json!("cuda:12")),
        ("command", json!(["run"])),
        ("args", json!(["-v"])),
        ("directory", json!("/tmp")),
        ("mounts", json!(["/data:/in:ro"])),
        ("gang_scheduling", json!(true)),
        ("max_restarts", json!(2)),
        ("max_requeues", json!(3)),
        ("early_signal", json!("USR1@5m")),
        ("on_node_lost", json!("requeue")),
        ("checkpoint_enabled", json!(true)),
        ("checkpoint_path", json!("/ckpt")),
        ("labels", json!({"team": "vision"})),
        ("gpu_models", json!(["h100"])),
        ("preempted_count", json!(0)),
        ("logs", json!("/api/v1/jobs/job-1/logs")),
    ];
    for (field, value) in expected {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(
        job["tasks"][1],
        json!({"name": "worker", "count": 2, "gpus": 1, "gpu_models": ["h100"],
        "gpu_memory_mb": 4096, "gpu_share": 1.0, "cpu_cores": 4, "memory_mb": 2048})
    );
    assert_eq!(job["created_at"], job["submitted_at"]);
    assert_eq!(server.get("/api/v1/jobs/1")["id"], "job-1", "the bare number is the same job");
}

#[test]
fn gang_scheduling_comes_back_as_it_was_sent() {
    let server = TestServer::without_nodes();
    for (sent, shown) in [(json!(false), false), (json!(true), true), (Value::Null, true)] {
        let job = server.submit(json!({"script": "x", "hold": true, "gang_scheduling": sent}));
        assert_eq!(server.get(&format!("/api/v1/jobs/{job}"))["gang_scheduling"], shown, "sent {sent}");
    }
}

#[test]
fn job_status_shows_gpus_queue_position_forecast_and_exit_code() {
    let server = TestServer::new();
    let first = server.submit(json!({"name": "first", "script": "x", "gpu_count": 4, "time_limit": "1h",
        "annotations": {"muster.sim/runtime": "1h"}}));
    let running = server.wait_for_state(&first, "running");
    let node = running["node_name"].as_str().unwrap();
    assert_eq!(running["allocated_gpus"], json!((0..4).map(|gpu| format!("{node}/gpu-{gpu}")).collect::<Vec<_>>()));
    assert_eq!((&running["queue_position"], &running["estimated_wait"]), (&Value::Null, &Value::Null));
    assert_eq!(running["logs"], format!("/api/v1/jobs/{first}/logs"));

    // With time limits a start can be forecast before any job has ended.
    let limited = |gpus: u32| {
        server.submit(json!({"script": "x", "gpu_count": gpus, "time_limit": "1h",
            "annotations": {"muster.sim/runtime": "1h"}}))
    };
    server.wait_for_state(&limited(4), "running");
    let (second, third) = (limited(4), limited(2));
    let path = format!("/api/v1/jobs/{second}");
    server.wait_until("a forecast", |server| !server.get(&path)["estimated_wait"].is_null());
    let waiting = server.get(&path);
    assert_eq!((&waiting["state"], &waiting["node_name"]), (&json!("pending"), &Value::Null));
    assert_eq!((&waiting["queue_position"], &waiting["queue_length"]), (&json!(1), &json!(2)));
    assert_eq!(server.get(&format!("/api/v1/jobs/{third}"))["queue_position"], 2);
    // The first job may run for an hour, so the wait is between minutes and an hour, not seconds.
    let wait = waiting["estimated_wait"].as_str().unwrap();
    assert!(wait.contains('m') || wait.contains('h'), "{wait}");

    assert_eq!(server.client().delete(&format!("/api/v1/jobs/{first}")).status, 200);
    let cancelled = server.wait_for_state(&first, "cancelled");
    assert_eq!((&cancelled["message"], &cancelled["allocated_gpus"]), (&json!("cancelled by local"), &json!([])));
    assert!(cancelled["metrics"]["gpu_seconds"].as_f64() > Some(0.0), "{}", cancelled["metrics"]);
    let failing = json!({"script": "x", "priority": 9000, "gpu_count": 4,
        "annotations": {"muster.sim/runtime": "10ms", "muster.sim/exit-code": "3"}});
    let failed = server.wait_for_state(&server.submit(failing), "failed");
    assert_eq!((&failed["exit_code"], &failed["signal"]), (&json!(3), &Value::Null));
    server.expect_problem(&server.client().get("/api/v1/jobs/99"), 404, "unknown-job");
}

#[test]
fn a_retry_with_the_same_key_makes_no_second_job() {
    let server = TestServer::without_nodes();
    let send = |key: &str, body: &str| {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
        server.client().send("POST", "/api/v1/jobs", &headers, body.as_bytes())
    };
    let first = send("k1", r#"{"script":"a"}"#);
    let again = send("k1", r#"{"script":"a"}"#);
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.json()["job_id"], again.json()["job_id"]);
    server.expect_problem(&send("k1", r#"{"script":"b"}"#), 409, "key-reused");
    assert_eq!(send("k2", r#"{"script":"a"}"#).json()["job_id"], "job-2");
    assert_eq!(server.get("/api/v1/jobs")["total"], 2);
    server.expect_problem(&send(&"k".repeat(256), r#"{"script":"a"}"#), 422, "invalid");
}

#[test]
fn many_retries_at_once_make_one_job() {
    let server = TestServer::without_nodes();
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "same")];
    let ids: Vec<String> = std::thread::scope(|scope| {
        let send = || {
            server.client().send("POST", "/api/v1/jobs", &headers, br#"{"script":"a"}"#).json()["job_id"].to_string()
        };
        let requests: Vec<_> = (0..16).map(|_| scope.spawn(send)).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(server.get("/api/v1/jobs")["total"], 1);
}

#[test]
fn a_waiting_job_is_held_released_changed_and_cancelled() {
    let server = TestServer::without_nodes();
    let id = server.submit(json!({"script": "true"}));
    let path = format!("/api/v1/jobs/{id}");
    let post = |verb: &str, body: Value| server.client().post(&format!("{path}/{verb}"), &body);

    assert_eq!(post("hold", json!({"why": "not now"})).status, 200);
    let held = server.get(&path);
    assert_eq!((held["phase"].as_str(), held["reasons"][0]["reason"].as_str()), (Some("Held"), Some("Held")));
    assert_eq!(held["reasons"][0]["sentence"], "held by local: not now");
    assert_eq!(server.client().send("POST", &format!("{path}/release"), &[], b"").status, 200);
    server.expect_problem(&post("release", json!({})), 409, "wrong-phase");
    server.expect_problem(&post("requeue", json!({})), 409, "wrong-phase");

    let change = json!({"name": "other", "priority": "critical", "time_limit": 60, "labels": {"a": "b"}});
    assert_eq!(server.client().patch(&path, &change).status, 200);
    let job = server.get(&path);
    assert_eq!(
        (job["name"].as_str(), job["priority"].as_u64(), job["time_limit_ms"].as_i64()),
        (Some("other"), Some(5000), Some(60_000))
    );
    assert_eq!(server.client().patch(&path, &json!({"time_limit": null})).status, 200);
    assert_eq!(server.get(&path)["time_limit_ms"], json!(null));
    assert_eq!(server.get(&path)["name"], "other", "fields that are not sent stay");

    let cancelled = server.client().delete(&path);
    assert_eq!((cancelled.status, cancelled.json()["message"].as_str()), (200, Some("`job-1` is cancelled")));
    assert_eq!(
        (cancelled.json()["phase"].as_str(), cancelled.json()["stopping"].as_u64()),
        (Some("Cancelled"), Some(0))
    );
    assert_eq!(server.get(&path)["state"], "cancelled");
    server.expect_problem(&server.client().delete(&path), 409, "wrong-phase");
    server.expect_problem(&server.client().patch(&path, &json!({"name": "x"})), 409, "wrong-phase");
}

/// With this setting the server keeps no ended job in memory, so the outcome comes from the tables.
#[test]
fn an_ended_job_that_left_memory_is_not_cancelled_again() {
    let server = TestServer::with_settings(&[("scheduler.max_remembered_jobs", "0")], None);
    let path = format!("/api/v1/jobs/{}", server.submit(json!({"script": "true"})));
    assert_eq!(server.client().delete(&path).status, 200);
    server.wait_until("the job to leave memory", |server| {
        server.cluster().read(|state| state.ended.is_empty() && state.jobs.is_empty())
    });
    server.expect_problem(&server.client().delete(&path), 409, "wrong-phase");
    server.expect_problem(&server.client().delete("/api/v1/jobs/job-99"), 404, "unknown-job");
}

#[test]
fn a_running_job_is_requeued_and_cancelled() {
    let server = TestServer::new();
    let id = server.submit_sleeper("1h", 1);
    server.wait_for_state(&id, "running");
    let path = format!("/api/v1/jobs/{id}");
    assert_eq!(server.client().post(&format!("{path}/requeue"), &json!({})).status, 200);
    server.wait_until("a second attempt", |server| {
        let job = server.get(&path);
        job["attempts"] == 2 && job["state"] == "running"
    });
    let attempts = server.get(&format!("{path}/attempts"));
    assert_eq!(
        (attempts["attempts"][0]["state"].as_str(), attempts["attempts"][0]["stop_cause"].as_str()),
        (Some("Requeued"), Some("requeued"))
    );
    let reply = server.client().delete(&path);
    assert_eq!(
        (reply.status, reply.json()["phase"].as_str(), reply.json()["stopping"].as_u64()),
        (200, Some("Stopping"), Some(1))
    );
    let message = reply.json()["message"].as_str().unwrap_or_default().to_string();
    assert!(
        message.contains("is stopping") && message.contains("unless its processes had already exited"),
        "{message}"
    );
    let job = server.wait_for_state(&id, "cancelled");
    assert_eq!(job["requeue_count"], 1);
}

/// The victim ignores the stop signal: without the checkpoint report it would keep its GPUs for the ten minutes of
/// grace.
#[test]
fn a_victim_that_reports_a_checkpoint_is_stopped_before_its_grace_ends() {
    let server = TestServer::with_settings(&[("scheduler.stop_grace", "10m")], Some(TWO_NODES)).wait_for_gpus(8);
    let gang = |priority: u32, annotations: Value| {
        server.submit(json!({"command": ["train"], "tasks": [{"count": 2, "gpus": 4}], "priority": priority,
            "annotations": annotations}))
    };
    let victim = gang(100, json!({"muster.sim/runtime": "1h", "muster.sim/ignore-stop": "true"}));
    server.wait_for_state(&victim, "running");
    let urgent = gang(500, json!({"muster.sim/runtime": "1h"}));
    let path = format!("/api/v1/jobs/{victim}");
    server.wait_until("the stop of the victim", |server| server.get(&path)["phase"] == "Stopping");
    assert_eq!(server.client().post(&format!("{path}/checkpoint"), &json!({})).status, 200);
    server.wait_for_state(&urgent, "running");
    let receipt = &server.get(&format!("{path}/receipts"))["lost"][0];
    let at = |field: &str| receipt[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(at("asked_at") <= at("saved_at") && at("saved_at") < at("gone_at"), "{receipt}");
}

#[test]
fn an_array_is_one_submission_and_many_tasks() {
    let server = TestServer::new();
    let id = server.submit(json!({"script": "true", "array": "0-5%2", "annotations": {"muster.sim/runtime": "50ms"}}));
    let whole = server.get(&format!("/api/v1/jobs/{id}"));
    let counts: u64 = whole["array"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!((whole["id"].as_str(), counts), (Some("job-1"), 6));
    server.wait_until("all tasks", |server| server.get("/api/v1/jobs?array=1&state=completed")["total"] == 6);
    let whole = server.get(&format!("/api/v1/jobs/{id}"));
    assert_eq!(
        (whole["state"].as_str(), whole["message"].as_str()),
        (Some("completed"), Some("array of 6 tasks: 6 completed"))
    );
    assert_eq!(server.get("/api/v1/jobs/job-1.3")["state"], "completed");
    server.expect_problem(&server.client().get("/api/v1/jobs/job-1.6"), 404, "unknown-job");
}

#[test]
fn dependencies_are_accepted_as_text_or_object_and_checked() {
    let server = TestServer::new();
    let first = server
        .submit(json!({"script": "true", "annotations": {"muster.sim/runtime": "10ms", "muster.sim/exit-code": "3"}}));
    server.wait_for_state(&first, "failed");
    let after =
        |after: Value| server.client().post("/api/v1/jobs", &json!({"script": "true", "hold": true, "after": [after]}));
    assert_eq!(after(json!("job-1:failed")).status, 201);
    assert_eq!(after(json!({"job": "1", "when": "ended"})).status, 201);
    server.expect_problem(&after(json!("job-1")), 422, "dead-dependency");
    server.expect_problem(&after(json!("job-99:ended")), 404, "unknown-job");
    server.expect_problem(&after(json!("job-1:sometimes")), 422, "invalid");
    server.expect_problem(&after(json!(7)), 400, "malformed");
    assert_eq!(server.get("/api/v1/jobs/job-2")["after"], json!(["job-1:failed"]));
}

#[test]
fn why_names_every_blocker() {
    let server = TestServer::new();
    for _ in 0..2 {
        server.wait_for_state(&server.submit_sleeper("1h", 4), "running");
    }
    let waiting = server.submit_sleeper("1h", 2);
    server.wait_until("a verdict", |server| {
        server.get(&format!("/api/v1/jobs/{waiting}/why"))["reasons"][0]["reason"] == "Capacity"
    });
    let why = server.get(&format!("/api/v1/jobs/{waiting}/why"));
    assert_eq!(why["reasons"][0]["sentence"], "needs 2 GPUs; 0 eligible GPUs are free");
    assert_eq!((why["queue_position"].as_u64(), why["queue_length"].as_u64()), (Some(1), Some(1)));
    assert_eq!(why["effective_priority"], 100);
    assert_eq!(server.get(&format!("/api/v1/jobs/{waiting}"))["reasons"][0]["reason"], "Capacity");

    let running = server.get("/api/v1/jobs/job-1/why");
    assert_eq!((running["reasons"].as_array().unwrap().len(), running["state"].as_str()), (0, Some("running")));
    server.client().delete(&format!("/api/v1/jobs/{waiting}"));
    let ended = server.get(&format!("/api/v1/jobs/{waiting}/why"));
    assert_eq!(ended["summary"], "does not wait: it has ended as Cancelled: cancelled by local");
    server.expect_problem(&server.client().get("/api/v1/jobs/job-9/why"), 404, "unknown-job");
}

#[test]
fn a_checkpoint_of_a_job_that_does_not_run_is_refused() {
    let server = TestServer::new();
    let report = |job: &str, state: &str| {
        let answer = server.client().post(&format!("/api/v1/jobs/{job}/checkpoint"), &json!({}));
        let detail = server.expect_problem(&answer, 409, "wrong-phase");
        assert_eq!(detail, format!("`{job}` is {state}; checkpoint needs a job that is running"));
    };
    for _ in 0..2 {
        server.wait_for_state(&server.submit_sleeper("1h", 4), "running");
    }
    let waiting = server.submit_sleeper("1h", 2);
    report(&waiting, "Queued");
    server.client().delete(&format!("/api/v1/jobs/{waiting}"));
    report(&waiting, "Cancelled");
}

#[test]
fn plan_says_what_would_happen_and_changes_nothing() {
    let server = TestServer::new();
    let plan = |body: Value| {
        let reply = server.client().post("/api/v1/jobs/plan", &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let starts = plan(json!({"script": "true", "gpu_count": 2}));
    assert_eq!((starts["outcome"].as_str(), starts["gpus"].as_array().unwrap().len()), (Some("starts"), 2));
    for _ in 0..2 {
        server.wait_for_state(&server.submit_sleeper("1h", 4), "running");
    }
    let waits = plan(json!({"script": "true", "gpu_count": 2}));
    assert_eq!((waits["outcome"].as_str(), waits["queue_position"].as_u64()), (Some("waits"), Some(1)));
    assert_eq!(waits["reasons"][0]["reason"], "Capacity");
    let preempts = plan(json!({"script": "true", "gpu_count": 2, "priority": 9000}));
    assert_eq!((preempts["outcome"].as_str(), preempts["victims"].as_array().unwrap().len()), (Some("preempts"), 1));
    let refused = plan(json!({"script": "true", "gpu_count": 9}));
    assert_eq!(
        (refused["outcome"].as_str(), refused["refusal"]["code"].as_str()),
        (Some("refused"), Some("infeasible"))
    );
    assert_eq!(server.get("/api/v1/jobs")["total"], 2);
}
