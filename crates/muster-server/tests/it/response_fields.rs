//! Every field of every response: a server runs a varied workload, and each field of the OpenAPI document must appear
//! with a value, and with more than one. This finds constants in place of values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::schema;
use crate::test_server::TestServer;

/// Nodes with NUMA nodes, NVLink, racks and MIG, and a small node.
const NODES: &str = "nodes:
  - { name: a, count: 2, box: dgx-a100, nodes_per_rack: 1, racks_per_block: 1, power_feed: f1, labels: {zone: a} }
  - { name: t, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 2, memory_mib: 16384 } }";

/// Fields that never have a value under this workload, with the reason. `Type.` means all fields of a type.
const NEVER_FILLED_FIELDS: &[(&str, &str)] = &[
    ("Job.estimated_duration", "learned estimates are not implemented yet"),
    ("Job.prediction_confidence", "learned estimates are not implemented yet"),
    ("Job.gpu_utilization", "utilisation is not measured yet"),
    ("Gpu.utilization", "utilisation is not measured yet"),
    ("Gpu.power_usage", "power is not measured yet"),
    ("Gpu.memory_used_mb", "memory in use is not measured yet"),
    ("Gpu.memory_free_mb", "memory in use is not measured yet"),
    ("Gpu.last_error", "simulated GPUs have no errors; `readings::tests` has one"),
    ("AuditList.next_cursor", "all acts fit on a page; `lists` reads two"),
    ("ClusterStatus.leader", "this server is the leader"),
    ("Health.why", "the server is healthy; `http::health::tests` has one that is not"),
    ("Job.gpu_power_max_watts", "a policy sets it; `muster/tests/it/policies.rs` has one"),
    ("Job.pool", "a policy registers pools; `muster/tests/it/policies.rs` has some"),
    ("Move.", "moving jobs is off"),
    ("MoveList.moves", "the same"),
    ("CallerIdentity.tenant_id", "local mode; `access` has tokens"),
    ("PolicyCallFailure.", "nothing interprets policies here; `muster/tests/it/policies.rs` does"),
    ("PolicyList.policies", "the same"),
    ("PolicyList.total", "the same"),
    ("PolicyList.failures", "the same"),
    ("PolicyDifference.", "the same"),
    ("PolicyPool.", "the same"),
    ("PolicyRuleset.", "the same"),
    ("PolicyShadow.", "the same"),
    ("PolicyVersion.", "the same"),
    ("Node.power_failure", "no power program; `muster/tests/it/operations.rs` has one that fails"),
    ("Node.silent_since", "no agent is lost in this workload; `muster/tests/it/agents.rs` freezes one"),
    ("Node.health_failure", "no health program fails in this workload; `muster/tests/it/agents.rs` has one that does"),
    ("LogPiece.base64", "simulated jobs print text; `logs` reads bytes that are not UTF-8"),
    ("WaitNote.", "reasons are recorded ten seconds apart, and the workload is shorter"),
    ("JobExplanation.history", "the same"),
    (
        "JobExplanation.no_estimate",
        "jobs have ended, so there are start ranges; `muster-core/tests/it/start_ranges.rs` has a cluster without",
    ),
    ("JobExplanation.expected_gpu_hours", "the objective is not `fast`"),
];

/// Fields that have one value under this workload, with the reason.
const SINGLE_VALUE_FIELDS: &[(&str, &str)] = &[
    ("Attempt.epoch", "one leader"),
    ("AuditEntry.actor", "local mode; `access` has several"),
    ("AuditEntry.actor_kind", "local mode; `access` has tokens"),
    ("AuditEntry.times", "refusals are counted together after the first ten; `server_limits` has some"),
    ("ClusterStatus.epoch", "one leader"),
    ("ClusterStatus.role", "one leader"),
    ("ClusterStatus.version", "one build"),
    ("ClusterStatus.online_nodes", "no agent is lost in this workload"),
    ("Event.epoch", "one leader"),
    ("ExpectedStart.ranges_right", "one range was given"),
    ("ExpectedStart.ranges_told", "the same"),
    ("Gpu.cooling_period", "a setting of the cluster"),
    ("Gpu.max_temperature", "a setting of the cluster"),
    ("Health.role", "one leader"),
    ("Health.status", "it is healthy"),
    ("Job.environment_hidden", "local mode; `access` hides some"),
    ("LogPiece.offset", "logs are read from the start; `streams` reads from an offset"),
    ("LogPiece.rank", "the same"),
    ("LogPiece.stream", "the same"),
    ("LogPiece.skipped_bytes", "no log is large enough; `logs` has one with a hole"),
    ("Node.reboots_when_idle", "simulated nodes do not reboot; `muster/tests/it/operations.rs` has one that does"),
    ("NodeDrain.reboots_when_idle", "the same"),
    ("Node.heartbeat_interval_ms", "one configuration for all nodes"),
    ("MoveList.enabled", "a setting of the cluster"),
    ("CallerIdentity.name", "local mode"),
    ("CallerIdentity.role", "local mode"),
    ("RemainingJob.phase", "all jobs on the drained node run"),
    ("RemainingJob.user", "local mode"),
    ("Receipt.", "one job is preempted, once"),
    ("Tenant.fair_share_factor", "no tenant is far above its share"),
    ("Tenant.recent_gpus", "seconds are nothing to a half-life of days"),
    ("JobRemedy.keeps_its_place", "one remedy: a higher priority"),
    ("JobRemedy.words", "the same"),
    ("Secret.set_by", "local mode"),
    ("Secret.user", "local mode; `access` has several users"),
    ("UsageReport.includes_running", "says what the sums include"),
    ("Window.by", "local mode"),
];

#[test]
fn every_field_of_every_response_has_a_value() {
    let server = TestServer::with_settings(&[], Some(NODES)).wait_for_gpus(18);
    let mut seen = FieldValues::default();
    read_every_route(&server, &mut seen);
    run_workload(&server);
    read_every_route(&server, &mut seen);
    let problems = seen.problems();
    assert!(problems.is_empty(), "{} fields:\n{}", problems.len(), problems.join("\n"));
}

fn run_workload(server: &TestServer) {
    let tenant = json!({"name": "red", "email": "red@example.org", "organization": "Lab", "parent": "default",
        "max_gpus": 100, "max_gpu_memory_mb": 9_000_000, "max_cpu_cores": 900, "max_memory_mb": 9_000_000,
        "max_concurrent_jobs": 50, "max_gpus_per_user": 90, "max_gpu_memory_mb_per_user": 8_000_000,
        "max_cpu_cores_per_user": 800, "max_memory_mb_per_user": 8_000_000, "max_concurrent_jobs_per_user": 40,
        "max_gpus_by_model": {"a100": 90}, "guaranteed_gpus": 1, "guaranteed_gpu_memory_mb": 1000,
        "guaranteed_cpu_cores": 1, "guaranteed_memory_mb": 1000, "guaranteed_concurrent_jobs": 1,
        "guaranteed_gpus_by_model": {"t4": 1}, "budget_gpu_hours": 1000.5, "budget_kwh": 99.0, "budget_cost": 2500.0,
        "priority_tier": "high", "fair_share_weight": 1.5, "priority_decay": 0.25, "max_preemptions": 3,
        "damage_gpu_hours_per_day": 7.5, "billing_enabled": true, "cost_per_gpu_hour": 2.5, "notify_on_start": true,
        "notify_on_completion": true, "notify_on_failure": true, "notify_on_quota": true, "labels": {"centre": "42"}});
    assert_eq!(server.client().post("/api/v1/tenants", &tenant).status, 201);
    let off = json!({"name": "blue", "active": false, "allow_preemption": false, "can_preempt_others": false,
        "max_priority": 7000, "guaranteed_gpus": 1000});
    assert_eq!(server.client().post("/api/v1/tenants", &off).status, 201);
    set_up_nodes_windows_and_tokens(server);
    let ended = ended_jobs(server);
    running_jobs(server, &ended);
    waiting_jobs(server, &ended);
    let drain = json!({"why": "new fans", "deadline_seconds": 86_400});
    assert_eq!(server.client().post("/api/v1/nodes/a01/drain", &drain).status, 200);
}

/// A declared and drained node, a window, MIG instances, an unhealthy GPU, tokens.
fn set_up_nodes_windows_and_tokens(server: &TestServer) {
    let declared = json!({"name": "soon", "cpu_cores": 4, "memory_mb": 4096, "hostname": "h", "ip_address": "10.0.0.9",
        "taints": ["new"], "gpus": [{"model": "NVIDIA A10", "memory_mb": 24576, "pcie_switch": 1}]});
    assert_eq!(server.client().post("/api/v1/nodes", &declared).status, 201);
    let later = json!({"name": "later", "nodes": ["soon"], "from": "2099-01-01T00:00:00Z", "duration": "2h"});
    assert_eq!(server.client().post("/api/v1/windows", &later).status, 201);
    let partition = json!({"profiles": ["3g.40gb", "2g.20gb", "1g.10gb"]});
    assert_eq!(server.client().patch("/api/v1/gpus/a02/7", &partition).status, 200);
    let bad = json!({"health": "unhealthy", "why": "XID 79"});
    assert_eq!(server.client().patch("/api/v1/gpus/soon/0", &bad).status, 200);
    assert_eq!(server.client().delete("/api/v1/tenants/nobody").status, 404);
    assert_eq!(server.client().post("/api/v1/nodes/soon/drain", &json!({"why": "firmware"})).status, 200);
    for (name, tenant, value, shared) in [("TOKEN", "red", "aHVudGVyMg==", true), ("OWN", "default", "eA==", false)] {
        let secret = json!({"value": value, "tenant_id": tenant, "shared": shared});
        assert_eq!(server.client().put(&format!("/api/v1/secrets/{name}"), &secret).status, 200);
    }
    for (name, role, expires) in [("robot", "member", json!("1h")), ("boss", "admin", Value::Null)] {
        let mut token = json!({"name": name, "role": role, "expires_in": expires});
        if role == "member" {
            token["tenant_id"] = json!("red");
            token["max_priority"] = json!(7000);
        }
        token.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(server.client().post("/api/v1/tokens", &token).status, 201);
    }
}

/// A job of the workload, with a name, a simulated runtime and further fields.
fn job_body(name: &str, runtime: &str, more: Value) -> Value {
    let mut job = json!({"name": name, "tenant_id": "red", "command": ["train"], "node_labels": {"zone": "a"},
        "annotations": {"muster.sim/runtime": runtime}});
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "annotations" => value.as_object().unwrap().iter().for_each(|(key, value)| {
                job["annotations"][key] = value.clone();
            }),
            _ => job[key] = value.clone(),
        }
    }
    job
}

fn ended_jobs(server: &TestServer) -> Vec<String> {
    let done = server.submit(job_body(
        "done",
        "10ms",
        json!({"time_limit": "1h", "signal": "USR1@5", "gpu_memory_mb": 1000,
        "labels": {"team": "x"}, "user": "ada", "environment": {"A": "1"}, "args": ["-v"], "directory": "/tmp",
        "gang_scheduling": false, "allow_cross_numa": true, "prefer_nvlink": true, "topology": "nvlink"}),
    ));
    server.wait_for_state(&done, "completed");
    let failed = json!({"max_restarts": 1, "time_limit": "1h", "signal": "TERM", "annotations": {"muster.sim/exit-code": "3"}, "on_node_lost": "requeue"});
    let failed = server.submit(job_body("failed", "10ms", failed));
    server.wait_for_state(&failed, "failed");
    let unlaunched = json!({"max_requeues": 0, "annotations": {"muster.sim/launch": "refuse"}});
    let unlaunched = server.submit(job_body("unlaunched", "10ms", unlaunched));
    server.wait_until("a failed launch", |server| server.get(&format!("/api/v1/jobs/{unlaunched}"))["attempts"] == 1);
    let cancelled = server.submit(job_body("cancelled", "1h", json!({})));
    server.wait_for_state(&cancelled, "running");
    server.client().delete(&format!("/api/v1/jobs/{cancelled}"));
    server.wait_for_state(&cancelled, "cancelled");
    vec![done, failed, cancelled]
}

fn running_jobs(server: &TestServer, ended: &[String]) {
    let low = json!({"priority": 1, "gpu_count": 8, "checkpoint_path": "/ckpt", "annotations":
        {"muster.sim/temperature": "71"}});
    let low = server.submit(job_body("low", "1h", low));
    server.wait_for_state(&low, "running");
    server.client().post(&format!("/api/v1/jobs/{low}/checkpoint"), &json!({}));
    let gang = json!({"priority": 5_000, "after": [{"job": ended[0]}], "tasks": [
        {"name": "worker", "count": 1, "max_count": 2, "gpus": 4, "gpu_models": ["A100"], "gpu_memory_mb": 1000,
         "cpu_cores": 2, "memory_mb": 2048}]});
    let gang = server.submit(job_body("gang", "1h", gang));
    server.wait_for_state(&gang, "running");
    let high = server.submit(job_body("high", "1h", json!({"priority": 9_000, "gpu_count": 8})));
    server.wait_for_state(&high, "running");
    server.wait_for_state(&low, "preempted");
    for (name, more) in
        [("part", json!({"gpu_share": 0.25})), ("strict", json!({"gpu_share": 0.3, "isolation": "full"}))]
    {
        let part = server.submit(job_body(name, "1h", more));
        server.wait_until("a part", |server| server.get(&format!("/api/v1/jobs/{part}"))["state"] != "pending");
    }
    let requeued = server
        .submit(json!({"name": "t4", "image": "cuda", "mounts": ["/data:/in"], "secrets": ["TOKEN=t"], "tenant_id": "red", "gpu_model": "T4",
        "annotations": {"muster.sim/runtime": "1h"}}));
    server.wait_for_state(&requeued, "running");
    server.client().post(&format!("/api/v1/jobs/{requeued}/requeue"), &json!({}));
    server.wait_until("a second try", |server| server.get(&format!("/api/v1/jobs/{requeued}"))["attempts"] == 2);
    let hot = server.submit(json!({"name": "hot", "command": ["train"], "gpu_model": "T4", "gpu_share": 0.5,
        "time_limit": "3h", "annotations": {"muster.sim/runtime": "1h", "muster.sim/temperature": "90"}}));
    server.wait_for_state(&hot, "running");
    server.wait_until("a GPU that cools", |server| {
        server.get("/api/v1/gpus").to_string().contains("\"thermal_throttle\":true")
    });
    for name in ["small", "tiny", "little"] {
        let limited = json!({"time_limit": "5h", "tenant_id": "default", "priority": 100});
        let limited = server.submit(job_body(name, "1h", limited));
        server.wait_for_state(&limited, "running");
    }
    let window = json!({"name": "night", "nodes": ["t"], "duration": "1h", "tenant": "red", "why": "firmware"});
    assert_eq!(server.client().post("/api/v1/windows", &window).status, 201);
}

fn waiting_jobs(server: &TestServer, ended: &[String]) {
    server.submit(json!({"name": "any", "command": ["train"], "gpu_count": 1}));
    let wide = server.submit(job_body("wide", "10m", json!({"gpu_count": 8, "priority": 100, "time_limit": "2h"})));
    server.submit(job_body("half", "10m", json!({"priority": 100, "tasks": [{"name": "w", "count": 2, "gpus": 2}]})));
    let held = server.submit(job_body(
        "held",
        "1s",
        json!({"script": "x", "hold": true, "after": [{"job": ended[1], "when": "ended"}]}),
    ));
    server.client().post(&format!("/api/v1/jobs/{held}/hold"), &json!({"why": "not yet"}));
    server.submit(job_body("later", "1s", json!({"start_after": "2099-01-01T00:00:00Z"})));
    server.submit(job_body("array", "1h", json!({"array": "0-2%1", "gpu_count": 8})));
    server.submit(job_body("sweep", "1h", json!({"array": "3-9:2", "gpu_count": 8, "tenant_id": "default"})));
    let path = format!("/api/v1/jobs/{wide}");
    server.wait_until("a forecast", |server| !server.get(&path)["estimated_wait"].is_null());
}

fn read_every_route(server: &TestServer, seen: &mut FieldValues) {
    let ids = |list: &str, key: &str| -> Vec<String> {
        let rows = server.get(list)[key].as_array().unwrap().clone();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_string()).collect()
    };
    let jobs = ids("/api/v1/jobs?limit=1000", "jobs");
    for list in [
        "health",
        "cluster/status",
        "whoami",
        "jobs?limit=3",
        "jobs?group=array",
        "jobs",
        "nodes",
        "gpus",
        "tenants",
        "windows",
        "allocations?limit=2",
        "allocations",
        "tokens",
        "secrets",
        "usage",
        "usage?by=user",
        "usage?by=job",
        "audit",
        "moves",
    ] {
        seen.record_response(server, &format!("/api/v1/{list}"));
    }
    let arrays: BTreeSet<&str> = jobs.iter().filter_map(|job| Some(job.split_once('.')?.0)).collect();
    for job in jobs.iter().map(String::as_str).chain(arrays) {
        for part in ["", "/why", "/receipts", "/events", "/attempts", "/logs"] {
            seen.record_response(server, &format!("/api/v1/jobs/{job}{part}"));
        }
    }
    for node in ids("/api/v1/nodes", "nodes") {
        seen.record_response(server, &format!("/api/v1/nodes/{node}"));
        seen.record_response(server, &format!("/api/v1/nodes/{node}/drain"));
    }
}

/// The values of each field, as text, by type and name.
#[derive(Default)]
struct FieldValues {
    values: BTreeMap<String, BTreeSet<String>>,
}

impl FieldValues {
    fn record_response(&mut self, server: &TestServer, path: &str) {
        let reply = server.client().get(path);
        if reply.status == 200 {
            schema::visit_fields("GET", path, &reply.json(), &mut |field, value| {
                self.values.entry(field.to_string()).or_default().insert(value.to_string());
            });
        }
    }

    fn problems(&self) -> Vec<String> {
        let is_empty = |text: &String| ["null", "\"\"", "[]", "{}"].contains(&text.as_str());
        let known = |list: &[(&str, &str)], field: &str| {
            list.iter()
                .any(|(known, _)| *known == field || field.strip_prefix(known).is_some_and(|_| known.ends_with('.')))
        };
        let mut problems = Vec::new();
        for field in schema::response_fields("get") {
            let values = self.values.get(&field).cloned().unwrap_or_default();
            // A list or object counts by its items and fields, which are checked separately.
            let is_compound = |text: &String| text.starts_with(['[', '{']);
            let filled = values.iter().filter(|text| !is_empty(text)).count();
            let filled = if values.iter().any(is_compound) { filled.min(1) * 2 } else { filled };
            let is_exempt = known(NEVER_FILLED_FIELDS, &field);
            match filled {
                0 if !is_exempt => problems.push(format!("{field} never has a value")),
                1.. if is_exempt => problems.push(format!("{field} has a value: remove it from the list")),
                1 if values.len() == 1 && !known(SINGLE_VALUE_FIELDS, &field) => {
                    problems.push(format!("{field} is always {}", values.first().map_or("", String::as_str)));
                }
                2.. if known(SINGLE_VALUE_FIELDS, &field) => {
                    problems.push(format!("{field} varies: remove it from the list"))
                }
                _ => {}
            }
        }
        problems
    }
}
