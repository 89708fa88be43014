//! Tenants: every field there and back, quotas, and what may not be removed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::house::House;

/// The fields that the API document names for the body of a request.
fn fields_of(house: &House, schema: &str) -> BTreeSet<String> {
    let document = house.get("/api/v1/openapi.json");
    let properties = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

fn keys(body: &Value) -> BTreeSet<String> {
    body.as_object().unwrap().keys().cloned().collect()
}

fn create(house: &House, body: Value) -> Value {
    let reply = house.client().post("/api/v1/tenants", &body);
    assert_eq!(reply.status, 201, "{body}: {}", reply.text);
    reply.json()
}

#[test]
fn every_field_comes_back() {
    let house = House::empty();
    create(&house, json!({"name": "Research"}));
    let amounts = json!({
        "max_gpus": 10, "max_gpu_memory_mb": 800000, "max_cpu_cores": 64, "max_memory_mb": 256000,
        "max_gpus_per_user": 4, "max_gpu_memory_mb_per_user": 320000, "max_cpu_cores_per_user": 16,
        "max_memory_mb_per_user": 64000, "max_concurrent_jobs_per_user": 5,
        "max_concurrent_jobs": 20, "max_gpus_by_model": {"h100": 4}, "guaranteed_gpus": 2,
        "guaranteed_gpu_memory_mb": 160000, "guaranteed_cpu_cores": 8, "guaranteed_memory_mb": 32000,
        "guaranteed_concurrent_jobs": 1, "guaranteed_gpus_by_model": {"a100": 1, "h100": 2},
        "budget_gpu_hours": 1000.5, "budget_cost": 2500.0, "budget_kwh": 12.5
    });
    let mut body = json!({
        "id": "ml-team", "name": "ML Team", "email": "ml@example.org", "organization": "Lab", "parent": "research",
        "priority_tier": "critical", "max_priority": 7000, "fair_share_weight": 1.5, "priority_decay": 0.25,
        "allow_preemption": false, "can_preempt_others": false, "max_preemptions": 3,
        "damage_gpu_hours_per_day": 24.0,
        "billing_enabled": true, "cost_per_gpu_hour": 2.5, "active": true,
        "notify_on_start": true, "notify_on_completion": false, "notify_on_failure": true, "notify_on_quota": true,
        "labels": {"cost-centre": "42"}
    });
    body.as_object_mut().unwrap().extend(amounts.as_object().unwrap().clone());
    assert_eq!(keys(&body), fields_of(&house, "TenantSpec"), "a field is missing here");
    let made = create(&house, body.clone());
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    for counter in [
        "current_gpus",
        "current_gpu_memory",
        "current_cpu_cores",
        "current_memory",
        "current_jobs",
        "total_jobs",
        "successful_jobs",
        "failed_jobs",
    ] {
        assert_eq!(made[counter], 0, "{counter}");
    }
    assert_eq!(made["usage_half_life_ms"], 208_173_961, "a quarter is forgotten each day");
    assert_eq!(house.get("/api/v1/tenants/default")["usage_half_life_ms"], 7 * 86_400_000);
    assert_eq!(house.get("/api/v1/tenants/ml-team"), made);
    assert_eq!(house.get("/api/v1/tenants")["total"], 3, "with the one that is there from the start");
}

/// Each change is sent alone: that field has the new value, and all the others keep theirs.
#[test]
fn every_field_is_changed_by_itself() {
    let house = House::empty();
    create(&house, json!({"name": "Research"}));
    let mut expected = create(&house, json!({"name": "red", "guaranteed_gpus": 1, "max_gpus": 64}));
    let amounts = json!({
        "budget_cost": 20.5, "budget_gpu_hours": 100.5, "budget_kwh": 7.5, "damage_gpu_hours_per_day": 12.0,
        "guaranteed_concurrent_jobs": 2, "guaranteed_cpu_cores": 3, "guaranteed_gpu_memory_mb": 4000,
        "guaranteed_gpus": 5, "guaranteed_gpus_by_model": {"a100": 1}, "guaranteed_memory_mb": 6000,
        "max_concurrent_jobs": 20, "max_concurrent_jobs_per_user": 21, "max_cpu_cores": 22,
        "max_cpu_cores_per_user": 23, "max_gpu_memory_mb": 24000, "max_gpu_memory_mb_per_user": 25000,
        "max_gpus": 26, "max_gpus_by_model": {"h100": 4}, "max_gpus_per_user": 27, "max_memory_mb": 28000,
        "max_memory_mb_per_user": 29000
    });
    let mut changes = json!({
        "active": false, "allow_preemption": false, "billing_enabled": true, "can_preempt_others": false,
        "cost_per_gpu_hour": 2.5, "email": "red@example.org", "fair_share_weight": 2.0,
        "labels": {"cost-centre": "42"}, "max_preemptions": 3, "max_priority": 7000, "name": "Red",
        "organization": "Lab", "parent": "research", "priority_decay": 0.25, "priority_tier": "high",
        "notify_on_start": true, "notify_on_completion": true, "notify_on_failure": true, "notify_on_quota": true
    });
    changes.as_object_mut().unwrap().extend(amounts.as_object().unwrap().clone());
    assert_eq!(keys(&changes), fields_of(&house, "TenantChange"), "a field is missing here");
    for (field, value) in changes.as_object().unwrap() {
        assert_ne!(&expected[field], value, "{field} would not change");
        let reply = house.client().patch("/api/v1/tenants/red", &json!({field.as_str(): value}));
        assert_eq!(reply.status, 200, "{field}: {}", reply.text);
        expected[field] = value.clone();
        let shown = house.get("/api/v1/tenants/red");
        for field in changes.as_object().unwrap().keys() {
            assert_eq!(shown[field], expected[field], "{field}");
        }
    }
}

#[test]
fn some_of_it_is_changed_or_all_of_it_replaced() {
    let house = House::empty();
    create(&house, json!({"name": "red", "max_gpus": 4, "max_cpu_cores": 8, "email": "red@example.org"}));
    let changed = house
        .client()
        .patch("/api/v1/tenants/red", &json!({"max_gpus": null, "priority_tier": "low"}))
        .json();
    assert_eq!(
        (&changed["max_gpus"], &changed["max_cpu_cores"], &changed["priority_tier"]),
        (&json!(null), &json!(8), &json!("low"))
    );
    let replaced = house.client().put("/api/v1/tenants/red", &json!({"name": "Red", "max_gpus": 0})).json();
    assert_eq!(
        (&replaced["max_gpus"], &replaced["max_cpu_cores"], &replaced["email"]),
        (&json!(0), &json!(null), &json!(""))
    );
    house.refused(&house.client().put("/api/v1/tenants/red", &json!({"id": "blue"})), 422, "invalid");
    house.refused(
        &house.client().patch("/api/v1/tenants/red", &json!({"priority_tier": "top"})),
        422,
        "invalid",
    );
    house.refused(
        &house.client().patch("/api/v1/tenants/red", &json!({"fair_share_weight": -1})),
        422,
        "invalid",
    );
    house.refused(&house.client().patch("/api/v1/tenants/red", &json!({"parent": "red"})), 422, "invalid");
    for budget in ["budget_gpu_hours", "budget_cost"] {
        let change = |value: serde_json::Value| {
            house.client().patch(
                "/api/v1/tenants/red",
                &json!(serde_json::Map::from_iter([(budget.to_string(), value)])),
            )
        };
        assert_eq!(change(json!(12.5)).json()[budget], 12.5);
        house.refused(&change(json!(-1)), 422, "invalid");
        assert_eq!(change(json!(null)).json()[budget], json!(null), "lifted");
    }
    house.refused(
        &house.client().patch("/api/v1/tenants/red", &json!({"cost_per_gpu_hour": -0.5})),
        422,
        "invalid",
    );
}

#[test]
fn a_quota_of_zero_is_zero_and_an_inactive_tenant_submits_nothing() {
    let house = House::empty();
    create(&house, json!({"name": "none", "max_gpus": 0}));
    create(&house, json!({"name": "asleep", "active": false}));
    let submit =
        |tenant: &str| house.client().post("/api/v1/jobs", &json!({"tenant_id": tenant, "script": "true"}));
    house.refused(&submit("none"), 403, "over-quota");
    house.refused(&submit("asleep"), 403, "inactive-tenant");
}

#[test]
fn what_each_user_may_hold_is_changed_and_lifted_one_by_one() {
    let house = House::empty();
    let limits = [
        "max_gpus_per_user",
        "max_gpu_memory_mb_per_user",
        "max_cpu_cores_per_user",
        "max_memory_mb_per_user",
        "max_concurrent_jobs_per_user",
    ];
    let made = create(&house, json!({"name": "red", "max_gpus": 4}));
    assert!(limits.iter().all(|limit| made[limit].is_null()), "unlimited when nothing is said: {made}");
    for limit in limits {
        let change = |value: Value| {
            let body = Value::Object([(limit.to_string(), value)].into_iter().collect());
            house.client().patch("/api/v1/tenants/red", &body)
        };
        assert_eq!(change(json!(2)).json()[limit], 2);
        let others = house.get("/api/v1/tenants/red");
        assert_eq!(limits.iter().filter(|other| others[other] == 2).count(), 1, "{limit}: {others}");
        assert_eq!(others["max_gpus"], 4);
        assert_eq!(change(json!(null)).json()[limit], json!(null), "lifted");
    }
}

#[test]
fn what_is_said_of_models_is_replaced_as_a_whole_and_has_one_spelling() {
    let house = House::empty();
    for field in ["max_gpus_by_model", "guaranteed_gpus_by_model"] {
        let body = |value: Value| {
            let named = [("name".to_string(), json!(field)), (field.to_string(), value)];
            Value::Object(named.into_iter().collect())
        };
        let made = create(&house, body(json!({"NVIDIA H100": 4, "RTX 5070 Ti": 1})));
        assert_eq!(made[field], json!({"h100": 4, "rtx-5070-ti": 1}));
        let path = format!("/api/v1/tenants/{field}");
        let changed = |value: Value| house.client().patch(&path, &body(value));
        assert_eq!(changed(json!({"A100": 2})).json()[field], json!({"a100": 2}), "all of them");
        assert_eq!(house.client().patch(&path, &json!({"max_gpus": 4})).json()[field], json!({"a100": 2}));
        house.refused(&changed(json!({"H100": 1, "h100": 2})), 422, "invalid");
        house.refused(&changed(json!({"NVIDIA": 1})), 422, "invalid");
        assert_eq!(house.client().put(&path, &json!({"name": field})).json()[field], json!({}));
    }
}

#[test]
fn what_is_guaranteed_of_a_model_is_had_back_at_any_priority() {
    let house = House::new();
    create(&house, json!({"name": "red", "guaranteed_gpus_by_model": {"H100": 4}}));
    create(&house, json!({"name": "blue"}));
    let job = |tenant: &str, priority: u32, models: Value| {
        json!({"tenant_id": tenant, "gpu_count": 4, "priority": priority, "gpu_models": models,
            "command": ["x"], "annotations": {"muster.sim/runtime": "10m"}})
    };
    for _ in 0..2 {
        house.until_state(&house.submit(job("blue", 500, json!([]))), "running");
    }
    let any = house.submit(job("red", 100, json!([])));
    let own = house.submit(job("red", 100, json!(["H100"])));
    house.until_state(&own, "running");
    assert_eq!(house.get(&format!("/api/v1/jobs/{any}"))["state"], "pending", "it would do with any model");
}

#[test]
fn a_user_who_holds_enough_waits_and_a_colleague_does_not() {
    let house = House::new();
    create(&house, json!({"name": "red", "max_gpus_per_user": 2}));
    let job = |user: &str, gpus: u32| {
        json!({"tenant_id": "red", "user": user, "gpu_count": gpus, "command": ["x"],
            "annotations": {"muster.sim/runtime": "10m"}})
    };
    house.refused(&house.client().post("/api/v1/jobs", &job("ada", 3)), 403, "over-user-quota");
    house.until_state(&house.submit(job("ada", 2)), "running");
    let waiting = house.submit(job("ada", 1));
    house.until_state(&house.submit(job("bob", 2)), "running");
    let path = format!("/api/v1/jobs/{waiting}/why");
    house.until("a verdict", |house| house.get(&path)["reasons"][0]["reason"] == "QuotaUser");
    assert_eq!(
        house.get(&path)["reasons"][0]["sentence"],
        "user `ada` would hold 3 GPUs in tenant `red`, the limit for each user is 2"
    );
    let metrics = house.client().get("/metrics").text;
    assert!(metrics.contains(r#"muster_pending_jobs{reason="QuotaUser"} 1"#), "{metrics}");
    house.client().patch("/api/v1/tenants/red", &json!({"max_gpus_per_user": null}));
    house.until_state(&waiting, "running");
}

#[test]
fn names_are_unique_and_can_be_spoken() {
    let house = House::empty();
    create(&house, json!({"name": "red"}));
    house.refused(&house.client().post("/api/v1/tenants", &json!({"name": "Red"})), 409, "duplicate-tenant");
    house.refused(&house.client().post("/api/v1/tenants", &json!({"name": "!!!"})), 422, "invalid");
    house.refused(&house.client().post("/api/v1/tenants", &json!({})), 422, "invalid");
    house.refused(
        &house.client().post("/api/v1/tenants", &json!({"name": "x", "parent": "nobody"})),
        404,
        "unknown-tenant",
    );
}

#[test]
fn a_tenant_with_jobs_and_the_first_one_stay() {
    let house = House::empty();
    create(&house, json!({"name": "red"}));
    let job = house.submit(json!({"tenant_id": "red", "script": "true"}));
    house.refused(&house.client().delete("/api/v1/tenants/red"), 409, "tenant-busy");
    house.client().delete(&format!("/api/v1/jobs/{job}"));
    assert_eq!(house.client().delete("/api/v1/tenants/red").status, 200);
    house.refused(&house.client().get("/api/v1/tenants/red"), 404, "unknown-tenant");
    house.refused(&house.client().delete("/api/v1/tenants/default"), 409, "default-tenant");
}

#[test]
fn what_is_held_and_used_is_counted() {
    let house = House::new();
    create(&house, json!({"name": "red", "billing_enabled": true, "cost_per_gpu_hour": 3600.0}));
    let body = json!({"tenant_id": "red", "gpu_count": 2, "cpu_cores": 3, "memory_mb": 512, "gpu_memory_mb": 100,
        "command": ["x"], "user": "ada", "annotations": {"muster.sim/runtime": "500ms"}});
    let job = house.submit(body);
    house.until_state(&job, "running");
    let holding = house.get("/api/v1/tenants/red");
    let held = ["current_gpus", "current_cpu_cores", "current_memory", "current_gpu_memory", "current_jobs"]
        .map(|field| holding[field].as_u64());
    if holding["current_jobs"] == 1 {
        assert_eq!(held, [Some(2), Some(3), Some(512), Some(200), Some(1)]);
    }
    house.until_state(&job, "completed");
    let tenant = house.get("/api/v1/tenants/red");
    assert_eq!((tenant["successful_jobs"].as_u64(), tenant["current_gpus"].as_u64()), (Some(1), Some(0)));
    let cost = tenant["total_cost"].as_f64().unwrap();
    assert!(cost >= 1.0, "two GPUs for half a second at 1 a second: {cost}");
    for (by, key) in [("tenant", "red"), ("user", "ada"), ("job", job.as_str())] {
        let usage = house.get(&format!("/api/v1/usage?by={by}"));
        assert_eq!(usage["rows"][0]["key"], key);
        assert_eq!(usage["total"]["gpu_ms"], usage["rows"][0]["gpu_ms"]);
        assert_eq!(usage["total"]["cost"].as_f64().unwrap(), cost);
    }
    assert_eq!(house.get("/api/v1/usage?to=1")["rows"], json!([]));
}
