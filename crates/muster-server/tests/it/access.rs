//! Who may do what: hosts, origins, tokens, roles, tenants, and how often.

use std::sync::Arc;

use muster_core::Command;
use muster_core::command::Actor;
use muster_core::policy::{Bundle, Scope};
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::house::{House, TWO_NODES};

#[test]
fn without_tokens_only_our_own_names_and_pages_are_answered() {
    let house = House::empty();
    let get = |headers: &[(&str, &str)]| house.client().send("GET", "/api/v1/jobs", headers, b"");
    assert_eq!(get(&[("Host", "localhost:8080")]).status, 200);
    house.refused(&get(&[("Host", "evil.example")]), 421, "foreign-host");
    house.refused(&get(&[("Host", "127.0.0.1.evil.example")]), 421, "foreign-host");
    for method in ["GET", "POST", "DELETE", "PATCH"] {
        let reply =
            house.client().send(method, "/api/v1/jobs/job-1", &[("Origin", "http://evil.example")], b"");
        house.refused(&reply, 403, "foreign-origin");
    }
    house.refused(&get(&[("Origin", "null")]), 403, "foreign-origin");
    let same = get(&[("Host", "localhost:1"), ("Origin", "http://localhost:1")]);
    assert_eq!((same.status, same.header("access-control-allow-origin")), (200, "http://localhost:1"));
    assert_eq!(get(&[]).header("access-control-allow-origin"), "");
}

#[test]
fn a_configured_page_may_call_and_its_preflight_is_answered() {
    let settings = [("api.cors_origins", "https://dash.example"), ("api.allowed_hosts", "muster.lab")];
    let house = House::with(&settings, None);
    let preflight = [
        ("Origin", "https://dash.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type"),
    ];
    let reply = house.client().send("OPTIONS", "/api/v1/jobs", &preflight, b"");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), "https://dash.example");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert!(reply.header("access-control-allow-methods").contains(method), "{method}");
    }
    assert!(reply.header("access-control-allow-headers").contains("Authorization"));
    let reply = house.client().send(
        "GET",
        "/health",
        &[("Origin", "https://dash.example"), ("Host", "muster.lab")],
        b"",
    );
    assert_eq!((reply.status, reply.header("vary")), (200, "Origin"));
    let other = house.client().send("OPTIONS", "/api/v1/jobs", &[("Origin", "https://other.example")], b"");
    house.refused(&other, 403, "foreign-origin");
    assert_eq!(house.client().send("OPTIONS", "/api/v1/jobs", &[], b"").status, 200);
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let house = House::empty();
    let reply = house.client().send("PUT", "/api/v1/tenants", &[], b"");
    house.refused(&reply, 405, "wrong-method");
    assert_eq!(reply.header("allow"), "GET, POST");
}

#[test]
fn a_flood_is_answered_429() {
    let house = House::with(&[("api.rate_limit_rps", "5")], None);
    let replies: Vec<Reply> = (0..40).map(|_| house.client().get("/api/v1/whoami")).collect();
    let flooded = replies.iter().find(|reply| reply.status == 429).expect("a refusal");
    house.refused(flooded, 429, "rate-limited");
    assert_eq!(flooded.header("retry-after"), "1");
    assert_eq!(house.client().get("/healthz").status, 200, "health is never limited");
}

/// A house with tokens, and clients of every role in tenant `red`, and one of `blue`.
struct Town {
    house: House,
    viewer: Client,
    member: Client,
    tenant_admin: Client,
    operator: Client,
    blue: Client,
}

fn town() -> Town {
    let house = House::with(&[("auth.mode", "tokens")], Some(TWO_NODES)).with_gpus(8);
    let admin = house.client().clone();
    for tenant in ["red", "blue"] {
        assert_eq!(admin.post("/api/v1/tenants", &json!({"name": tenant})).status, 201);
    }
    let of = |role: &str, tenant: Option<&str>| {
        let body =
            json!({"name": format!("{role}-{}", tenant.unwrap_or("all")), "role": role, "tenant_id": tenant});
        let reply = admin.post("/api/v1/tokens", &body);
        assert_eq!(reply.status, 201, "{}", reply.text);
        admin.with_token(reply.json()["secret"].as_str().unwrap())
    };
    Town {
        viewer: of("viewer", Some("red")),
        member: of("member", Some("red")),
        tenant_admin: of("tenant-admin", Some("red")),
        operator: of("operator", None),
        blue: of("member", Some("blue")),
        house,
    }
}

#[test]
fn a_stranger_is_told_nothing_but_where_the_door_is() {
    let Town { house, .. } = town();
    let stranger = house.client().anonymous();
    for path in [
        "/api/v1/jobs",
        "/api/v1/tenants",
        "/api/v1/nodes",
        "/api/v1/cluster/status",
        "/api/v1/events",
        "/metrics",
    ] {
        house.refused(&stranger.get(path), 401, "unauthorized");
    }
    house.refused(&stranger.with_token("mst_x_y").get("/api/v1/jobs"), 401, "unauthorized");
    for path in
        ["/", "/health", "/healthz", "/readyz", "/api/v1/health", "/api/v1/docs", "/api/v1/openapi.json"]
    {
        assert_eq!(stranger.get(path).status, 200, "{path}");
    }
}

#[test]
fn each_role_does_what_it_may_and_no_more() {
    let Town { house, viewer, member, tenant_admin, operator, .. } = town();
    assert_eq!(
        viewer.get("/api/v1/whoami").json(),
        json!({"name": "viewer-red", "role": "viewer", "tenant_id": "red"})
    );
    let job = json!({"script": "x", "hold": true});
    house.refused(&viewer.post("/api/v1/jobs", &job), 403, "forbidden");
    assert_eq!(member.post("/api/v1/jobs", &job).status, 201);
    house.refused(&member.post("/api/v1/tenants", &json!({"name": "x"})), 403, "forbidden");
    house.refused(&member.post("/api/v1/nodes/n01/drain", &json!({})), 403, "forbidden");
    let whole = json!({"profiles": []});
    house.refused(&tenant_admin.post("/api/v1/gpus/n01/0/partition", &whole), 403, "forbidden");
    assert_eq!(operator.post("/api/v1/gpus/n01/0/partition", &whole).status, 200);
    house.refused(&member.get("/api/v1/tokens"), 403, "forbidden");
    house.refused(&tenant_admin.get("/api/v1/audit"), 403, "forbidden");
    house.refused(&operator.post("/api/v1/tenants", &json!({"name": "x"})), 403, "forbidden");
    assert_eq!(operator.post("/api/v1/nodes/n01/drain", &json!({})).status, 200);
    house.refused(
        &member.post("/api/v1/jobs", &json!({"script": "x", "user": "somebody"})),
        403,
        "forbidden",
    );
    let owned = house.client().get("/api/v1/jobs/job-1").json();
    assert_eq!((owned["tenant_id"].as_str(), owned["user"].as_str()), (Some("red"), Some("member-red")));

    let audit = house.client().get("/api/v1/audit?limit=1000").json();
    let refused = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["refused"] == "forbidden");
    let acts: Vec<Value> = refused.map(|entry| json!([entry["actor"], entry["action"]])).collect();
    assert!(acts.contains(&json!(["member-red", "POST /api/v1/nodes/{id}/drain"])), "{acts:?}");
}

#[test]
fn who_shares_a_gpu_does_not_see_the_others_on_it() {
    let Town { house, member, blue, .. } = town();
    let half = json!({"command": ["x"], "gpu_share": 0.5, "annotations": {"muster.sim/runtime": "1h"}});
    let ids = [&member, &blue].map(|who| {
        let id = who.post("/api/v1/jobs", &half).json()["job_id"].as_str().unwrap().to_string();
        (house.until_state(&id, "running")["allocated_gpus"][0].clone(), id)
    });
    assert_eq!(ids[0].0, ids[1].0, "they share a GPU");
    let gpu = ids[0].0.as_str().unwrap().replace("gpu-", "");
    for (who, sees) in [(&member, &ids[0].1), (&blue, &ids[1].1)] {
        let shown = who.get(&format!("/api/v1/gpus/{gpu}")).json();
        assert_eq!(shown["used_milli"], 1_000);
        let jobs: Vec<&Value> =
            shown["holders"].as_array().unwrap().iter().map(|one| &one["job_id"]).collect();
        assert_eq!(jobs, vec![&json!(sees)]);
    }
}

#[test]
fn what_belongs_to_others_does_not_exist() {
    let Town { house, member, blue, .. } = town();
    let id = member
        .post("/api/v1/jobs", &json!({"command": ["x"], "annotations": {"muster.sim/runtime": "1h"}}))
        .json()["job_id"]
        .as_str()
        .unwrap()
        .to_string();
    house.until_state(&id, "running");
    let path = format!("/api/v1/jobs/{id}");
    for rest in ["", "/why", "/events", "/attempts", "/logs"] {
        assert_eq!(member.get(&format!("{path}{rest}")).status, 200, "{rest}");
        house.refused(&blue.get(&format!("{path}{rest}")), 404, "unknown-job");
    }
    house.refused(&blue.delete(&path), 404, "unknown-job");
    house.refused(&blue.patch(&path, &json!({"name": "mine"})), 404, "unknown-job");
    house.refused(&blue.post(&format!("{path}/hold"), &json!({})), 404, "unknown-job");
    house.refused(&blue.get(&format!("/api/v1/allocations/{id}:1")), 404, "unknown-allocation");
    house.refused(&blue.delete(&format!("/api/v1/allocations/{id}:1")), 404, "unknown-allocation");
    house.refused(&blue.get("/api/v1/tenants/red"), 404, "unknown-tenant");
    house.refused(
        &blue.post("/api/v1/jobs", &json!({"script": "x", "tenant_id": "red"})),
        404,
        "unknown-tenant",
    );
    house.refused(
        &blue.post("/api/v1/jobs", &json!({"script": "x", "after": [format!("{id}:ended")]})),
        404,
        "unknown-job",
    );
    for list in [
        "/api/v1/jobs",
        "/api/v1/jobs?tenant_id=red",
        "/api/v1/allocations",
        "/api/v1/allocations?tenant_id=red",
    ] {
        assert_eq!(blue.get(list).json()["total"], 0, "{list}");
    }
    assert_eq!(blue.get("/api/v1/tenants").json()["total"], 1);
    assert_eq!(blue.get("/api/v1/usage?tenant_id=red").json()["rows"], json!([]));

    let held = |client: &Client| client.get("/api/v1/gpus?state=held").json()["gpus"][0].clone();
    assert_eq!(held(&member)["job_id"], id.as_str());
    assert_eq!((held(&blue)["allocated"].as_bool(), &held(&blue)["job_id"]), (Some(true), &json!(null)));
}

#[test]
fn a_listener_hears_only_of_its_own_tenant() {
    let Town { house, member, blue, .. } = town();
    let mut heard = blue.stream("/api/v1/events?after=0", &[]);
    member.post("/api/v1/jobs", &json!({"script": "red", "hold": true}));
    blue.post("/api/v1/jobs", &json!({"script": "blue", "hold": true}));
    let events: Vec<_> = heard.by_ref().take_while(|event| event.event != "JobSubmitted").collect();
    assert!(
        events.iter().all(|event| event.event.starts_with("Node") || event.data["data"]["id"] == "blue"),
        "{events:?}"
    );
    drop(heard);
    let mut again = blue.stream("/api/v1/events?after=0", &[]);
    let submitted = again.find(|event| event.event == "JobSubmitted").unwrap();
    assert_eq!(submitted.data["data"]["spec"]["tenant"], "blue");
    let all: Vec<_> = house.client().stream("/api/v1/events?after=0", &[]).take(20).collect();
    let token = all.iter().find(|event| event.event == "TokenAdded").expect("administrators hear of tokens");
    assert_eq!(token.data["data"]["token"]["hash"], json!(null), "but not of their hashes");
}

#[test]
fn tokens_are_made_listed_and_revoked_within_reach() {
    let Town { house, tenant_admin, .. } = town();
    let make = |client: &Client, body: Value| client.post("/api/v1/tokens", &body);
    let made = make(&tenant_admin, json!({"name": "ci", "role": "member", "expires_in": "30d"}));
    assert_eq!((made.status, made.json()["tenant_id"].as_str()), (201, Some("red")));
    let bearer = house.client().with_token(made.json()["secret"].as_str().unwrap());
    assert_eq!(bearer.get("/api/v1/whoami").json()["name"], "ci");
    assert_eq!(tenant_admin.get("/api/v1/tokens").json()["total"], 4, "three of the town and this one");
    assert!(!tenant_admin.get("/api/v1/tokens").text.contains("hash"));

    house.refused(&make(&tenant_admin, json!({"name": "x", "role": "admin"})), 403, "forbidden");
    house.refused(
        &make(&tenant_admin, json!({"name": "x", "role": "member", "tenant_id": "blue"})),
        404,
        "unknown-tenant",
    );
    house.refused(&make(house.client(), json!({"name": "x", "role": "king"})), 422, "invalid");
    house.refused(&make(house.client(), json!({"name": "", "role": "admin"})), 422, "invalid");
    house.refused(
        &make(house.client(), json!({"name": "x", "role": "admin", "tenant_id": "red"})),
        422,
        "invalid",
    );

    let admin_id = house.client().get("/api/v1/tokens").json()["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["role"] == "admin")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_string();
    house.refused(&tenant_admin.delete(&format!("/api/v1/tokens/{admin_id}")), 404, "unknown-token");
    let id = made.json()["id"].as_str().unwrap().to_string();
    assert_eq!(tenant_admin.delete(&format!("/api/v1/tokens/{id}")).status, 200);
    house.refused(&bearer.get("/api/v1/whoami"), 401, "unauthorized");
}

#[test]
fn streams_of_one_caller_are_limited_and_given_back() {
    let house = House::empty();
    let mut open: Vec<_> = (0..64).map(|_| house.client().stream("/api/v1/events", &[])).collect();
    assert_eq!(house.client().status_of_stream("/api/v1/events"), 429);
    open.truncate(32);
    // A closed stream is noticed when something is written to it.
    house.submit(json!({"script": "x"}));
    house.until("a stream to be free", |house| house.client().status_of_stream("/api/v1/events") == 200);
}

#[test]
fn a_token_ends_when_it_was_said_to() {
    let Town { house, .. } = town();
    let made = house
        .client()
        .post("/api/v1/tokens", &json!({"name": "short", "role": "operator", "expires_in": "300ms"}));
    let short = house.client().with_token(made.json()["secret"].as_str().unwrap());
    house.until("its end", |_| short.get("/api/v1/whoami").status == 401);
}

/// A client with a token of its own in tenant `red`.
fn red(house: &House, name: &str, more: Value) -> Client {
    let mut body = json!({"name": name, "role": "member", "tenant_id": "red"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = house.client().post("/api/v1/tokens", &body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    house.client().with_token(reply.json()["secret"].as_str().unwrap())
}

#[test]
fn a_member_displaces_nobody_by_a_priority_above_its_ceiling() {
    let Town { house, member, tenant_admin, operator, blue, .. } = town();
    let running = blue.post(
        "/api/v1/jobs",
        &json!({"tasks": [{"count": 2, "gpus": 4}], "command": ["x"], "priority": 500,
            "annotations": {"muster.sim/runtime": "1h"}}),
    );
    house.until_state(running.json()["job_id"].as_str().unwrap(), "running");
    let ask = |priority: Value| json!({"gpu_count": 4, "command": ["x"], "priority": priority});
    for who in [&member, &tenant_admin] {
        let refused = who.post("/api/v1/jobs", &ask(json!(10_000)));
        house.refused(&refused, 403, "over-priority-ceiling");
        let said = refused.json();
        assert_eq!(
            said["detail"],
            "priority 10000 is above the ceiling of 500, which comes from tier `medium` of tenant `red`"
        );
        let hint = said["hint"].as_str().unwrap();
        assert!(hint.contains("ask an admin") && hint.contains("--max-priority"), "{hint}");
        let planned = who.post("/api/v1/jobs/plan", &ask(json!("critical"))).json();
        assert_eq!(
            (planned["outcome"].as_str(), planned["refusal"]["code"].as_str()),
            (Some("refused"), Some("over-priority-ceiling"))
        );
    }
    let job = member.post("/api/v1/jobs", &ask(json!(500))).json()["job_id"].as_str().unwrap().to_string();
    let path = format!("/api/v1/jobs/{job}");
    house.refused(&member.patch(&path, &json!({"priority": 501})), 403, "over-priority-ceiling");
    assert_eq!(
        house.client().get(&format!("/api/v1/jobs/{}", running.json()["job_id"].as_str().unwrap())).json()["state"],
        "running"
    );

    // Only those who may give a priority grant it.
    let grant = json!({"name": "x", "role": "member", "max_priority": 2_000});
    house.refused(&tenant_admin.post("/api/v1/tokens", &grant), 403, "over-priority-ceiling");
    let granted = red(&house, "member-red", json!({"max_priority": 2_000}));
    assert_eq!(granted.patch(&path, &json!({"priority": 2_000, "name": "urgent"})).status, 200);
    assert_eq!(
        house.client().patch("/api/v1/tenants/red", &json!({"max_priority": 3_000})).json()["max_priority"],
        3_000
    );
    assert_eq!(member.patch(&path, &json!({"priority": 3_000})).status, 200);
    assert_eq!(
        house.client().patch("/api/v1/tenants/red", &json!({"max_priority": null})).json()["max_priority"],
        json!(null)
    );
    house.refused(
        &house.client().patch("/api/v1/tenants/red", &json!({"max_priority": 10_001})),
        422,
        "invalid",
    );
    assert_eq!(operator.patch(&path, &json!({"priority": 10_000})).status, 200);
}

#[test]
fn a_default_above_the_ceiling_refuses_nobody() {
    let settings = [("auth.mode", "tokens"), ("scheduler.default_priority", "900")];
    let house = House::with(&settings, Some(TWO_NODES));
    assert_eq!(house.client().post("/api/v1/tenants", &json!({"name": "red"})).status, 201);
    let id = red(&house, "ann", json!({})).post("/api/v1/jobs", &json!({"script": "x", "hold": true})).json();
    assert_eq!(
        house.client().get(&format!("/api/v1/jobs/{}", id["job_id"].as_str().unwrap())).json()["priority"],
        500
    );
}

#[test]
fn a_colleague_changes_no_job_and_is_advised_of_no_change() {
    let Town { house, viewer, member, tenant_admin, operator, .. } = town();
    let colleague = red(&house, "bob", json!({}));
    let long = json!({"tasks": [{"count": 2, "gpus": 4}], "command": ["x"],
        "annotations": {"muster.sim/runtime": "1h"}});
    let id = |reply: Reply| reply.json()["job_id"].as_str().unwrap().to_string();
    let running = id(member.post("/api/v1/jobs", &long));
    house.until_state(&running, "running");
    let waiting = id(member.post("/api/v1/jobs", &long));
    let path = format!("/api/v1/jobs/{running}");
    for who in [&colleague, &viewer] {
        let code = |who: &Client| if std::ptr::eq(who, &viewer) { "forbidden" } else { "not-owner" };
        house.refused(&who.delete(&path), 403, code(who));
        house.refused(&who.patch(&path, &json!({"priority": 1})), 403, code(who));
        for verb in ["hold", "requeue", "checkpoint"] {
            house.refused(&who.post(&format!("{path}/{verb}"), &json!({})), 403, code(who));
        }
        house.refused(&who.delete(&format!("/api/v1/allocations/{running}:1")), 403, code(who));
    }
    let why = |who: &Client| who.get(&format!("/api/v1/jobs/{waiting}/why")).json();
    let sooner = |who: &Client| why(who)["sooner_with"].as_array().unwrap().len();
    house.until("a verdict", |_| sooner(&member) > 0);
    assert_eq!((sooner(&colleague), sooner(&viewer)), (0, 0));
    assert_eq!((&why(&colleague)["may_change"], &why(&member)["may_change"]), (&json!(false), &json!(true)));
    let priorities = |who: &Client| {
        let all = why(who)["sooner_with"].as_array().unwrap().clone();
        all.into_iter()
            .filter(|one| one["change"]["change"] == "priority")
            .map(|one| one["change"]["priority"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(priorities(&member), vec![json!(500)], "within the ceiling");
    assert_eq!(house.client().patch("/api/v1/tenants/red", &json!({"priority_tier": "low"})).status, 200);
    assert_eq!(priorities(&member), Vec::<Value>::new(), "500 is above the ceiling now");
    assert_eq!(priorities(&operator), vec![json!(500)]);
    assert_eq!(tenant_admin.delete(&path).status, 200);
    assert_eq!(member.delete(&format!("/api/v1/jobs/{waiting}")).status, 200);
    let audit = house.client().get("/api/v1/audit?limit=1000").json();
    let tried = json!(["bob", "job.cancel", "not-owner"]);
    let all = audit["entries"].as_array().unwrap().iter();
    assert!(
        all.clone().any(|one| json!([one["actor"], one["action"], one["refused"]]) == tried
            && one["actor_kind"] == "token"),
        "{audit}"
    );
}

#[test]
fn mine_are_the_jobs_of_the_caller() {
    let Town { house, member, .. } = town();
    let colleague = red(&house, "bob", json!({}));
    let held = json!({"script": "x", "hold": true});
    for who in [&member, &colleague] {
        assert_eq!(who.post("/api/v1/jobs", &held).status, 201);
    }
    let mine = |who: &Client, more: &str| {
        let jobs = who.get(&format!("/api/v1/jobs?mine=true{more}")).json()["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (mine(&member, ""), mine(&colleague, "&limit=1")),
        (vec!["job-1".into()], vec!["job-2".into()])
    );
    assert_eq!(mine(&member, "&user=bob"), Vec::<String>::new());
    assert_eq!(mine(house.client(), ""), Vec::<String>::new(), "an admin has submitted nothing");
    let local = House::empty();
    local.submit(json!({"script": "x", "user": "someone"}));
    assert_eq!(mine(local.client(), "").len(), 1, "without tokens every job is the caller's");
}

#[test]
fn environment_values_are_shown_to_the_owner_alone() {
    let Town { house, viewer, member, tenant_admin, operator, .. } = town();
    let job = json!({"script": "x", "hold": true, "environment": {"API_KEY": "s3cr3t"}});
    let id = member.post("/api/v1/jobs", &job).json()["job_id"].as_str().unwrap().to_string();
    let path = format!("/api/v1/jobs/{id}");
    let own = member.get(&path).json();
    assert_eq!(
        (&own["environment"]["API_KEY"], &own["environment_hidden"]),
        (&json!("s3cr3t"), &json!(false))
    );
    let admin = house.client();
    for who in [&red(&house, "bob", json!({})), &viewer, &tenant_admin, &operator, admin] {
        let shown = who.get(&path).json();
        assert_eq!(
            (&shown["environment"], &shown["environment_hidden"]),
            (&json!({"API_KEY": "***"}), &json!(true))
        );
        for rest in ["", "/why", "/events", "/attempts", "/receipts"] {
            let text = who.get(&format!("{path}{rest}")).text;
            assert!(!text.contains("s3cr3t"), "{rest}: {text}");
        }
    }
    let told =
        admin.stream("/api/v1/events?after=0", &[]).find(|event| event.event == "JobSubmitted").unwrap();
    assert_eq!(told.data["data"]["spec"]["run"]["env"], json!({"API_KEY": "***"}));
    let local = House::empty();
    let id = local.submit(json!({"script": "x", "user": "someone", "environment": {"A": "b"}}));
    assert_eq!(local.get(&format!("/api/v1/jobs/{id}"))["environment"]["A"], "b", "local mode has one owner");
}

#[test]
fn streams_end_with_their_token_and_say_why() {
    let Town { house, member, .. } = town();
    let admin = house.client();
    let long = json!({"command": ["x"], "annotations": {"muster.sim/runtime": "1h"}});
    let job = member.post("/api/v1/jobs", &long).json()["job_id"].as_str().unwrap().to_string();
    house.until_state(&job, "running");
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
    // The job goes on: without the check the streams would go on as well.
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
fn a_token_has_no_name_of_another_actor() {
    let Town { house, tenant_admin, .. } = town();
    for name in ["muster", "admin", "local", "system", "policies.dir", "Admin", " muster "] {
        let body = json!({"name": name, "role": "member", "tenant_id": "red"});
        for who in [&tenant_admin, house.client()] {
            house.refused(&who.post("/api/v1/tokens", &body), 422, "reserved-name");
        }
    }
    let audit = house.client().get("/api/v1/audit?limit=1000").json();
    let refused = audit["entries"].as_array().unwrap().iter().filter(|one| one["refused"] == "reserved-name");
    assert_eq!(refused.count(), 14, "{audit}");
}

/// The sources of policies may name projects and budgets; they are for the tenant that they are of, and for operators.
#[test]
fn policies_of_others_do_not_exist() {
    let Town { house, member, operator, blue, .. } = town();
    let files = [("a.gsky".to_string(), "# red alone".to_string())].into();
    let bundle = Arc::new(Bundle { hash: "red".to_string(), files, ..Bundle::default() });
    let scope = Scope::Tenant("red".parse().unwrap());
    let apply = Command::ApplyPolicy { scope, bundle, why: String::new() };
    house.cluster().ask_blocking(Actor::local("test"), apply).unwrap();
    let list = |who: &Client, query: &str| who.get(&format!("/api/v1/policies{query}")).json();
    let number = list(&member, "")["policies"][0]["version"].clone();
    let path = format!("/api/v1/policies/{number}");
    for query in ["", "?tenant_id=red"] {
        for (who, total) in [(&member, 1), (&operator, 1), (&blue, 0)] {
            assert_eq!(list(who, query)["total"], total, "{query}");
        }
    }
    assert!(member.get(&path).text.contains("red alone") && operator.get(&path).text.contains("red alone"));
    house.refused(&blue.get(&path), 404, "unknown-policy");
}

#[test]
fn a_tenant_admin_rolls_back_the_policies_of_its_tenant() {
    let Town { house, member, tenant_admin, operator, .. } = town();
    let roll_back = |who: &Client, body: Value| who.post("/api/v1/policies/rollback", &body);
    for body in [json!({}), json!({"tenant_id": "red"})] {
        let said = house.refused(&roll_back(&tenant_admin, body), 404, "unknown-policy");
        assert!(said.contains("tenant red"), "{said}");
    }
    house.refused(&roll_back(&tenant_admin, json!({"tenant_id": "blue"})), 404, "unknown-tenant");
    house.refused(&roll_back(&member, json!({})), 403, "forbidden");
    house.refused(&roll_back(&operator, json!({})), 403, "forbidden");
}

#[test]
fn no_other_account_reads_what_the_server_writes() {
    use std::os::unix::fs::PermissionsExt;
    fn open_to_others(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let facts = std::fs::symlink_metadata(&entry).unwrap();
            if facts.permissions().mode() & 0o077 != 0 {
                found.push(format!("{} {:04o}", entry.display(), facts.permissions().mode() & 0o7777));
            }
            if facts.is_dir() {
                open_to_others(&entry, found);
            }
        }
    }
    let Town { house, member, .. } = town();
    let job = json!({"command": ["x"], "annotations": {"muster.sim/runtime": "10ms"}});
    let id = member.post("/api/v1/jobs", &job).json()["job_id"].as_str().unwrap().to_string();
    house.until_state(&id, "completed");
    assert!(house.folder().join("muster.db-wal").exists(), "the log is there to be looked at");
    let mut found = Vec::new();
    open_to_others(house.folder(), &mut found);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(std::fs::metadata(house.folder()).unwrap().permissions().mode() & 0o777, 0o700);
}
