//! What one caller may take of the server, and what stays for the others.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::house::House;

/// The value of a metric without labels.
fn metric(house: &House, name: &str) -> u64 {
    let text = house.client().get("/metrics").text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in {text}")).parse::<f64>().unwrap() as u64
}

#[test]
fn many_readers_share_one_copy_of_the_state() {
    let house = House::empty();
    house.submit(json!({"name": "many", "command": ["x"], "gpu_count": 1, "array": "1-3000"}));
    let before = metric(&house, "muster_journal_seq");
    let asked: Vec<_> = (1..=64)
        .map(|task| {
            let client = house.client().clone();
            std::thread::spawn(move || client.get(&format!("/api/v1/jobs/job-1.{task}/why")))
        })
        .collect();
    let mut answers: BTreeMap<u16, u64> = BTreeMap::new();
    for reply in asked.into_iter().map(|thread| thread.join().unwrap()) {
        if reply.status != 200 {
            let code = if reply.status == 429 { "too-many-evaluations" } else { "evaluations-busy" };
            house.refused(&reply, reply.status, code);
            assert!(!reply.header("retry-after").is_empty());
        }
        *answers.entry(reply.status).or_default() += 1;
    }
    let answered = answers[&200];
    assert!(answered >= 8, "a caller has eight at a time: {answers:?}");
    assert_eq!(metric(&house, "muster_reader_evaluations_total"), answered);
    assert!(metric(&house, "muster_reader_evaluations_running_max") <= 2);
    let turns = metric(&house, "muster_journal_seq") - before;
    let copies = metric(&house, "muster_reader_state_copies_total");
    assert!((1..=1 + turns).contains(&copies), "{copies} copies in {turns} turns, {answered} answers");
}

#[test]
fn a_plan_is_evaluated_on_the_newest_state_of_a_small_cluster() {
    let house = House::new();
    let job = json!({"name": "x", "command": ["x"], "gpu_count": 4, "tenant_id": "late"});
    assert_eq!(house.client().post("/api/v1/jobs/plan", &job).json()["outcome"], "refused");
    let tenant = json!({"id": "late", "name": "Late"});
    assert_eq!(house.client().post("/api/v1/tenants", &tenant).status, 201);
    assert_eq!(house.client().post("/api/v1/jobs/plan", &job).json()["outcome"], "starts");
}

/// The acts of a caller that were refused, as the audit log has them.
fn refused_acts(house: &House, actor: &str) -> Vec<Value> {
    let entries = house.get("/api/v1/audit?limit=1000")["entries"].as_array().unwrap().clone();
    entries.into_iter().filter(|entry| entry["actor"] == actor && entry["allowed"] == false).collect()
}

#[test]
fn a_flood_of_refused_acts_is_recorded_with_its_count() {
    let mut house = House::with(&[("auth.mode", "tokens"), ("api.rate_limit_rps", "0")], None);
    let token = json!({"name": "watcher", "role": "viewer", "tenant_id": "default"});
    let token = house.client().post("/api/v1/tokens", &token).json();
    let viewer = house.client().with_token(token["secret"].as_str().unwrap());
    let long = "x".repeat(8_000);
    for number in 0..100 {
        let reply = viewer.delete(&format!("/api/v1/tenants/{long}{number}"));
        house.refused(&reply, 403, "forbidden");
    }
    house.until("the first to be on record", |house| refused_acts(house, "watcher").len() == 10);
    // What was counted is recorded at the end at the latest, and read by the server that follows.
    house.stop();
    let after = house.beside();
    let acts = refused_acts(&after, "watcher");
    assert_eq!(acts.len(), 11, "{acts:?}");
    assert_eq!(acts.iter().map(|act| act["times"].as_u64().unwrap()).sum::<u64>(), 100);
    for act in acts {
        assert_eq!(act["action"], "DELETE /api/v1/tenants/{id}");
        assert!(act["object"].as_str().unwrap().chars().count() <= 201, "{act}");
    }
}

#[test]
fn a_request_with_two_hosts_is_refused() {
    let house = House::empty();
    let two = [("Host", "localhost"), ("Host", "evil.example")];
    house.refused(&house.client().send("GET", "/api/v1/whoami", &two, b""), 400, "malformed");
    let same = [("Host", "localhost"), ("Host", "localhost")];
    house.refused(&house.client().send("GET", "/api/v1/whoami", &same, b""), 400, "malformed");
    // A whole address in the request line counts, whatever the header says.
    let whole = "http://evil.example/api/v1/whoami";
    house.refused(&house.client().get_with_unchecked(whole, &[("Host", "localhost")]), 400, "malformed");
    house.refused(
        &house.client().get_with_unchecked(whole, &[("Host", "evil.example")]),
        421,
        "foreign-host",
    );
}

#[test]
fn a_tenant_cannot_fill_the_queue_and_operators_keep_room_in_it() {
    let house = House::with(
        &[
            ("auth.mode", "tokens"),
            ("scheduler.max_queue_size", "1000"),
            ("scheduler.max_jobs_per_tenant", "990"),
        ],
        None,
    );
    let admin = house.client();
    for tenant in ["red", "blue"] {
        assert_eq!(admin.post("/api/v1/tenants", &json!({"id": tenant, "name": tenant})).status, 201);
    }
    let member = json!({"name": "ada", "role": "member", "tenant_id": "red"});
    let member = admin.post("/api/v1/tokens", &member).json()["secret"].as_str().unwrap().to_string();
    let member = admin.with_token(&member);
    let array = |range: &str| json!({"name": "many", "command": ["x"], "array": range, "hold": true});
    assert_eq!(member.post("/api/v1/jobs", &array("1-985")).status, 201);
    let refused = house.refused(&member.post("/api/v1/jobs", &array("1-6")), 429, "tenant-queue-full");
    assert!(refused.contains("985") && refused.contains("990"), "{refused}");
    assert_eq!(member.post("/api/v1/jobs", &array("1-5")).status, 201);
    let one = json!({"name": "one", "command": ["x"], "tenant_id": "blue"});
    let other = json!({"name": "ben", "role": "member", "tenant_id": "blue"});
    let other = admin.post("/api/v1/tokens", &other).json()["secret"].as_str().unwrap().to_string();
    house.refused(&admin.with_token(&other).post("/api/v1/jobs", &one), 429, "queue-full");
    assert_eq!(admin.post("/api/v1/jobs", &one).status, 201, "room is kept for operators");
}

#[test]
fn ended_jobs_leave_the_memory_and_are_read_from_the_tables() {
    let house = House::with(&[("scheduler.max_remembered_jobs", "20")], None);
    let key = [("Content-Type", "application/json"), ("Idempotency-Key", "first")];
    let first = br#"{"name": "first", "command": ["x"], "hold": true}"#;
    let submitted = house.client().send("POST", "/api/v1/jobs", &key, first);
    assert_eq!(submitted.json()["job_id"], "job-1", "{}", submitted.text);
    assert_eq!(house.client().delete("/api/v1/jobs/job-1").status, 200);
    for _ in 0..3 {
        let array = json!({"name": "many", "command": ["x"], "array": "1-15", "hold": true});
        let array = house.submit(array);
        assert_eq!(house.client().delete(&format!("/api/v1/jobs/{array}")).status, 200);
    }
    house.until("ended jobs to leave the memory", |house| {
        let state = |state: &muster_core::State| (state.ended.len(), state.keys.len());
        house.cluster().read(state) <= (20, 0)
    });
    // A repeated submission finds its job, another body with the key does not.
    let again = house.client().send("POST", "/api/v1/jobs", &key, first);
    assert_eq!(again.json()["job_id"], "job-1", "{}", again.text);
    let other = house.client().send("POST", "/api/v1/jobs", &key, br#"{"name": "x", "command": ["x"]}"#);
    house.refused(&other, 409, "key-reused");
    // A dependency on it is judged by how it ended.
    let after = |rule: &str| json!({"name": "after", "command": ["x"], "after": [format!("job-1:{rule}")]});
    house.submit(after("ended"));
    house.refused(&house.client().post("/api/v1/jobs", &after("succeeded")), 422, "dead-dependency");
    house.refused(&house.client().delete("/api/v1/jobs/job-1"), 409, "wrong-phase");
    let plan = house.client().post("/api/v1/jobs/plan", &after("ended")).json();
    assert!(!plan["summary"].as_str().unwrap().contains("job-1"), "{plan}");
}
