//! Limits of the server per caller: evaluations, audit entries, queued jobs, remembered jobs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::test_server::TestServer;

/// The value of a metric without labels.
fn metric_value(server: &TestServer, name: &str) -> u64 {
    let text = server.client().get("/metrics").text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in {text}")).parse::<f64>().unwrap() as u64
}

#[test]
fn many_readers_share_one_copy_of_the_state() {
    let server = TestServer::without_nodes();
    server.submit(json!({"name": "many", "command": ["x"], "gpu_count": 1, "array": "1-3000"}));
    let before = metric_value(&server, "muster_journal_seq");
    let requests: Vec<_> = (1..=64)
        .map(|task| {
            let client = server.client().clone();
            std::thread::spawn(move || client.get(&format!("/api/v1/jobs/job-1.{task}/why")))
        })
        .collect();
    let mut replies: BTreeMap<u16, u64> = BTreeMap::new();
    for reply in requests.into_iter().map(|thread| thread.join().unwrap()) {
        if reply.status != 200 {
            let code = if reply.status == 429 { "too-many-evaluations" } else { "evaluations-busy" };
            server.expect_problem(&reply, reply.status, code);
            assert!(!reply.header("retry-after").is_empty());
        }
        *replies.entry(reply.status).or_default() += 1;
    }
    let answered = replies[&200];
    assert!(answered >= 8, "a caller may run eight evaluations at a time: {replies:?}");
    assert_eq!(metric_value(&server, "muster_reader_evaluations_total"), answered);
    assert!(metric_value(&server, "muster_reader_evaluations_running_max") <= 2);
    let turns = metric_value(&server, "muster_journal_seq") - before;
    let copies = metric_value(&server, "muster_reader_state_copies_total");
    assert!((1..=1 + turns).contains(&copies), "{copies} copies in {turns} turns, {answered} responses");
}

#[test]
fn a_plan_is_evaluated_on_the_newest_state_of_a_small_cluster() {
    let server = TestServer::new();
    let job = json!({"name": "x", "command": ["x"], "gpu_count": 4, "tenant_id": "late"});
    assert_eq!(server.client().post("/api/v1/jobs/plan", &job).json()["outcome"], "refused");
    let tenant = json!({"id": "late", "name": "Late"});
    assert_eq!(server.client().post("/api/v1/tenants", &tenant).status, 201);
    assert_eq!(server.client().post("/api/v1/jobs/plan", &job).json()["outcome"], "starts");
}

/// The refused acts of a caller in the audit log.
fn refused_audit_entries(server: &TestServer, actor: &str) -> Vec<Value> {
    let entries = server.get("/api/v1/audit?limit=1000")["entries"].as_array().unwrap().clone();
    entries.into_iter().filter(|entry| entry["actor"] == actor && entry["allowed"] == false).collect()
}

#[test]
fn a_flood_of_refused_acts_is_recorded_with_its_count() {
    let mut server = TestServer::with_settings(&[("auth.mode", "tokens"), ("api.rate_limit_rps", "0")], None);
    let token = json!({"name": "watcher", "role": "viewer", "tenant_id": "default"});
    let token = server.client().post("/api/v1/tokens", &token).json();
    let viewer = server.client().with_token(token["secret"].as_str().unwrap());
    let long = "x".repeat(8_000);
    for number in 0..100 {
        let reply = viewer.delete(&format!("/api/v1/tenants/{long}{number}"));
        server.expect_problem(&reply, 403, "forbidden");
    }
    server.wait_until("the first entries of the audit log", |server| {
        refused_audit_entries(server, "watcher").len() == 10
    });
    // The remaining count is recorded when the server stops at the latest; the next server reads it.
    server.stop();
    let after = server.second_server();
    let acts = refused_audit_entries(&after, "watcher");
    assert_eq!(acts.len(), 11, "{acts:?}");
    assert_eq!(acts.iter().map(|act| act["times"].as_u64().unwrap()).sum::<u64>(), 100);
    for act in acts {
        assert_eq!(act["action"], "DELETE /api/v1/tenants/{id}");
        assert!(act["object"].as_str().unwrap().chars().count() <= 201, "{act}");
    }
}

#[test]
fn a_request_with_two_host_headers_is_refused() {
    let server = TestServer::without_nodes();
    let two = [("Host", "localhost"), ("Host", "evil.example")];
    server.expect_problem(&server.client().send("GET", "/api/v1/whoami", &two, b""), 400, "malformed");
    let same = [("Host", "localhost"), ("Host", "localhost")];
    server.expect_problem(&server.client().send("GET", "/api/v1/whoami", &same, b""), 400, "malformed");
    // An absolute URI in the request line takes precedence over the header.
    let whole = "http://evil.example/api/v1/whoami";
    server.expect_problem(
        &server.client().get_with_headers_unchecked(whole, &[("Host", "localhost")]),
        400,
        "malformed",
    );
    server.expect_problem(
        &server.client().get_with_headers_unchecked(whole, &[("Host", "evil.example")]),
        421,
        "foreign-host",
    );
}

#[test]
fn queued_jobs_are_limited_per_tenant_and_room_is_kept_for_operators() {
    let server = TestServer::with_settings(
        &[("auth.mode", "tokens"), ("scheduler.max_queue_size", "1000"), ("scheduler.max_jobs_per_tenant", "990")],
        None,
    );
    let admin = server.client();
    for tenant in ["red", "blue"] {
        assert_eq!(admin.post("/api/v1/tenants", &json!({"id": tenant, "name": tenant})).status, 201);
    }
    let member = json!({"name": "ada", "role": "member", "tenant_id": "red"});
    let member = admin.post("/api/v1/tokens", &member).json()["secret"].as_str().unwrap().to_string();
    let member = admin.with_token(&member);
    let array = |range: &str| json!({"name": "many", "command": ["x"], "array": range, "hold": true});
    assert_eq!(member.post("/api/v1/jobs", &array("1-985")).status, 201);
    let refused = server.expect_problem(&member.post("/api/v1/jobs", &array("1-6")), 429, "tenant-queue-full");
    assert!(refused.contains("985") && refused.contains("990"), "{refused}");
    assert_eq!(member.post("/api/v1/jobs", &array("1-5")).status, 201);
    let one = json!({"name": "one", "command": ["x"], "tenant_id": "blue"});
    let other = json!({"name": "ben", "role": "member", "tenant_id": "blue"});
    let other = admin.post("/api/v1/tokens", &other).json()["secret"].as_str().unwrap().to_string();
    server.expect_problem(&admin.with_token(&other).post("/api/v1/jobs", &one), 429, "queue-full");
    assert_eq!(admin.post("/api/v1/jobs", &one).status, 201, "room is kept for operators");
}

#[test]
fn ended_jobs_leave_memory_and_are_read_from_the_tables() {
    let server = TestServer::with_settings(&[("scheduler.max_remembered_jobs", "20")], None);
    let key = [("Content-Type", "application/json"), ("Idempotency-Key", "first")];
    let first = br#"{"name": "first", "command": ["x"], "hold": true}"#;
    let submitted = server.client().send("POST", "/api/v1/jobs", &key, first);
    assert_eq!(submitted.json()["job_id"], "job-1", "{}", submitted.text);
    assert_eq!(server.client().delete("/api/v1/jobs/job-1").status, 200);
    for _ in 0..3 {
        let array = json!({"name": "many", "command": ["x"], "array": "1-15", "hold": true});
        let array = server.submit(array);
        assert_eq!(server.client().delete(&format!("/api/v1/jobs/{array}")).status, 200);
    }
    server.wait_until("ended jobs to leave the memory", |server| {
        let state = |state: &muster_core::State| (state.ended.len(), state.keys.len());
        server.cluster().read(state) <= (20, 0)
    });
    // A repeated submission returns its job; the key with another body is refused.
    let again = server.client().send("POST", "/api/v1/jobs", &key, first);
    assert_eq!(again.json()["job_id"], "job-1", "{}", again.text);
    let other = server.client().send("POST", "/api/v1/jobs", &key, br#"{"name": "x", "command": ["x"]}"#);
    server.expect_problem(&other, 409, "key-reused");
    // A dependency on the job uses its outcome from the tables.
    let after = |rule: &str| json!({"name": "after", "command": ["x"], "after": [format!("job-1:{rule}")]});
    server.submit(after("ended"));
    server.expect_problem(&server.client().post("/api/v1/jobs", &after("succeeded")), 422, "dead-dependency");
    server.expect_problem(&server.client().delete("/api/v1/jobs/job-1"), 409, "wrong-phase");
    let plan = server.client().post("/api/v1/jobs/plan", &after("ended")).json();
    assert!(!plan["summary"].as_str().unwrap().contains("job-1"), "{plan}");
}
