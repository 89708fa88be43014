//! What is told while jobs run, wait again, or hold a GPU that is declared unhealthy.

use serde_json::{Value, json};

use crate::house::House;

/// A job that runs long, on so many GPUs, in a tenant.
fn long(house: &House, tenant: &str, user: &str, gpus: u32) -> String {
    let job = house.submit(json!({"tenant_id": tenant, "user": user, "command": ["x"], "gpu_count": gpus,
        "annotations": {"muster.sim/runtime": "10m"}}));
    house.until_state(&job, "running");
    job
}

fn now_ms(house: &House) -> u64 {
    house.get("/api/v1/cluster/status")["time_ms"].as_u64().unwrap()
}

/// GPU-milliseconds that these jobs have held until a moment, from what is told of their attempts.
fn held_gpu_ms(house: &House, jobs: &[&str], until_ms: u64) -> u64 {
    let of_job = |job: &&str| {
        let attempts = house.get(&format!("/api/v1/jobs/{job}/attempts"));
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
fn usage_counts_what_runs() {
    let house = House::new();
    let price = json!({"name": "red", "billing_enabled": true, "cost_per_gpu_hour": 3600.0});
    assert_eq!(house.client().post("/api/v1/tenants", &price).status, 201);
    let short = house.submit(json!({"tenant_id": "red", "user": "ada", "command": ["x"], "gpu_count": 2,
        "annotations": {"muster.sim/runtime": "200ms"}}));
    house.until_state(&short, "completed");
    let mine = long(&house, "red", "ada", 4);
    let theirs = long(&house, "default", "bob", 3);
    for (by, key, jobs) in [
        ("tenant", "red", vec![short.as_str(), mine.as_str()]),
        ("tenant", "default", vec![theirs.as_str()]),
        ("user", "ada", vec![&short, &mine]),
        ("job", mine.as_str(), vec![&mine]),
    ] {
        let before = held_gpu_ms(&house, &jobs, now_ms(&house));
        let report = house.get(&format!("/api/v1/usage?by={by}"));
        let after = held_gpu_ms(&house, &jobs, now_ms(&house));
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        let used = row["gpu_ms"].as_u64().unwrap();
        assert!((before..=after).contains(&used), "{by} {key}: {used} is not within {before}..={after}");
        assert_eq!(row["running_attempts"], 1, "{by} {key}");
        if by == "tenant" && key == "red" {
            let cost = row["cost"].as_f64().unwrap();
            assert!((before as f64..=after as f64).contains(&(cost * 1e3)), "one a GPU-second: {cost}");
        }
        let sum: u64 =
            report["rows"].as_array().unwrap().iter().map(|row| row["gpu_ms"].as_u64().unwrap()).sum();
        assert_eq!(report["total"]["gpu_ms"], sum);
    }
    let (before, tenant) =
        (held_gpu_ms(&house, &[&short, &mine], now_ms(&house)), house.get("/api/v1/tenants/red"));
    assert!(tenant["total_gpu_hours"].as_f64().unwrap() * 3.6e6 >= before as f64 - 1.0, "{tenant}");
    let job = house.get(&format!("/api/v1/jobs/{mine}"));
    assert!(job["gpu_hours"].as_f64().unwrap() > 0.0, "{job}");
    let past = house.get(&format!("/api/v1/usage?to={}", now_ms(&house) - 1));
    assert_eq!((&past["total"]["running_attempts"], &past["includes_running"]), (&json!(0), &json!(false)));
}

#[test]
fn a_job_that_waits_again_does_not_tell_of_its_former_attempt() {
    let house = House::new();
    let victim = long(&house, "default", "ada", 4);
    let other = long(&house, "default", "ada", 4);
    let strong = house.submit(json!({"command": ["x"], "tasks": [{"count": 2, "gpus": 4}],
        "priority": "critical", "annotations": {"muster.sim/runtime": "10m"}}));
    house.until_state(&strong, "running");
    for job in [&victim, &other] {
        let waits = house.until_state(job, "preempted");
        for field in ["started_at", "scheduled_at", "actual_duration", "node_name", "exit_code", "signal"] {
            assert_eq!(waits[field], Value::Null, "{field} is of the former attempt: {waits}");
        }
        assert_eq!((&waits["nodes"], &waits["preempted_count"]), (&json!([]), &json!(1)));
        let attempts = house.get(&format!("/api/v1/jobs/{job}/attempts"));
        let former = &attempts["attempts"][0];
        assert_eq!((&former["state"], former["started_at"].is_string()), (&json!("Preempted"), true));
    }
}

#[test]
fn an_unhealthy_gpu_names_the_jobs_on_it() {
    let house = House::new();
    let job = long(&house, "default", "ada", 2);
    let gpus = house.get(&format!("/api/v1/jobs/{job}"))["allocated_gpus"].clone();
    let path = |place: usize| {
        let (node, gpu) = gpus[place].as_str().unwrap().split_once('/').unwrap();
        format!("/api/v1/gpus/{node}/{gpu}/health")
    };
    let declare = |place: usize, rule: Value| {
        let reply =
            house.client().post(&path(place), &json!({"health": "unhealthy", "why": "XID 79", "jobs": rule}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let kept = declare(0, Value::Null);
    assert_eq!((&kept["jobs"], &kept["jobs_rule"]), (&json!([job]), &json!("keep")));
    assert_eq!(house.get(&format!("/api/v1/jobs/{job}"))["phase"], "Running");
    let moved = declare(0, json!("requeue"));
    assert_eq!((&moved["jobs"], &moved["jobs_rule"]), (&json!([job]), &json!("requeue")));
    house.until("the job to run elsewhere", |house| {
        let again = house.get(&format!("/api/v1/jobs/{job}"));
        again["attempts"] == 2 && again["state"] == "running" && again["requeue_count"] == 1
    });
    let again = house.get(&format!("/api/v1/jobs/{job}"));
    assert!(!again["allocated_gpus"].as_array().unwrap().contains(&gpus[0]), "{again}");
    let events = house.get("/api/v1/jobs/1/events?limit=1000");
    assert!(events["events"].as_array().unwrap().iter().any(|event| event["kind"] == "AttemptStopping"));
    let audit = house.get("/api/v1/audit?limit=10");
    let acts: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter_map(|one| one["object"].as_str()).collect();
    let declared = format!("{} (jobs: requeue)", gpus[0].as_str().unwrap());
    assert!(acts.contains(&declared.as_str()), "{acts:?}");
    let reply = house.client().post(&path(0), &json!({"health": "unhealthy", "jobs": "eat"}));
    assert!(house.refused(&reply, 422, "invalid").contains("none of keep, requeue, stop"));
}

#[test]
fn a_tenant_is_not_guaranteed_more_than_it_may_hold() {
    let house = House::new();
    let create = |body: Value| house.client().post("/api/v1/tenants", &body);
    let reply = create(json!({"name": "red", "max_gpus": 4, "guaranteed_gpus": 5}));
    assert!(house.refused(&reply, 422, "invalid").contains("5 GPUs are more than the tenant's maximum of 4"));
    let reply = create(
        json!({"name": "red", "max_gpus_by_model": {"h100": 1}, "guaranteed_gpus_by_model": {"h100": 2}}),
    );
    house.refused(&reply, 422, "invalid");
    let made = create(json!({"name": "red", "max_gpus": 4, "guaranteed_gpus": 4}));
    assert_eq!((made.status, &made.json()["warnings"]), (201, &Value::Null));
    let reply = house.client().patch("/api/v1/tenants/red", &json!({"max_gpus": 3}));
    house.refused(&reply, 422, "invalid");
    let made = create(json!({"name": "blue", "guaranteed_gpus": 9, "guaranteed_gpus_by_model": {"a100": 1}}));
    let warnings = json!([
        "GPUs: 9 guaranteed, the cluster has 8",
        "GPUs of model a100: 1 guaranteed, the cluster has 0"
    ]);
    assert_eq!((made.status, &made.json()["warnings"]), (201, &warnings));
}
