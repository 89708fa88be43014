//! Nodes, GPUs and allocations.

use serde_json::{Value, json};

use crate::test_server::{TWO_NODES, TestServer};

fn node_body(name: &str) -> Value {
    json!({"name": name, "cpu_cores": 16, "memory_mb": 65536, "hostname": "host", "ip_address": "10.0.0.1",
        "rack": "r1", "power_feed": "f1", "labels": {"zone": "a"}, "simulated": true,
        "gpus": [{"model": "NVIDIA A100-SXM4-80GB", "memory_mb": 81920, "count": 2, "power_limit_w": 400, "numa_node": 1},
                 {"model": "NVIDIA A10", "memory_mb": 24576, "uuid": "GPU-x"}]})
}

#[test]
fn a_declared_node_is_shown_with_its_fields() {
    let server = TestServer::without_nodes();
    let reply = server.client().post("/api/v1/nodes", &node_body("a1"));
    assert_eq!(reply.status, 201, "{}", reply.text);
    let shown = server.get("/api/v1/nodes/a1");
    let expected = [
        ("id", json!("a1")),
        ("hostname", json!("host")),
        ("ip_address", json!("10.0.0.1")),
        ("total_gpus", json!(3)),
        ("cpu_cores", json!(16)),
        ("memory_mb", json!(65536)),
        ("rack", json!("r1")),
        ("power_feed", json!("f1")),
        ("labels", json!({"zone": "a"})),
        ("jobs", json!([])),
    ];
    for (field, value) in expected {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!((&shown["state"], &shown["schedulable"]), (&json!("Declared"), &json!(false)));
    assert_eq!((&shown["online"], &shown["available_gpus"]), (&json!(false), &json!(0)));
    assert_eq!(shown["gpus"][2]["uuid"], "GPU-x");
    assert_eq!(shown["gpus"][0]["power_limit_w"], 400.0);
    assert_eq!(server.get("/api/v1/nodes")["total"], 1);
    let many = json!({"name": "big", "cpu_cores": 1, "memory_mb": 1, "gpus": [{"model": "T4", "memory_mb": 1, "count": 4_000_000_000u32}]});
    server.expect_problem(&server.client().post("/api/v1/nodes", &many), 422, "invalid");
    server.expect_problem(&server.client().post("/api/v1/nodes", &json!({"name": "x"})), 400, "malformed");
    server.expect_problem(
        &server.client().post("/api/v1/nodes", &json!({"name": "No Name", "cpu_cores": 1, "memory_mb": 1})),
        422,
        "invalid",
    );
}

#[test]
fn gpus_are_listed_filtered_and_declared_unhealthy() {
    let server = TestServer::without_nodes();
    server.client().post("/api/v1/nodes", &node_body("a1"));
    server.client().post("/api/v1/nodes", &node_body("a2"));
    let total = |query: &str| server.get(&format!("/api/v1/gpus{query}"))["total"].as_u64();
    assert_eq!(total(""), Some(6));
    assert_eq!(total("?model=A10"), Some(2), "an A10 is not an A100");
    assert_eq!(total("?node=a2&model=a100"), Some(2));
    assert_eq!(total("?node=nowhere"), Some(0));
    let page = server.get("/api/v1/gpus?limit=2&offset=3");
    assert_eq!((page["total"].as_u64(), page["gpus"][1]["id"].as_str()), (Some(6), Some("a2/gpu-1")));
    let nodes = server.get("/api/v1/nodes?label=zone%3Da&limit=1&offset=1");
    assert_eq!((nodes["total"].as_u64(), nodes["nodes"][0]["id"].as_str()), (Some(2), Some("a2")));
    assert_eq!(server.get("/api/v1/nodes?state=hold")["total"], 0);
    assert_eq!(server.get("/api/v1/gpus/a1/2")["id"], "a1/gpu-2");
    assert_eq!(server.get("/api/v1/gpus/a1/gpu-2")["model"], "NVIDIA A10");
    server.expect_problem(&server.client().get("/api/v1/gpus/a1/3"), 404, "unknown-gpu");
    let known = server.get("/api/v1/gpus/a1/2");
    assert_eq!((&known["compute_capability"], &known["cuda_cores"]), (&json!("8.6"), &json!(9_216)));
    assert_eq!(known["tensor_cores"], 288);

    let declare =
        |health: &str| server.client().post("/api/v1/gpus/a1/0/health", &json!({"health": health, "why": "XID 79"}));
    let gpu = declare("unhealthy").json();
    assert_eq!(
        (gpu["health"].as_str(), gpu["state"].as_str(), gpu["health_why"].as_str()),
        (Some("unhealthy"), Some("out"), Some("XID 79"))
    );
    assert_eq!((total("?health=unhealthy"), total("?health=healthy")), (Some(1), Some(5)));
    assert_eq!(declare("healthy").json()["health"], "healthy");
    server.expect_problem(&declare("fine"), 422, "invalid");
}

#[test]
fn a_node_is_drained_held_fenced_and_returned_to_service() {
    let server = TestServer::new();
    let act = |verb: &str| server.client().post(&format!("/api/v1/nodes/n01/{verb}"), &json!({"why": "a fan rattles"}));
    for (verb, state, schedulable) in
        [("drain", "Draining", false), ("undrain", "Ready", true), ("hold", "Hold", false)]
    {
        assert_eq!(act(verb).status, 200, "{verb}");
        let node = server.get("/api/v1/nodes/n01");
        assert_eq!((node["state"].as_str(), node["schedulable"].as_bool()), (Some(state), Some(schedulable)));
        assert_eq!((node["state_by"].as_str(), node["state_why"].as_str()), (Some("local"), Some("a fan rattles")));
    }
    assert_eq!(server.get("/api/v1/cluster/status")["available_gpus"], 4);
    let changed = server.client().patch("/api/v1/nodes/n01", &json!({"state": "ready", "labels": {"zone": "b"}}));
    assert_eq!(
        (changed.json()["state"].as_str(), changed.json()["labels"]["zone"].as_str()),
        (Some("Ready"), Some("b"))
    );
    server.expect_problem(&server.client().patch("/api/v1/nodes/n01", &json!({"state": "fenced"})), 422, "invalid");
    assert_eq!(act("fence").status, 200);
}

#[test]
fn a_busy_node_cannot_be_removed_and_an_idle_one_can() {
    let server = TestServer::new();
    let job = server.submit_sleeper("1h", 3);
    let running = server.wait_for_state(&job, "running");
    let busy = running["node_name"].as_str().unwrap().to_string();
    server.expect_problem(&server.client().delete(&format!("/api/v1/nodes/{busy}")), 409, "node-busy");
    let shown = server.get(&format!("/api/v1/nodes/{busy}"));
    assert_eq!(shown["jobs"], json!([job]));
    assert_eq!((&shown["total_gpus"], &shown["available_gpus"]), (&json!(4), &json!(1)), "three are held");
    assert_eq!(shown["gpu_allocation"], 0.75);
    let free = |total: &str, available: &str| shown[total].as_u64().zip(shown[available].as_u64());
    let held = [("cpu_cores", "available_cpu_cores", 1), ("memory_mb", "available_memory_mb", 1_024)];
    for (total, available, held) in held {
        assert_eq!(free(total, available).map(|(total, free)| total - free), Some(held), "{available}");
    }
    let empty = TestServer::without_nodes();
    empty.client().post("/api/v1/nodes", &node_body("a1"));
    assert_eq!(empty.client().delete("/api/v1/nodes/a1").status, 200);
    assert_eq!(empty.get("/api/v1/nodes")["total"], 0);
}

#[test]
fn deleting_an_allocation_requeues_its_job() {
    let server = TestServer::new();
    let job = server.submit_sleeper("1h", 2);
    server.wait_for_state(&job, "running");
    let held = server.get(&format!("/api/v1/allocations/{job}:1"));
    assert_eq!((held["state"].as_str(), held["gpu_ids"].as_array().unwrap().len()), (Some("active"), 2));
    assert_eq!((held["cpu_cores"].as_u64(), held["memory_mb"].as_u64()), (Some(1), Some(1024)));
    let gpu = held["gpu_ids"][0].as_str().unwrap().replace("gpu-", "");
    let gpu = server.get(&format!("/api/v1/gpus/{gpu}"));
    assert_eq!((gpu["state"].as_str(), gpu["allocation_id"].as_str()), (Some("held"), held["id"].as_str()));
    assert_eq!(server.get("/api/v1/allocations?active=true")["total"], 1);

    assert_eq!(server.client().delete(&format!("/api/v1/allocations/{job}:1")).status, 200);
    server.wait_until("a second allocation", |server| server.get("/api/v1/allocations")["total"] == 2);
    server.wait_until("the first to end", |server| {
        server.get(&format!("/api/v1/allocations/{job}:1"))["state"] == "requeued"
    });
    server.expect_problem(&server.client().delete(&format!("/api/v1/allocations/{job}:1")), 409, "wrong-phase");
    assert_eq!(server.get(&format!("/api/v1/allocations?job={job}&limit=1"))["allocations"][0]["attempt"], 2);
    let node = held["node_id"].as_str().unwrap();
    assert!(server.get(&format!("/api/v1/allocations?node={node}"))["total"].as_u64() >= Some(1));
}

#[test]
fn a_victim_is_shown_as_preempted_with_its_preemptor() {
    let server = TestServer::with_settings(
        &[],
        Some("nodes: [{ name: n, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 1, memory_mib: 16384 } }]"),
    )
    .wait_for_gpus(1);
    let low = server.submit(json!({"script": "x", "priority": 1, "annotations": {"muster.sim/runtime": "1h"}}));
    server.wait_for_state(&low, "running");
    let high = server.submit(json!({"script": "x", "priority": 1000, "annotations": {"muster.sim/runtime": "1h"}}));
    server.wait_for_state(&high, "running");
    let preempted = server.wait_for_state(&low, "preempted");
    assert_eq!((preempted["phase"].as_str(), preempted["preempted_count"].as_u64()), (Some("Queued"), Some(1)));
    let first = server.get(&format!("/api/v1/allocations/{low}:1"));
    assert_eq!((first["state"].as_str(), first["preempted_by"].as_str()), (Some("preempted"), Some(high.as_str())));
    assert_eq!(first["preemption_reason"], format!("preempted by {high}"));
    let metrics = server.client().get("/metrics").text;
    assert!(metrics.contains("gpu_scheduler_preemptions_total 1"), "{metrics}");
    assert_eq!(server.client().delete(&format!("/api/v1/jobs/{low}")).status, 200, "a preempted job can be cancelled");
}

#[test]
fn a_declared_node_is_labelled_and_its_gpus_are_changed_and_removed() {
    let server = TestServer::without_nodes();
    let declared = |body: &Value| server.client().post("/api/v1/nodes", body);
    assert_eq!(declared(&node_body("a1")).status, 201);
    let change = |body: Value| server.client().patch("/api/v1/nodes/a1", &body);
    let labelled = change(json!({"labels": {"zone": "b"}, "taints": ["slow"]})).json();
    assert_eq!((&labelled["labels"], &labelled["taints"]), (&json!({"zone": "b"}), &json!(["slow"])));
    assert_eq!(server.get("/api/v1/nodes?label=zone%3Db&state=declared")["total"], 1);
    for (state, shown) in [("draining", "Draining"), ("ready", "Declared")] {
        assert_eq!(change(json!({"state": state})).json()["state"], shown);
    }

    let gpu = server.client().patch("/api/v1/gpus/a1/0", &json!({"profiles": ["3g.40gb"], "health": "degraded"}));
    assert_eq!((&gpu.json()["mig"][0]["profile"], &gpu.json()["health"]), (&json!("3g.40gb"), &json!("degraded")));
    server.expect_problem(&server.client().patch("/api/v1/gpus/a1/0", &json!({"model": "H200"})), 400, "unknown-field");
    assert_eq!(server.client().patch("/api/v1/gpus/a1/2", &json!({"health": "warning", "why": "fan"})).status, 200);
    assert_eq!(server.client().delete("/api/v1/gpus/a1/1").status, 200);
    let left = server.get("/api/v1/nodes/a1");
    let of = |index: usize, field: &str| left["gpus"][index][field].clone();
    assert_eq!(
        (left["total_gpus"].as_u64(), of(1, "uuid"), of(1, "health")),
        (Some(2), json!("GPU-x"), json!("warning"))
    );
    assert_eq!((of(0, "health"), of(0, "mig")[0]["profile"].clone()), (json!("degraded"), json!("3g.40gb")));
    server.expect_problem(&server.client().delete("/api/v1/gpus/a1/2"), 404, "unknown-gpu");
}

#[test]
fn the_operators_labels_stay_when_the_agent_joins() {
    let mut server = TestServer::without_nodes();
    let body = json!({"name": "n01", "cpu_cores": 1, "memory_mb": 1, "labels": {"zone": "b"}});
    assert_eq!(server.client().post("/api/v1/nodes", &body).status, 201);
    let joined = server.restart_with_nodes(TWO_NODES, 8);
    let shown = joined.get("/api/v1/nodes/n01");
    assert_eq!((&shown["state"], &shown["total_gpus"]), (&json!("Ready"), &json!(4)));
    assert_eq!(shown["labels"], json!({"zone": "b"}), "a registration keeps the labels of the operator");
    assert!(shown["last_heartbeat"].is_string() && shown["gpus"][0]["temperature"] == 40.0, "{shown}");
    joined.expect_problem(&joined.client().post("/api/v1/nodes", &body), 409, "node-joined");
    joined.expect_problem(&joined.client().delete("/api/v1/gpus/n01/0"), 409, "node-joined");
    let own = joined.client().patch("/api/v1/nodes/n01", &json!({"labels": null})).json();
    assert_eq!(own["labels"], json!({}), "the labels of the agent");
}

#[test]
fn an_ended_allocation_still_shows_its_resources_and_price() {
    let server = TestServer::new();
    let billed = json!({"billing_enabled": true, "cost_per_gpu_hour": 2.5});
    assert_eq!(server.client().patch("/api/v1/tenants/default", &billed).status, 200);
    let job = server.submit(json!({"script": "x", "gpu_count": 2, "cpu_cores": 3, "memory_mb": 5000,
        "time_limit": "90m", "annotations": {"muster.sim/runtime": "1h"}}));
    server.wait_for_state(&job, "running");
    let path = format!("/api/v1/allocations/{job}:1");
    let fields = |allocation: &Value| {
        ["cpu_cores", "memory_mb", "planned_duration", "cost_per_hour"].map(|field| allocation[field].clone())
    };
    let live = server.get(&path);
    assert_eq!(fields(&live), [json!(3), json!(5000), json!("1h30m"), json!(5.0)]);
    server.client().delete(&format!("/api/v1/jobs/{job}"));
    server.wait_for_state(&job, "cancelled");
    let ended = server.get(&path);
    assert_eq!(fields(&ended), fields(&live));
    let job = server.get(&format!("/api/v1/jobs/{job}"));
    assert!(job["completed_at"].is_string() && live["completed_at"].is_null());
    assert_eq!(ended["completed_at"], job["completed_at"]);
    assert_eq!(ended["completed_at_ms"], job["completed_at_ms"]);
}

#[test]
fn a_gpu_above_the_thermal_threshold_cools_before_it_gets_a_job() {
    let one = "nodes: [{ name: n, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 2, memory_mib: 16384 } }]";
    let settings = [("scheduler.cooling", "4s"), ("agent.metrics_interval_ms", "200")];
    let server = TestServer::with_settings(&settings, Some(one)).wait_for_gpus(2);
    let hot = server.submit(json!({"script": "x",
        "annotations": {"muster.sim/runtime": "1s", "muster.sim/temperature": "80"}}));
    let gpu = server.wait_for_state(&hot, "running")["allocated_gpus"][0].as_str().unwrap().replace("gpu-", "");
    let path = format!("/api/v1/gpus/{gpu}");
    server.wait_until("the temperature reading", |server| server.get(&path)["temperature"] == 80.0);
    server.wait_for_state(&hot, "completed");
    let cooling = server.get(&path);
    assert_eq!((&cooling["state"], &cooling["thermal_throttle"]), (&json!("cooling"), &json!(true)));
    assert!(cooling["cooling_until"].is_string(), "{cooling}");
    let next = server.wait_for_state(&server.submit_sleeper("1h", 1), "running");
    assert_ne!(next["allocated_gpus"][0].as_str().unwrap().replace("gpu-", ""), gpu, "the other GPU");
    server.wait_until("the end of the cooling", |server| server.get(&path)["state"] == "free");
    assert!(server.get(&path)["temperature"].as_f64() < Some(75.0));
}
