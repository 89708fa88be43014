//! Every field of every answer: a server is driven through a busy story, and each field of the OpenAPI document must have
//! been seen with a value, and with more than one. A constant in place of a value is found here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::house::House;
use crate::schema;

/// Machines with NUMA nodes, NVLink, racks and partitions, and one that is small.
const NODES: &str = "nodes:
  - { name: a, count: 2, box: dgx-a100, nodes_per_rack: 1, racks_per_block: 1, power_feed: f1, labels: {zone: a} }
  - { name: t, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 2, memory_mib: 16384 } }";

/// Fields that this story never sees with a value, and why that is right. `Type.` means all of a type.
const NEVER_SEEN: &[(&str, &str)] = &[
    ("Job.estimated_duration", "learned estimates are not there yet"),
    ("Job.prediction_confidence", "learned estimates are not there yet"),
    ("Job.gpu_utilization", "utilisation is not measured yet"),
    ("Gpu.utilization", "utilisation is not measured yet"),
    ("Gpu.power_usage", "power is not measured yet"),
    ("Gpu.memory_used_mb", "memory in use is not measured yet"),
    ("Gpu.memory_free_mb", "memory in use is not measured yet"),
    ("Gpu.last_error", "simulated GPUs have no errors; `readings::tests` has one"),
    ("AuditList.next_cursor", "all acts fit on a page; `lists` reads two"),
    ("ClusterStatus.leader", "this server leads"),
    ("Health.why", "the server is healthy; `http::health::tests` has one that is not"),
    ("Job.gpu_power_max_watts", "a policy sets it; `muster/tests/it/policies.rs` has one"),
    ("Job.pool", "a policy registers pools; `muster/tests/it/policies.rs` has some"),
    ("Move.", "moving jobs is off"),
    ("MoveList.moves", "the same"),
    ("Myself.tenant_id", "local mode; `access` has tokens"),
    ("PolicyFailing.", "nothing interprets policies here; `muster/tests/it/policies.rs` does"),
    ("PolicyList.policies", "the same"),
    ("PolicyList.total", "the same"),
    ("PolicyList.failures", "the same"),
    ("PolicyOtherwise.", "the same"),
    ("PolicyPool.", "the same"),
    ("PolicyRuleset.", "the same"),
    ("PolicyShadow.", "the same"),
    ("PolicyVersion.", "the same"),
    ("WaitNote.", "reasons are recorded ten seconds apart, and the story is shorter"),
    ("Why.history", "the same"),
    (
        "Why.no_estimate",
        "jobs have ended, so ranges are told; `muster-core/tests/it/start_ranges.rs` has a cluster without",
    ),
    ("Why.expected_gpu_hours", "the objective is not `fast`"),
];

/// Fields that have one value in this story, and why that is right.
const ONE_VALUE: &[(&str, &str)] = &[
    ("Attempt.epoch", "one leader"),
    ("AuditEntry.actor", "local mode; `access` has several"),
    ("AuditEntry.actor_kind", "local mode; `access` has tokens"),
    ("AuditEntry.times", "refusals are counted together after the first ten; `bounds` has some"),
    ("ClusterStatus.epoch", "one leader"),
    ("ClusterStatus.role", "one leader"),
    ("ClusterStatus.version", "one build"),
    ("ClusterStatus.online_nodes", "no agent is lost; `machines` loses one"),
    ("Event.epoch", "one leader"),
    ("ExpectedStart.ranges_right", "one range was told"),
    ("ExpectedStart.ranges_told", "the same"),
    ("Gpu.cooling_period", "a setting of the cluster"),
    ("Gpu.max_temperature", "a setting of the cluster"),
    ("Health.role", "one leader"),
    ("Health.status", "it is healthy"),
    ("Job.environment_hidden", "local mode; `access` hides some"),
    ("LogPiece.offset", "simulated jobs write nothing; `running` reads on from an offset"),
    ("LogPiece.rank", "the same"),
    ("LogPiece.stream", "the same"),
    ("MoveList.enabled", "a setting of the cluster"),
    ("Myself.name", "local mode"),
    ("Myself.role", "local mode"),
    ("Receipt.", "one job is preempted, once"),
    ("Tenant.fair_share_factor", "no tenant is far above its share"),
    ("Tenant.recent_gpus", "seconds are nothing to a half-life of days"),
    ("SoonerWith.keeps_its_place", "one change helps: a higher priority"),
    ("SoonerWith.words", "the same"),
    ("UsageReport.includes_running", "a word of what the sums mean"),
    ("Window.by", "local mode"),
];

#[test]
fn every_field_of_every_answer_has_a_value() {
    let house = House::with(&[], Some(NODES)).with_gpus(18);
    let mut seen = Seen::default();
    look_at_everything(&house, &mut seen);
    busy_story(&house);
    look_at_everything(&house, &mut seen);
    let problems = seen.problems();
    assert!(problems.is_empty(), "{} fields:\n{}", problems.len(), problems.join("\n"));
}

fn busy_story(house: &House) {
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
    assert_eq!(house.client().post("/api/v1/tenants", &tenant).status, 201);
    let off = json!({"name": "blue", "active": false, "allow_preemption": false, "can_preempt_others": false,
        "max_priority": 7000, "guaranteed_gpus": 1000});
    assert_eq!(house.client().post("/api/v1/tenants", &off).status, 201);
    machines(house);
    let ended = ended_jobs(house);
    running_jobs(house, &ended);
    waiting_jobs(house, &ended);
}

/// A declared node, a drained one, windows, partitions and verdicts.
fn machines(house: &House) {
    let declared = json!({"name": "soon", "cpu_cores": 4, "memory_mb": 4096, "hostname": "h", "ip_address": "10.0.0.9",
        "taints": ["new"], "gpus": [{"model": "NVIDIA A10", "memory_mb": 24576, "pcie_switch": 1}]});
    assert_eq!(house.client().post("/api/v1/nodes", &declared).status, 201);
    let later = json!({"name": "later", "nodes": ["soon"], "from": "2099-01-01T00:00:00Z", "duration": "2h"});
    assert_eq!(house.client().post("/api/v1/windows", &later).status, 201);
    let cut = json!({"profiles": ["3g.40gb", "2g.20gb", "1g.10gb"]});
    assert_eq!(house.client().patch("/api/v1/gpus/a02/7", &cut).status, 200);
    let bad = json!({"health": "unhealthy", "why": "smells"});
    assert_eq!(house.client().patch("/api/v1/gpus/soon/0", &bad).status, 200);
    assert_eq!(house.client().delete("/api/v1/tenants/nobody").status, 404);
    assert_eq!(house.client().post("/api/v1/nodes/soon/drain", &json!({"why": "firmware"})).status, 200);
    for (name, role, expires) in [("robot", "member", json!("1h")), ("boss", "admin", Value::Null)] {
        let mut token = json!({"name": name, "role": role, "expires_in": expires});
        if role == "member" {
            token["tenant_id"] = json!("red");
            token["max_priority"] = json!(7000);
        }
        token.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(house.client().post("/api/v1/tokens", &token).status, 201);
    }
}

/// A job of the story: everything has a name, and a runtime that tells how it ends.
fn job(name: &str, runtime: &str, more: Value) -> Value {
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

fn ended_jobs(house: &House) -> Vec<String> {
    let done = house.submit(job("done", "10ms", json!({"time_limit": "1h", "gpu_memory_mb": 1000,
        "labels": {"team": "x"}, "user": "ada", "environment": {"A": "1"}, "args": ["-v"], "directory": "/tmp",
        "gang_scheduling": false, "allow_cross_numa": true, "prefer_nvlink": true, "topology": "nvlink"})));
    house.until_state(&done, "completed");
    let failed =
        json!({"max_restarts": 1, "annotations": {"muster.sim/exit-code": "3"}, "on_node_lost": "requeue"});
    let failed = house.submit(job("failed", "10ms", failed));
    house.until_state(&failed, "failed");
    let unlaunched = json!({"max_requeues": 0, "annotations": {"muster.sim/launch": "refuse"}});
    let unlaunched = house.submit(job("unlaunched", "10ms", unlaunched));
    house.until("a failed launch", |house| house.get(&format!("/api/v1/jobs/{unlaunched}"))["attempts"] == 1);
    let cancelled = house.submit(job("cancelled", "1h", json!({})));
    house.until_state(&cancelled, "running");
    house.client().delete(&format!("/api/v1/jobs/{cancelled}"));
    house.until_state(&cancelled, "cancelled");
    vec![done, failed, cancelled]
}

fn running_jobs(house: &House, ended: &[String]) {
    let low = json!({"priority": 1, "gpu_count": 8, "checkpoint_path": "/ckpt", "annotations":
        {"muster.sim/temperature": "71"}});
    let low = house.submit(job("low", "1h", low));
    house.until_state(&low, "running");
    house.client().post(&format!("/api/v1/jobs/{low}/checkpoint"), &json!({}));
    let gang = json!({"priority": 5_000, "after": [{"job": ended[0]}], "tasks": [
        {"name": "worker", "count": 1, "max_count": 2, "gpus": 4, "gpu_models": ["A100"], "gpu_memory_mb": 1000,
         "cpu_cores": 2, "memory_mb": 2048}]});
    let gang = house.submit(job("gang", "1h", gang));
    house.until_state(&gang, "running");
    let high = house.submit(job("high", "1h", json!({"priority": 9_000, "gpu_count": 8})));
    house.until_state(&high, "running");
    house.until_state(&low, "preempted");
    for (name, more) in
        [("part", json!({"gpu_share": 0.25})), ("strict", json!({"gpu_share": 0.3, "isolation": "full"}))]
    {
        let part = house.submit(job(name, "1h", more));
        house.until("a part", |house| house.get(&format!("/api/v1/jobs/{part}"))["state"] != "pending");
    }
    let requeued = house.submit(json!({"name": "t4", "image": "cuda", "tenant_id": "red", "gpu_model": "T4",
        "annotations": {"muster.sim/runtime": "1h"}}));
    house.until_state(&requeued, "running");
    house.client().post(&format!("/api/v1/jobs/{requeued}/requeue"), &json!({}));
    house.until("a second try", |house| house.get(&format!("/api/v1/jobs/{requeued}"))["attempts"] == 2);
    let hot = house.submit(json!({"name": "hot", "command": ["train"], "gpu_model": "T4", "gpu_share": 0.5,
        "time_limit": "3h", "annotations": {"muster.sim/runtime": "1h", "muster.sim/temperature": "90"}}));
    house.until_state(&hot, "running");
    house.until("a GPU that cools", |house| {
        house.get("/api/v1/gpus").to_string().contains("\"thermal_throttle\":true")
    });
    for name in ["small", "tiny", "little"] {
        let limited = json!({"time_limit": "5h", "tenant_id": "default", "priority": 100});
        let limited = house.submit(job(name, "1h", limited));
        house.until_state(&limited, "running");
    }
    let window =
        json!({"name": "night", "nodes": ["t"], "duration": "1h", "tenant": "red", "why": "firmware"});
    assert_eq!(house.client().post("/api/v1/windows", &window).status, 201);
}

fn waiting_jobs(house: &House, ended: &[String]) {
    house.submit(json!({"name": "any", "command": ["train"], "gpu_count": 1}));
    let wide = house.submit(job("wide", "10m", json!({"gpu_count": 8, "priority": 100, "time_limit": "2h"})));
    house.submit(job(
        "half",
        "10m",
        json!({"priority": 100, "tasks": [{"name": "w", "count": 2, "gpus": 2}]}),
    ));
    let held = house.submit(job(
        "held",
        "1s",
        json!({"script": "x", "hold": true, "after": [{"job": ended[1], "when": "ended"}]}),
    ));
    house.client().post(&format!("/api/v1/jobs/{held}/hold"), &json!({"why": "not yet"}));
    house.submit(job("later", "1s", json!({"start_after": "2099-01-01T00:00:00Z"})));
    house.submit(job("array", "1h", json!({"array": "0-2%1", "gpu_count": 8})));
    house.submit(job("sweep", "1h", json!({"array": "3-9:2", "gpu_count": 8, "tenant_id": "default"})));
    let path = format!("/api/v1/jobs/{wide}");
    house.until("a forecast", |house| !house.get(&path)["estimated_wait"].is_null());
}

fn look_at_everything(house: &House, seen: &mut Seen) {
    let ids = |list: &str, key: &str| -> Vec<String> {
        let rows = house.get(list)[key].as_array().unwrap().clone();
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
        "usage",
        "usage?by=user",
        "usage?by=job",
        "audit",
        "moves",
    ] {
        seen.note(house, &format!("/api/v1/{list}"));
    }
    let arrays: BTreeSet<&str> = jobs.iter().filter_map(|job| Some(job.split_once('.')?.0)).collect();
    for job in jobs.iter().map(String::as_str).chain(arrays) {
        for part in ["", "/why", "/receipts", "/events", "/attempts", "/logs"] {
            seen.note(house, &format!("/api/v1/jobs/{job}{part}"));
        }
    }
    for node in ids("/api/v1/nodes", "nodes") {
        seen.note(house, &format!("/api/v1/nodes/{node}"));
    }
}

/// The values of each field, as text, by type and name.
#[derive(Default)]
struct Seen {
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Seen {
    fn note(&mut self, house: &House, path: &str) {
        let reply = house.client().get(path);
        if reply.status == 200 {
            schema::walk("GET", path, &reply.json(), &mut |field, value| {
                self.values.entry(field.to_string()).or_default().insert(value.to_string());
            });
        }
    }

    fn problems(&self) -> Vec<String> {
        let is_empty = |text: &String| ["null", "\"\"", "[]", "{}"].contains(&text.as_str());
        let known = |list: &[(&str, &str)], field: &str| {
            list.iter().any(|(known, _)| {
                *known == field || field.strip_prefix(known).is_some_and(|_| known.ends_with('.'))
            })
        };
        let mut problems = Vec::new();
        for field in schema::fields_of_answers("get") {
            let values = self.values.get(&field).cloned().unwrap_or_default();
            // Of a list or an object the fields of its parts are looked at.
            let is_compound = |text: &String| text.starts_with(['[', '{']);
            let filled = values.iter().filter(|text| !is_empty(text)).count();
            let filled = if values.iter().any(is_compound) { filled.min(1) * 2 } else { filled };
            let is_excused = known(NEVER_SEEN, &field);
            match filled {
                0 if !is_excused => problems.push(format!("{field} never has a value")),
                1.. if is_excused => problems.push(format!("{field} has a value: take it off the list")),
                1 if values.len() == 1 && !known(ONE_VALUE, &field) => {
                    problems.push(format!("{field} is always {}", values.first().map_or("", String::as_str)));
                }
                2.. if known(ONE_VALUE, &field) => {
                    problems.push(format!("{field} varies: take it off the list"))
                }
                _ => {}
            }
        }
        problems
    }
}
