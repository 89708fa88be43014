//! Access control: hosts, origins, tokens, roles, visibility of tenants, rate limits.

use std::sync::Arc;

use muster_core::Command;
use muster_core::facts::command::Actor;
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use serde_json::{Value, json};

use crate::client::{Client, HttpReply};
use crate::test_server::{TWO_NODES, TestServer};

#[test]
fn local_mode_refuses_foreign_hosts_and_origins() {
    let server = TestServer::without_nodes();
    let get = |headers: &[(&str, &str)]| server.client().send("GET", "/api/v1/jobs", headers, b"");
    assert_eq!(get(&[("Host", "localhost:8080")]).status, 200);
    server.expect_problem(&get(&[("Host", "evil.example")]), 421, "foreign-host");
    server.expect_problem(&get(&[("Host", "127.0.0.1.evil.example")]), 421, "foreign-host");
    for method in ["GET", "POST", "DELETE", "PATCH"] {
        let reply = server.client().send(method, "/api/v1/jobs/job-1", &[("Origin", "http://evil.example")], b"");
        server.expect_problem(&reply, 403, "foreign-origin");
    }
    server.expect_problem(&get(&[("Origin", "null")]), 403, "foreign-origin");
    let same = get(&[("Host", "localhost:1"), ("Origin", "http://localhost:1")]);
    assert_eq!((same.status, same.header("access-control-allow-origin")), (200, "http://localhost:1"));
    assert_eq!(get(&[]).header("access-control-allow-origin"), "");
}

#[test]
fn a_configured_cors_origin_may_call_and_gets_its_preflight() {
    let settings = [("api.cors_origins", "https://dash.example"), ("api.allowed_hosts", "muster.lab")];
    let server = TestServer::with_settings(&settings, None);
    let preflight = [
        ("Origin", "https://dash.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type"),
    ];
    let reply = server.client().send("OPTIONS", "/api/v1/jobs", &preflight, b"");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), "https://dash.example");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert!(reply.header("access-control-allow-methods").contains(method), "{method}");
    }
    assert!(reply.header("access-control-allow-headers").contains("Authorization"));
    let reply =
        server.client().send("GET", "/health", &[("Origin", "https://dash.example"), ("Host", "muster.lab")], b"");
    assert_eq!((reply.status, reply.header("vary")), (200, "Origin"));
    let other = server.client().send("OPTIONS", "/api/v1/jobs", &[("Origin", "https://other.example")], b"");
    server.expect_problem(&other, 403, "foreign-origin");
    assert_eq!(server.client().send("OPTIONS", "/api/v1/jobs", &[], b"").status, 200);
}

#[test]
fn a_wrong_method_is_405_with_the_allowed_methods() {
    let server = TestServer::without_nodes();
    let reply = server.client().send("PUT", "/api/v1/tenants", &[], b"");
    server.expect_problem(&reply, 405, "wrong-method");
    assert_eq!(reply.header("allow"), "GET, POST");
}

#[test]
fn requests_above_the_rate_limit_are_429() {
    let server = TestServer::with_settings(&[("api.rate_limit_rps", "5")], None);
    let replies: Vec<HttpReply> = (0..40).map(|_| server.client().get("/api/v1/whoami")).collect();
    let flooded = replies.iter().find(|reply| reply.status == 429).expect("a refusal");
    server.expect_problem(flooded, 429, "rate-limited");
    assert_eq!(flooded.header("retry-after"), "1");
    assert_eq!(server.client().get("/healthz").status, 200, "health is never limited");
}

/// A server with tokens, clients of every role in tenant `red`, and a member of `blue`.
struct RoleClients {
    server: TestServer,
    viewer: Client,
    member: Client,
    tenant_admin: Client,
    operator: Client,
    blue_member: Client,
}

fn role_clients() -> RoleClients {
    let server = TestServer::with_settings(&[("auth.mode", "tokens")], Some(TWO_NODES)).wait_for_gpus(8);
    let admin = server.client().clone();
    for tenant in ["red", "blue"] {
        assert_eq!(admin.post("/api/v1/tenants", &json!({"name": tenant})).status, 201);
    }
    let client = |role: &str, tenant: Option<&str>| {
        let body = json!({"name": format!("{role}-{}", tenant.unwrap_or("all")), "role": role, "tenant_id": tenant});
        let reply = admin.post("/api/v1/tokens", &body);
        assert_eq!(reply.status, 201, "{}", reply.text);
        admin.with_token(reply.json()["secret"].as_str().unwrap())
    };
    RoleClients {
        viewer: client("viewer", Some("red")),
        member: client("member", Some("red")),
        tenant_admin: client("tenant-admin", Some("red")),
        operator: client("operator", None),
        blue_member: client("member", Some("blue")),
        server,
    }
}

#[test]
fn a_caller_without_token_reads_only_the_public_routes() {
    let RoleClients { server, .. } = role_clients();
    let anonymous = server.client().anonymous();
    for path in
        ["/api/v1/jobs", "/api/v1/tenants", "/api/v1/nodes", "/api/v1/cluster/status", "/api/v1/events", "/metrics"]
    {
        server.expect_problem(&anonymous.get(path), 401, "unauthorized");
    }
    server.expect_problem(&anonymous.with_token("mst_x_y").get("/api/v1/jobs"), 401, "unauthorized");
    for path in ["/", "/health", "/healthz", "/readyz", "/api/v1/health", "/api/v1/docs", "/api/v1/openapi.json"] {
        assert_eq!(anonymous.get(path).status, 200, "{path}");
    }
}

#[test]
fn each_role_is_confined_to_its_routes_and_denials_are_audited() {
    let RoleClients { server, viewer, member, tenant_admin, operator, .. } = role_clients();
    assert_eq!(
        viewer.get("/api/v1/whoami").json(),
        json!({"name": "viewer-red", "role": "viewer", "tenant_id": "red"})
    );
    let job = json!({"script": "x", "hold": true});
    server.expect_problem(&viewer.post("/api/v1/jobs", &job), 403, "forbidden");
    assert_eq!(member.post("/api/v1/jobs", &job).status, 201);
    server.expect_problem(&member.post("/api/v1/tenants", &json!({"name": "x"})), 403, "forbidden");
    server.expect_problem(&member.post("/api/v1/nodes/n01/drain", &json!({})), 403, "forbidden");
    let whole = json!({"profiles": []});
    server.expect_problem(&tenant_admin.post("/api/v1/gpus/n01/0/partition", &whole), 403, "forbidden");
    assert_eq!(operator.post("/api/v1/gpus/n01/0/partition", &whole).status, 200);
    server.expect_problem(&member.get("/api/v1/tokens"), 403, "forbidden");
    server.expect_problem(&tenant_admin.get("/api/v1/audit"), 403, "forbidden");
    server.expect_problem(&operator.post("/api/v1/tenants", &json!({"name": "x"})), 403, "forbidden");
    assert_eq!(operator.post("/api/v1/nodes/n01/drain", &json!({})).status, 200);
    server.expect_problem(&member.post("/api/v1/jobs", &json!({"script": "x", "user": "somebody"})), 403, "forbidden");
    let owned = server.client().get("/api/v1/jobs/job-1").json();
    assert_eq!((owned["tenant_id"].as_str(), owned["user"].as_str()), (Some("red"), Some("member-red")));

    let audit = server.client().get("/api/v1/audit?limit=1000").json();
    let refused = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["refused"] == "forbidden");
    let acts: Vec<Value> = refused.map(|entry| json!([entry["actor"], entry["action"]])).collect();
    assert!(acts.contains(&json!(["member-red", "POST /api/v1/nodes/{id}/drain"])), "{acts:?}");
}

#[test]
fn a_tenant_on_a_shared_gpu_does_not_see_jobs_of_other_tenants() {
    let RoleClients { server, member, blue_member: blue, .. } = role_clients();
    let half = json!({"command": ["x"], "gpu_share": 0.5, "annotations": {"muster.sim/runtime": "1h"}});
    let ids = [&member, &blue].map(|client| {
        let id = client.post("/api/v1/jobs", &half).json()["job_id"].as_str().unwrap().to_string();
        (server.wait_for_state(&id, "running")["allocated_gpus"][0].clone(), id)
    });
    assert_eq!(ids[0].0, ids[1].0, "the jobs share a GPU");
    let gpu = ids[0].0.as_str().unwrap().replace("gpu-", "");
    for (client, own_job) in [(&member, &ids[0].1), (&blue, &ids[1].1)] {
        let shown = client.get(&format!("/api/v1/gpus/{gpu}")).json();
        assert_eq!(shown["used_milli"], 1_000);
        let jobs: Vec<&Value> = shown["holders"].as_array().unwrap().iter().map(|one| &one["job_id"]).collect();
        assert_eq!(jobs, vec![&json!(own_job)]);
    }
}

#[test]
fn objects_of_other_tenants_are_404() {
    let RoleClients { server, member, blue_member: blue, .. } = role_clients();
    let id = member
        .post("/api/v1/jobs", &json!({"command": ["x"], "annotations": {"muster.sim/runtime": "1h"}}))
        .json()["job_id"]
        .as_str()
        .unwrap()
        .to_string();
    server.wait_for_state(&id, "running");
    let path = format!("/api/v1/jobs/{id}");
    for rest in ["", "/why", "/events", "/attempts", "/logs", "/logs?format=raw", "/logs?tail=1"] {
        assert_eq!(member.get(&format!("{path}{rest}")).status, 200, "{rest}");
        server.expect_problem(&blue.get(&format!("{path}{rest}")), 404, "unknown-job");
    }
    assert_eq!(blue.stream_status(&format!("{path}/logs?follow=true")), 404);
    assert_eq!(member.anonymous().stream_status(&format!("{path}/logs?follow=true&tail=1")), 401);
    assert_eq!(member.anonymous().stream_status(&format!("{path}/logs?format=raw")), 401);
    server.expect_problem(&blue.delete(&path), 404, "unknown-job");
    server.expect_problem(&blue.patch(&path, &json!({"name": "mine"})), 404, "unknown-job");
    server.expect_problem(&blue.post(&format!("{path}/hold"), &json!({})), 404, "unknown-job");
    server.expect_problem(&blue.get(&format!("/api/v1/allocations/{id}:1")), 404, "unknown-allocation");
    server.expect_problem(&blue.delete(&format!("/api/v1/allocations/{id}:1")), 404, "unknown-allocation");
    server.expect_problem(&blue.get("/api/v1/tenants/red"), 404, "unknown-tenant");
    server.expect_problem(
        &blue.post("/api/v1/jobs", &json!({"script": "x", "tenant_id": "red"})),
        404,
        "unknown-tenant",
    );
    server.expect_problem(
        &blue.post("/api/v1/jobs", &json!({"script": "x", "after": [format!("{id}:ended")]})),
        404,
        "unknown-job",
    );
    for list in
        ["/api/v1/jobs", "/api/v1/jobs?tenant_id=red", "/api/v1/allocations", "/api/v1/allocations?tenant_id=red"]
    {
        assert_eq!(blue.get(list).json()["total"], 0, "{list}");
    }
    assert_eq!(blue.get("/api/v1/tenants").json()["total"], 1);
    assert_eq!(blue.get("/api/v1/usage?tenant_id=red").json()["rows"], json!([]));

    let held = |client: &Client| client.get("/api/v1/gpus?state=held").json()["gpus"][0].clone();
    assert_eq!(held(&member)["job_id"], id.as_str());
    assert_eq!((held(&blue)["allocated"].as_bool(), &held(&blue)["job_id"]), (Some(true), &json!(null)));
}

#[test]
fn an_event_stream_shows_only_events_of_the_callers_tenant() {
    let RoleClients { server, member, blue_member: blue, .. } = role_clients();
    let mut stream = blue.stream("/api/v1/events?after=0", &[]);
    member.post("/api/v1/jobs", &json!({"script": "red", "hold": true}));
    blue.post("/api/v1/jobs", &json!({"script": "blue", "hold": true}));
    let events: Vec<_> = stream.by_ref().take_while(|event| event.event != "JobSubmitted").collect();
    assert!(
        events.iter().all(|event| event.event.starts_with("Node") || event.data["data"]["id"] == "blue"),
        "{events:?}"
    );
    drop(stream);
    let mut again = blue.stream("/api/v1/events?after=0", &[]);
    let submitted = again.find(|event| event.event == "JobSubmitted").unwrap();
    assert_eq!(submitted.data["data"]["spec"]["tenant"], "blue");
    let all: Vec<_> = server.client().stream("/api/v1/events?after=0", &[]).take(20).collect();
    let token = all.iter().find(|event| event.event == "TokenAdded").expect("an admin sees events of tokens");
    assert_eq!(token.data["data"]["token"]["hash"], json!(null), "without their hashes");
}

#[test]
fn a_tenant_admin_creates_lists_and_revokes_tokens_of_its_tenant_only() {
    let RoleClients { server, tenant_admin, .. } = role_clients();
    let make = |client: &Client, body: Value| client.post("/api/v1/tokens", &body);
    let made = make(&tenant_admin, json!({"name": "ci", "role": "member", "expires_in": "30d"}));
    assert_eq!((made.status, made.json()["tenant_id"].as_str()), (201, Some("red")));
    let bearer = server.client().with_token(made.json()["secret"].as_str().unwrap());
    assert_eq!(bearer.get("/api/v1/whoami").json()["name"], "ci");
    assert_eq!(tenant_admin.get("/api/v1/tokens").json()["total"], 4, "three of the setup and this one");
    assert!(!tenant_admin.get("/api/v1/tokens").text.contains("hash"));

    server.expect_problem(&make(&tenant_admin, json!({"name": "x", "role": "admin"})), 403, "forbidden");
    server.expect_problem(
        &make(&tenant_admin, json!({"name": "x", "role": "member", "tenant_id": "blue"})),
        404,
        "unknown-tenant",
    );
    server.expect_problem(&make(server.client(), json!({"name": "x", "role": "king"})), 422, "invalid");
    server.expect_problem(&make(server.client(), json!({"name": "", "role": "admin"})), 422, "invalid");
    server.expect_problem(
        &make(server.client(), json!({"name": "x", "role": "admin", "tenant_id": "red"})),
        422,
        "invalid",
    );

    let admin_id = server.client().get("/api/v1/tokens").json()["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["role"] == "admin")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_string();
    server.expect_problem(&tenant_admin.delete(&format!("/api/v1/tokens/{admin_id}")), 404, "unknown-token");
    let id = made.json()["id"].as_str().unwrap().to_string();
    assert_eq!(tenant_admin.delete(&format!("/api/v1/tokens/{id}")).status, 200);
    server.expect_problem(&bearer.get("/api/v1/whoami"), 401, "unauthorized");
}

#[test]
fn open_streams_per_caller_are_limited_and_closed_ones_are_released() {
    let server = TestServer::without_nodes();
    let mut open: Vec<_> = (0..64).map(|_| server.client().stream("/api/v1/events", &[])).collect();
    assert_eq!(server.client().stream_status("/api/v1/events"), 429);
    open.truncate(32);
    // The server notices a closed stream when it writes to it.
    server.submit(json!({"script": "x"}));
    server.wait_until("a stream to be free", |server| server.client().stream_status("/api/v1/events") == 200);
}

#[test]
fn an_expired_token_is_refused() {
    let RoleClients { server, .. } = role_clients();
    let made =
        server.client().post("/api/v1/tokens", &json!({"name": "short", "role": "operator", "expires_in": "300ms"}));
    let short = server.client().with_token(made.json()["secret"].as_str().unwrap());
    server.wait_until("the token to expire", |_| short.get("/api/v1/whoami").status == 401);
}

/// A client with a token of its own in tenant `red`.
fn red_member(server: &TestServer, name: &str, more: Value) -> Client {
    let mut body = json!({"name": name, "role": "member", "tenant_id": "red"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = server.client().post("/api/v1/tokens", &body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    server.client().with_token(reply.json()["secret"].as_str().unwrap())
}

#[test]
fn a_priority_above_the_callers_ceiling_is_refused_and_preempts_nothing() {
    let RoleClients { server, member, tenant_admin, operator, blue_member: blue, .. } = role_clients();
    let running = blue.post(
        "/api/v1/jobs",
        &json!({"tasks": [{"count": 2, "gpus": 4}], "command": ["x"], "priority": 500,
            "annotations": {"muster.sim/runtime": "1h"}}),
    );
    server.wait_for_state(running.json()["job_id"].as_str().unwrap(), "running");
    let job_body = |priority: Value| json!({"gpu_count": 4, "command": ["x"], "priority": priority});
    for client in [&member, &tenant_admin] {
        let refused = client.post("/api/v1/jobs", &job_body(json!(10_000)));
        server.expect_problem(&refused, 403, "over-priority-ceiling");
        let problem = refused.json();
        assert_eq!(
            problem["detail"],
            "priority 10000 is above the ceiling of 500, which comes from tier `medium` of tenant `red`"
        );
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains("ask an admin") && hint.contains("--max-priority"), "{hint}");
        let planned = client.post("/api/v1/jobs/plan", &job_body(json!("critical"))).json();
        assert_eq!(
            (planned["outcome"].as_str(), planned["refusal"]["code"].as_str()),
            (Some("refused"), Some("over-priority-ceiling"))
        );
    }
    let job = member.post("/api/v1/jobs", &job_body(json!(500))).json()["job_id"].as_str().unwrap().to_string();
    let path = format!("/api/v1/jobs/{job}");
    server.expect_problem(&member.patch(&path, &json!({"priority": 501})), 403, "over-priority-ceiling");
    assert_eq!(
        server.client().get(&format!("/api/v1/jobs/{}", running.json()["job_id"].as_str().unwrap())).json()["state"],
        "running"
    );

    // A caller can grant only priorities that it may give itself.
    let grant = json!({"name": "x", "role": "member", "max_priority": 2_000});
    server.expect_problem(&tenant_admin.post("/api/v1/tokens", &grant), 403, "over-priority-ceiling");
    let granted = red_member(&server, "member-red", json!({"max_priority": 2_000}));
    assert_eq!(granted.patch(&path, &json!({"priority": 2_000, "name": "urgent"})).status, 200);
    assert_eq!(
        server.client().patch("/api/v1/tenants/red", &json!({"max_priority": 3_000})).json()["max_priority"],
        3_000
    );
    assert_eq!(member.patch(&path, &json!({"priority": 3_000})).status, 200);
    assert_eq!(
        server.client().patch("/api/v1/tenants/red", &json!({"max_priority": null})).json()["max_priority"],
        json!(null)
    );
    server.expect_problem(
        &server.client().patch("/api/v1/tenants/red", &json!({"max_priority": 10_001})),
        422,
        "invalid",
    );
    assert_eq!(operator.patch(&path, &json!({"priority": 10_000})).status, 200);
}

#[test]
fn a_default_priority_above_the_ceiling_is_lowered_to_the_ceiling() {
    let settings = [("auth.mode", "tokens"), ("scheduler.default_priority", "900")];
    let server = TestServer::with_settings(&settings, Some(TWO_NODES));
    assert_eq!(server.client().post("/api/v1/tenants", &json!({"name": "red"})).status, 201);
    let id = red_member(&server, "ann", json!({})).post("/api/v1/jobs", &json!({"script": "x", "hold": true})).json();
    assert_eq!(
        server.client().get(&format!("/api/v1/jobs/{}", id["job_id"].as_str().unwrap())).json()["priority"],
        500
    );
}

#[test]
fn a_member_cannot_change_a_colleagues_job_and_gets_no_remedies_for_it() {
    let RoleClients { server, viewer, member, tenant_admin, operator, .. } = role_clients();
    let colleague = red_member(&server, "bob", json!({}));
    let long = json!({"tasks": [{"count": 2, "gpus": 4}], "command": ["x"],
        "annotations": {"muster.sim/runtime": "1h"}});
    let id = |reply: HttpReply| reply.json()["job_id"].as_str().unwrap().to_string();
    let running = id(member.post("/api/v1/jobs", &long));
    server.wait_for_state(&running, "running");
    let waiting = id(member.post("/api/v1/jobs", &long));
    let path = format!("/api/v1/jobs/{running}");
    for client in [&colleague, &viewer] {
        let code = |client: &Client| if std::ptr::eq(client, &viewer) { "forbidden" } else { "not-owner" };
        server.expect_problem(&client.delete(&path), 403, code(client));
        server.expect_problem(&client.patch(&path, &json!({"priority": 1})), 403, code(client));
        for verb in ["hold", "requeue", "checkpoint"] {
            server.expect_problem(&client.post(&format!("{path}/{verb}"), &json!({})), 403, code(client));
        }
        server.expect_problem(&client.delete(&format!("/api/v1/allocations/{running}:1")), 403, code(client));
    }
    let why = |client: &Client| client.get(&format!("/api/v1/jobs/{waiting}/why")).json();
    let sooner = |client: &Client| why(client)["sooner_with"].as_array().unwrap().len();
    server.wait_until("a verdict", |_| sooner(&member) > 0);
    assert_eq!((sooner(&colleague), sooner(&viewer)), (0, 0));
    assert_eq!((&why(&colleague)["may_change"], &why(&member)["may_change"]), (&json!(false), &json!(true)));
    let priorities = |client: &Client| {
        let all = why(client)["sooner_with"].as_array().unwrap().clone();
        all.into_iter()
            .filter(|one| one["change"]["change"] == "priority")
            .map(|one| one["change"]["priority"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(priorities(&member), vec![json!(500)], "within the ceiling");
    assert_eq!(server.client().patch("/api/v1/tenants/red", &json!({"priority_tier": "low"})).status, 200);
    assert_eq!(priorities(&member), Vec::<Value>::new(), "500 is above the ceiling of tier `low`");
    assert_eq!(priorities(&operator), vec![json!(500)]);
    assert_eq!(tenant_admin.delete(&path).status, 200);
    assert_eq!(member.delete(&format!("/api/v1/jobs/{waiting}")).status, 200);
    let audit = server.client().get("/api/v1/audit?limit=1000").json();
    let tried = json!(["bob", "job.cancel", "not-owner"]);
    let all = audit["entries"].as_array().unwrap().iter();
    assert!(
        all.clone()
            .any(|one| json!([one["actor"], one["action"], one["refused"]]) == tried && one["actor_kind"] == "token"),
        "{audit}"
    );
}

#[test]
fn only_the_owner_and_the_administrators_of_a_job_enter_it_and_each_try_is_audited() {
    let RoleClients { server, viewer, member, tenant_admin, operator, .. } = role_clients();
    let colleague = red_member(&server, "bob", json!({}));
    let body = json!({"command": ["x"], "annotations": {"muster.sim/runtime": "1h"}});
    let running = member.post("/api/v1/jobs", &body).json()["job_id"].as_str().unwrap().to_string();
    server.wait_for_state(&running, "running");
    let path = format!("/api/v1/jobs/{running}/exec");
    let upgrade = [("Content-Type", "application/json"), ("Connection", "Upgrade"), ("Upgrade", "muster-exec")];
    let exec = |client: &Client, body: &Value| client.send("POST", &path, &upgrade, &muster_json::to_vec(body));
    let shell = json!({"command": ["sh", "-c", "id"]});
    server.expect_problem(&exec(&viewer, &shell), 403, "forbidden");
    server.expect_problem(&exec(&colleague, &shell), 403, "not-owner");
    // Allowed; a simulated job has no processes.
    for client in [&member, &tenant_admin, &operator] {
        server.expect_problem(&exec(client, &shell), 409, "node-simulated");
    }
    server.expect_problem(&exec(&member, &json!({"command": ["x"], "rank": 7})), 404, "unknown-task");
    let both = json!({"command": ["x"], "copy": {"direction": "out", "path": "x"}});
    server.expect_problem(&exec(&member, &both), 422, "invalid");
    server.expect_problem(&member.post(&path, &shell), 426, "upgrade-required");
    let audit = server.client().get("/api/v1/audit?limit=1000").json();
    let object = format!("{running}: sh -c id");
    let count = |refused: Value| {
        let entries = audit["entries"].as_array().unwrap().iter();
        let is_one =
            |one: &&Value| one["action"] == "job.exec" && one["object"] == object.as_str() && one["refused"] == refused;
        entries.filter(is_one).count()
    };
    assert_eq!((count(Value::Null), count(json!("not-owner"))), (3, 1), "{audit}");
}

#[test]
fn mine_lists_only_jobs_of_the_caller() {
    let RoleClients { server, member, .. } = role_clients();
    let colleague = red_member(&server, "bob", json!({}));
    let held = json!({"script": "x", "hold": true});
    for client in [&member, &colleague] {
        assert_eq!(client.post("/api/v1/jobs", &held).status, 201);
    }
    let mine = |client: &Client, more: &str| {
        let jobs = client.get(&format!("/api/v1/jobs?mine=true{more}")).json()["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!((mine(&member, ""), mine(&colleague, "&limit=1")), (vec!["job-1".into()], vec!["job-2".into()]));
    assert_eq!(mine(&member, "&user=bob"), Vec::<String>::new());
    assert_eq!(mine(server.client(), ""), Vec::<String>::new(), "an admin has submitted nothing");
    let local = TestServer::without_nodes();
    local.submit(json!({"script": "x", "user": "someone"}));
    assert_eq!(mine(local.client(), "").len(), 1, "without tokens every job is the caller's");
}

#[test]
fn environment_values_are_shown_only_to_the_job_owner() {
    let RoleClients { server, viewer, member, tenant_admin, operator, .. } = role_clients();
    let job = json!({"script": "x", "hold": true, "environment": {"API_KEY": "s3cr3t"}});
    let id = member.post("/api/v1/jobs", &job).json()["job_id"].as_str().unwrap().to_string();
    let path = format!("/api/v1/jobs/{id}");
    let own = member.get(&path).json();
    assert_eq!((&own["environment"]["API_KEY"], &own["environment_hidden"]), (&json!("s3cr3t"), &json!(false)));
    let admin = server.client();
    for client in [&red_member(&server, "bob", json!({})), &viewer, &tenant_admin, &operator, admin] {
        let shown = client.get(&path).json();
        assert_eq!((&shown["environment"], &shown["environment_hidden"]), (&json!({"API_KEY": "***"}), &json!(true)));
        for rest in ["", "/why", "/events", "/attempts", "/receipts"] {
            let text = client.get(&format!("{path}{rest}")).text;
            assert!(!text.contains("s3cr3t"), "{rest}: {text}");
        }
    }
    let submitted = admin.stream("/api/v1/events?after=0", &[]).find(|event| event.event == "JobSubmitted").unwrap();
    assert_eq!(submitted.data["data"]["spec"]["run"]["env"], json!({"API_KEY": "***"}));
    let local = TestServer::without_nodes();
    let id = local.submit(json!({"script": "x", "user": "someone", "environment": {"A": "b"}}));
    assert_eq!(local.get(&format!("/api/v1/jobs/{id}"))["environment"]["A"], "b", "local mode has one owner");
}

#[test]
fn streams_end_with_a_problem_event_when_their_token_is_revoked_or_expires() {
    let RoleClients { server, member, .. } = role_clients();
    let admin = server.client();
    let long = json!({"command": ["x"], "annotations": {"muster.sim/runtime": "1h"}});
    let job = member.post("/api/v1/jobs", &long).json()["job_id"].as_str().unwrap().to_string();
    server.wait_for_state(&job, "running");
    let logs = format!("/api/v1/jobs/{job}/logs?follow=true");
    let token = |name: &str, more: Value| {
        let mut body = json!({"name": name, "role": "member", "tenant_id": "red"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        admin.post("/api/v1/tokens", &body).json()
    };
    let revoked = token("leaver", json!({}));
    let short = token("short", json!({"expires_in": "4s"}));
    let client = |token: &Value| admin.with_token(token["secret"].as_str().unwrap());
    let open = |token: &Value| ["/api/v1/events", logs.as_str()].map(|path| client(token).stream(path, &[]));
    let (of_revoked, of_short) = (open(&revoked), open(&short));
    let id = revoked["id"].as_str().unwrap();
    assert_eq!(admin.delete(&format!("/api/v1/tokens/{id}")).status, 200);
    // The job keeps running, so only the token check ends the streams.
    for (streams, why) in [(of_revoked, "was revoked"), (of_short, "has expired")] {
        for stream in streams {
            let last = stream.last().expect("a last event");
            assert_eq!((last.event.as_str(), last.data["code"].as_str()), ("problem", Some("token-ended")));
            let detail = last.data["detail"].as_str().unwrap();
            assert!(detail.ends_with(why), "{detail}");
        }
    }
}

#[test]
fn a_token_cannot_have_the_name_of_a_system_actor() {
    let RoleClients { server, tenant_admin, .. } = role_clients();
    for name in ["muster", "admin", "local", "system", "policies.dir", "Admin", " muster "] {
        let body = json!({"name": name, "role": "member", "tenant_id": "red"});
        for client in [&tenant_admin, server.client()] {
            server.expect_problem(&client.post("/api/v1/tokens", &body), 422, "reserved-name");
        }
    }
    let audit = server.client().get("/api/v1/audit?limit=1000").json();
    let refused = audit["entries"].as_array().unwrap().iter().filter(|one| one["refused"] == "reserved-name");
    assert_eq!(refused.count(), 14, "{audit}");
}

/// Sources of policies may name projects and budgets, so only their tenant and operators may read them.
#[test]
fn policies_of_other_tenants_are_404() {
    let RoleClients { server, member, operator, blue_member: blue, .. } = role_clients();
    let files = [("a.gsky".to_string(), "# red alone".to_string())].into();
    let bundle = Arc::new(PolicyBundle { hash: "red".to_string(), files, ..PolicyBundle::default() });
    let scope = PolicyScope::Tenant("red".parse().unwrap());
    let apply = Command::ApplyPolicy { scope, bundle, why: String::new() };
    server.cluster().execute_blocking(Actor::local("test"), apply).unwrap();
    let list = |client: &Client, query: &str| client.get(&format!("/api/v1/policies{query}")).json();
    let number = list(&member, "")["policies"][0]["version"].clone();
    let path = format!("/api/v1/policies/{number}");
    for query in ["", "?tenant_id=red"] {
        for (client, total) in [(&member, 1), (&operator, 1), (&blue, 0)] {
            assert_eq!(list(client, query)["total"], total, "{query}");
        }
    }
    assert!(member.get(&path).text.contains("red alone") && operator.get(&path).text.contains("red alone"));
    server.expect_problem(&blue.get(&path), 404, "unknown-policy");
}

#[test]
fn a_tenant_admin_rolls_back_the_policies_of_its_tenant() {
    let RoleClients { server, member, tenant_admin, operator, .. } = role_clients();
    let roll_back = |client: &Client, body: Value| client.post("/api/v1/policies/rollback", &body);
    for body in [json!({}), json!({"tenant_id": "red"})] {
        let detail = server.expect_problem(&roll_back(&tenant_admin, body), 404, "unknown-policy");
        assert!(detail.contains("tenant red"), "{detail}");
    }
    server.expect_problem(&roll_back(&tenant_admin, json!({"tenant_id": "blue"})), 404, "unknown-tenant");
    server.expect_problem(&roll_back(&member, json!({})), 403, "forbidden");
    server.expect_problem(&roll_back(&operator, json!({})), 403, "forbidden");
}

#[test]
fn server_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    fn files_open_to_others(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let metadata = std::fs::symlink_metadata(&entry).unwrap();
            if metadata.permissions().mode() & 0o077 != 0 {
                found.push(format!("{} {:04o}", entry.display(), metadata.permissions().mode() & 0o7777));
            }
            if metadata.is_dir() {
                files_open_to_others(&entry, found);
            }
        }
    }
    let RoleClients { server, member, .. } = role_clients();
    let job = json!({"command": ["x"], "annotations": {"muster.sim/runtime": "10ms"}});
    let id = member.post("/api/v1/jobs", &job).json()["job_id"].as_str().unwrap().to_string();
    server.wait_for_state(&id, "completed");
    assert!(server.data_dir().join("muster.db-wal").exists(), "the write-ahead log of the database exists");
    let mut found = Vec::new();
    files_open_to_others(server.data_dir(), &mut found);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(std::fs::metadata(server.data_dir()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn secrets_follow_the_roles_and_are_never_shown() {
    let RoleClients { server, viewer, member, tenant_admin, operator, blue_member: blue } = role_clients();
    let value = "aHVudGVyMg=="; // hunter2
    let put = |client: &Client, name: &str, more: Value| {
        let mut body = json!({"value": value});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.put(&format!("/api/v1/secrets/{name}"), &body)
    };
    let own = put(&member, "TOKEN", json!({}));
    assert_eq!(
        (own.status, own.json()["user"].as_str(), own.json()["bytes"].as_u64()),
        (200, Some("member-red"), Some(7))
    );
    server.expect_problem(&put(&viewer, "TOKEN", json!({})), 403, "forbidden");
    server.expect_problem(&put(&member, "SHARED", json!({"shared": true})), 403, "not-own-secret");
    server.expect_problem(&put(&member, "TOKEN", json!({"user": "somebody"})), 403, "not-own-secret");
    server.expect_problem(&put(&blue, "TOKEN", json!({"tenant_id": "red"})), 404, "unknown-tenant");
    assert_eq!(put(&tenant_admin, "SHARED", json!({"shared": true})).status, 200);
    assert_eq!(put(&tenant_admin, "OTHERS", json!({"user": "somebody"})).status, 200);

    let names = |client: &Client| -> Vec<String> {
        let list = client.get("/api/v1/secrets").json();
        list["secrets"].as_array().unwrap().iter().map(|secret| secret["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!((names(&member), names(&blue)), (vec!["SHARED".to_string(), "TOKEN".to_string()], Vec::new()));
    assert_eq!((names(&tenant_admin).len(), names(&operator).len()), (3, 3));
    server.expect_problem(&viewer.get("/api/v1/secrets"), 403, "forbidden");

    let submit =
        |client: &Client, secrets: Value| client.post("/api/v1/jobs", &json!({"script": "x", "secrets": secrets}));
    let accepted = submit(&member, json!(["TOKEN", "SHARED=shared.txt"]));
    let job = accepted.json()["job_id"].as_str().unwrap_or(&accepted.text).to_string();
    let shown = member.get(&format!("/api/v1/jobs/{job}"));
    assert_eq!(shown.json()["secrets"], json!(["TOKEN", "SHARED=shared.txt"]));
    server.wait_until("a simulated node to take the job", |_| {
        member.get(&format!("/api/v1/jobs/{job}")).json()["state"] != "pending"
    });
    server.expect_problem(&submit(&blue, json!(["TOKEN"])), 404, "unknown-secret");
    server.expect_problem(&submit(&member, json!(["OTHERS"])), 404, "unknown-secret");
    server.expect_problem(&submit(&member, json!(["TOKEN=a/b"])), 422, "invalid");
    server.expect_problem(&submit(&member, json!(["TOKEN", "SHARED=TOKEN"])), 422, "invalid");

    let wrong = |name: &str, value: String| member.put(&format!("/api/v1/secrets/{name}"), &json!({"value": value}));
    for name in ["1ST", "A-B", "..", "A%2FB"] {
        let status = wrong(name, value.to_string()).status;
        assert!(status == 422 || status == 404, "{name}: {status}");
    }
    server.expect_problem(&wrong("BIG", "QUFB".repeat(21_846)), 422, "invalid");
    let reply = wrong("TOKEN", "hunter2 in clear".to_string());
    server.expect_problem(&reply, 400, "malformed");
    assert!(!reply.text.contains("hunter2"), "{}", reply.text);

    server.expect_problem(&member.delete("/api/v1/secrets/SHARED?shared=true"), 403, "not-own-secret");
    assert_eq!(member.delete("/api/v1/secrets/TOKEN").status, 200);
    server.expect_problem(&member.delete("/api/v1/secrets/TOKEN"), 404, "unknown-secret");
    let audit = operator.get("/api/v1/audit?limit=1000").text;
    assert!(audit.contains("secret.set") && audit.contains("red/member-red/TOKEN"), "{audit}");
    for text in [audit, operator.get("/api/v1/secrets").text, shown.text] {
        assert!(!text.contains("hunter2") && !text.contains(value), "{text}");
    }
}
