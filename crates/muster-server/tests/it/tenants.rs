//! Tenants: every field, quotas, guarantees, user limits, usage, removal.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::test_server::TestServer;

/// The fields of a schema of the OpenAPI document.
fn schema_fields(server: &TestServer, schema: &str) -> BTreeSet<String> {
    let document = server.get("/api/v1/openapi.json");
    let properties = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

fn keys(body: &Value) -> BTreeSet<String> {
    body.as_object().unwrap().keys().cloned().collect()
}

fn create_tenant(server: &TestServer, body: Value) -> Value {
    let reply = server.client().post("/api/v1/tenants", &body);
    assert_eq!(reply.status, 201, "{body}: {}", reply.text);
    reply.json()
}

#[test]
fn every_tenant_field_is_returned() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "Research"}));
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
    assert_eq!(keys(&body), schema_fields(&server, "TenantSpec"), "a field is missing here");
    let made = create_tenant(&server, body.clone());
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
    assert_eq!(made["usage_half_life_ms"], 208_173_961, "usage decays by a quarter each day");
    assert_eq!(server.get("/api/v1/tenants/default")["usage_half_life_ms"], 7 * 86_400_000);
    assert_eq!(server.get("/api/v1/tenants/ml-team"), made);
    assert_eq!(server.get("/api/v1/tenants")["total"], 3, "with the default tenant");
}

/// Each change is sent alone: its field has the new value, and all other fields keep theirs.
#[test]
fn each_tenant_field_can_be_changed_alone() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "Research"}));
    let mut expected = create_tenant(&server, json!({"name": "red", "guaranteed_gpus": 1, "max_gpus": 64}));
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
    assert_eq!(keys(&changes), schema_fields(&server, "TenantChange"), "a field is missing here");
    for (field, value) in changes.as_object().unwrap() {
        assert_ne!(&expected[field], value, "{field} would not change");
        let reply = server.client().patch("/api/v1/tenants/red", &json!({field.as_str(): value}));
        assert_eq!(reply.status, 200, "{field}: {}", reply.text);
        expected[field] = value.clone();
        let shown = server.get("/api/v1/tenants/red");
        for field in changes.as_object().unwrap().keys() {
            assert_eq!(shown[field], expected[field], "{field}");
        }
    }
}

#[test]
fn patch_changes_some_fields_and_put_replaces_all() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "red", "max_gpus": 4, "max_cpu_cores": 8, "email": "red@example.org"}));
    let changed =
        server.client().patch("/api/v1/tenants/red", &json!({"max_gpus": null, "priority_tier": "low"})).json();
    assert_eq!(
        (&changed["max_gpus"], &changed["max_cpu_cores"], &changed["priority_tier"]),
        (&json!(null), &json!(8), &json!("low"))
    );
    let replaced = server.client().put("/api/v1/tenants/red", &json!({"name": "Red", "max_gpus": 0})).json();
    assert_eq!(
        (&replaced["max_gpus"], &replaced["max_cpu_cores"], &replaced["email"]),
        (&json!(0), &json!(null), &json!(""))
    );
    server.expect_problem(&server.client().put("/api/v1/tenants/red", &json!({"id": "blue"})), 422, "invalid");
    server.expect_problem(
        &server.client().patch("/api/v1/tenants/red", &json!({"priority_tier": "top"})),
        422,
        "invalid",
    );
    server.expect_problem(
        &server.client().patch("/api/v1/tenants/red", &json!({"fair_share_weight": -1})),
        422,
        "invalid",
    );
    server.expect_problem(&server.client().patch("/api/v1/tenants/red", &json!({"parent": "red"})), 422, "invalid");
    for budget in ["budget_gpu_hours", "budget_cost"] {
        let change = |value: serde_json::Value| {
            server
                .client()
                .patch("/api/v1/tenants/red", &json!(serde_json::Map::from_iter([(budget.to_string(), value)])))
        };
        assert_eq!(change(json!(12.5)).json()[budget], 12.5);
        server.expect_problem(&change(json!(-1)), 422, "invalid");
        assert_eq!(change(json!(null)).json()[budget], json!(null), "removed");
    }
    server.expect_problem(
        &server.client().patch("/api/v1/tenants/red", &json!({"cost_per_gpu_hour": -0.5})),
        422,
        "invalid",
    );
}

#[test]
fn a_quota_of_zero_is_zero_and_an_inactive_tenant_submits_nothing() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "none", "max_gpus": 0}));
    create_tenant(&server, json!({"name": "asleep", "active": false}));
    let submit = |tenant: &str| server.client().post("/api/v1/jobs", &json!({"tenant_id": tenant, "script": "true"}));
    server.expect_problem(&submit("none"), 403, "over-quota");
    server.expect_problem(&submit("asleep"), 403, "inactive-tenant");
}

#[test]
fn each_user_limit_is_set_and_removed_alone() {
    let server = TestServer::without_nodes();
    let limits = [
        "max_gpus_per_user",
        "max_gpu_memory_mb_per_user",
        "max_cpu_cores_per_user",
        "max_memory_mb_per_user",
        "max_concurrent_jobs_per_user",
    ];
    let made = create_tenant(&server, json!({"name": "red", "max_gpus": 4}));
    assert!(limits.iter().all(|limit| made[limit].is_null()), "unlimited by default: {made}");
    for limit in limits {
        let change = |value: Value| {
            let body = Value::Object([(limit.to_string(), value)].into_iter().collect());
            server.client().patch("/api/v1/tenants/red", &body)
        };
        assert_eq!(change(json!(2)).json()[limit], 2);
        let others = server.get("/api/v1/tenants/red");
        assert_eq!(limits.iter().filter(|other| others[other] == 2).count(), 1, "{limit}: {others}");
        assert_eq!(others["max_gpus"], 4);
        assert_eq!(change(json!(null)).json()[limit], json!(null), "removed");
    }
}

#[test]
fn limits_by_model_are_replaced_as_a_whole_under_canonical_model_names() {
    let server = TestServer::without_nodes();
    for field in ["max_gpus_by_model", "guaranteed_gpus_by_model"] {
        let body = |value: Value| {
            let named = [("name".to_string(), json!(field)), (field.to_string(), value)];
            Value::Object(named.into_iter().collect())
        };
        let made = create_tenant(&server, body(json!({"NVIDIA H100": 4, "RTX 5070 Ti": 1})));
        assert_eq!(made[field], json!({"h100": 4, "rtx-5070-ti": 1}));
        let path = format!("/api/v1/tenants/{field}");
        let changed = |value: Value| server.client().patch(&path, &body(value));
        assert_eq!(changed(json!({"A100": 2})).json()[field], json!({"a100": 2}), "the whole map is replaced");
        assert_eq!(server.client().patch(&path, &json!({"max_gpus": 4})).json()[field], json!({"a100": 2}));
        server.expect_problem(&changed(json!({"H100": 1, "h100": 2})), 422, "invalid");
        server.expect_problem(&changed(json!({"NVIDIA": 1})), 422, "invalid");
        assert_eq!(server.client().put(&path, &json!({"name": field})).json()[field], json!({}));
    }
}

#[test]
fn a_guarantee_by_model_is_reclaimed_at_any_priority() {
    let server = TestServer::new();
    create_tenant(&server, json!({"name": "red", "guaranteed_gpus_by_model": {"H100": 4}}));
    create_tenant(&server, json!({"name": "blue"}));
    let job = |tenant: &str, priority: u32, models: Value| {
        json!({"tenant_id": tenant, "gpu_count": 4, "priority": priority, "gpu_models": models,
            "command": ["x"], "annotations": {"muster.sim/runtime": "10m"}})
    };
    for _ in 0..2 {
        server.wait_for_state(&server.submit(job("blue", 500, json!([]))), "running");
    }
    let any = server.submit(job("red", 100, json!([])));
    let own = server.submit(job("red", 100, json!(["H100"])));
    server.wait_for_state(&own, "running");
    assert_eq!(server.get(&format!("/api/v1/jobs/{any}"))["state"], "pending", "the job accepts any model");
}

#[test]
fn a_user_at_the_user_limit_waits_and_other_users_start() {
    let server = TestServer::new();
    create_tenant(&server, json!({"name": "red", "max_gpus_per_user": 2}));
    let job = |user: &str, gpus: u32| {
        json!({"tenant_id": "red", "user": user, "gpu_count": gpus, "command": ["x"],
            "annotations": {"muster.sim/runtime": "10m"}})
    };
    server.expect_problem(&server.client().post("/api/v1/jobs", &job("ada", 3)), 403, "over-user-quota");
    server.wait_for_state(&server.submit(job("ada", 2)), "running");
    let waiting = server.submit(job("ada", 1));
    server.wait_for_state(&server.submit(job("bob", 2)), "running");
    let path = format!("/api/v1/jobs/{waiting}/why");
    server.wait_until("a verdict", |server| server.get(&path)["reasons"][0]["reason"] == "QuotaUser");
    assert_eq!(
        server.get(&path)["reasons"][0]["sentence"],
        "with this job, user `ada` would hold 3 GPUs in tenant `red`; the limit per user is 2"
    );
    let metrics = server.client().get("/metrics").text;
    assert!(metrics.contains(r#"muster_pending_jobs{reason="QuotaUser"} 1"#), "{metrics}");
    server.client().patch("/api/v1/tenants/red", &json!({"max_gpus_per_user": null}));
    server.wait_for_state(&waiting, "running");
}

#[test]
fn tenant_names_are_unique_and_valid() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "red"}));
    server.expect_problem(&server.client().post("/api/v1/tenants", &json!({"name": "Red"})), 409, "duplicate-tenant");
    server.expect_problem(&server.client().post("/api/v1/tenants", &json!({"name": "!!!"})), 422, "invalid");
    server.expect_problem(&server.client().post("/api/v1/tenants", &json!({})), 422, "invalid");
    server.expect_problem(
        &server.client().post("/api/v1/tenants", &json!({"name": "x", "parent": "nobody"})),
        404,
        "unknown-tenant",
    );
}

#[test]
fn a_tenant_with_live_jobs_and_the_default_tenant_cannot_be_removed() {
    let server = TestServer::without_nodes();
    create_tenant(&server, json!({"name": "red"}));
    let job = server.submit(json!({"tenant_id": "red", "script": "true"}));
    server.expect_problem(&server.client().delete("/api/v1/tenants/red"), 409, "tenant-busy");
    server.client().delete(&format!("/api/v1/jobs/{job}"));
    assert_eq!(server.client().delete("/api/v1/tenants/red").status, 200);
    server.expect_problem(&server.client().get("/api/v1/tenants/red"), 404, "unknown-tenant");
    server.expect_problem(&server.client().delete("/api/v1/tenants/default"), 409, "default-tenant");
}

#[test]
fn tenant_usage_and_cost_are_counted() {
    let server = TestServer::new();
    create_tenant(&server, json!({"name": "red", "billing_enabled": true, "cost_per_gpu_hour": 3600.0}));
    let body = json!({"tenant_id": "red", "gpu_count": 2, "cpu_cores": 3, "memory_mb": 512, "gpu_memory_mb": 100,
        "command": ["x"], "user": "ada", "annotations": {"muster.sim/runtime": "500ms"}});
    let job = server.submit(body);
    server.wait_for_state(&job, "running");
    let holding = server.get("/api/v1/tenants/red");
    let held = ["current_gpus", "current_cpu_cores", "current_memory", "current_gpu_memory", "current_jobs"]
        .map(|field| holding[field].as_u64());
    if holding["current_jobs"] == 1 {
        assert_eq!(held, [Some(2), Some(3), Some(512), Some(200), Some(1)]);
    }
    server.wait_for_state(&job, "completed");
    let tenant = server.get("/api/v1/tenants/red");
    assert_eq!((tenant["successful_jobs"].as_u64(), tenant["current_gpus"].as_u64()), (Some(1), Some(0)));
    let cost = tenant["total_cost"].as_f64().unwrap();
    assert!(cost >= 1.0, "two GPUs for half a second at 1 a second: {cost}");
    for (by, key) in [("tenant", "red"), ("user", "ada"), ("job", job.as_str())] {
        let usage = server.get(&format!("/api/v1/usage?by={by}"));
        assert_eq!(usage["rows"][0]["key"], key);
        assert_eq!(usage["total"]["gpu_ms"], usage["rows"][0]["gpu_ms"]);
        assert_eq!(usage["total"]["cost"].as_f64().unwrap(), cost);
    }
    assert_eq!(server.get("/api/v1/usage?to=1")["rows"], json!([]));
}

#[test]
fn a_guarantee_above_the_quota_is_refused_and_above_the_cluster_is_warned() {
    let server = TestServer::new();
    let create = |body: Value| server.client().post("/api/v1/tenants", &body);
    let reply = create(json!({"name": "red", "max_gpus": 4, "guaranteed_gpus": 5}));
    assert!(server.expect_problem(&reply, 422, "invalid").contains("5 GPUs are more than the tenant's maximum of 4"));
    let reply =
        create(json!({"name": "red", "max_gpus_by_model": {"h100": 1}, "guaranteed_gpus_by_model": {"h100": 2}}));
    server.expect_problem(&reply, 422, "invalid");
    let made = create(json!({"name": "red", "max_gpus": 4, "guaranteed_gpus": 4}));
    assert_eq!((made.status, &made.json()["warnings"]), (201, &Value::Null));
    let reply = server.client().patch("/api/v1/tenants/red", &json!({"max_gpus": 3}));
    server.expect_problem(&reply, 422, "invalid");
    let made = create(json!({"name": "blue", "guaranteed_gpus": 9, "guaranteed_gpus_by_model": {"a100": 1}}));
    let warnings =
        json!(["GPUs: 9 guaranteed, the cluster has 8", "GPUs of model a100: 1 guaranteed, the cluster has 0"]);
    assert_eq!((made.status, &made.json()["warnings"]), (201, &warnings));
}
