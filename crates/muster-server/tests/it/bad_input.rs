//! Invalid requests: each is refused with its status, code and sentence, and none creates a job.

use serde_json::{Value, json};

use crate::test_server::TestServer;

/// Invalid submissions: body, status, code, and a part of the sentence.
fn invalid_submissions() -> Vec<(String, u16, &'static str, &'static str)> {
    let raw = |text: &str, status, code, part| (text.to_string(), status, code, part);
    let json = |body: Value, status, code, part| (body.to_string(), status, code, part);
    vec![
        raw("{", 400, "malformed", "not JSON"),
        raw("[]", 400, "malformed", "object"),
        raw("\"text\"", 400, "malformed", "object"),
        raw("{\"script\": tru}", 400, "malformed", "not JSON"),
        raw("\u{feff}{}", 400, "malformed", "not JSON"),
        raw(&"[".repeat(100_000), 400, "malformed", "not JSON"),
        json(json!({}), 422, "invalid", "nothing to run"),
        json(json!({"script": "x", "gpu_cout": 1}), 400, "unknown-field", "gpu_cout"),
        json(json!({"script": "x", "tasks": [{"gpu": 1}]}), 400, "unknown-field", "gpu"),
        json(json!({"script": "x", "gpu_count": 0}), 422, "invalid", "at least 1"),
        json(json!({"script": "x", "gpu_count": -1}), 400, "malformed", "gpu_count"),
        json(json!({"script": "x", "gpu_count": 1.5}), 400, "malformed", "gpu_count"),
        json(json!({"script": "x", "gpu_count": "many"}), 400, "malformed", "gpu_count"),
        json(json!({"script": "x", "gpu_count": 4_294_967_296u64}), 400, "malformed", "gpu_count"),
        json(json!({"script": "x", "gpu_count": 65}), 422, "invalid", "no machine has that many"),
        json(json!({"script": "x", "gpu_count": 9}), 422, "infeasible", "can never start on this cluster"),
        json(json!({"script": "x", "cpu_cores": 4_000_000_000u64}), 422, "invalid", "cpus"),
        json(json!({"script": "x", "memory_mb": 18_446_744_073_709_551_615u64}), 422, "invalid", "memory"),
        json(json!({"script": "x", "gpu_memory_mb": 18_446_744_073_709_551_615u64}), 422, "invalid", "memory"),
        json(json!({"script": "x", "priority": 10_001}), 422, "invalid", "priority"),
        json(json!({"script": "x", "priority": -5}), 400, "malformed", "priority"),
        json(json!({"script": "x", "priority": "urgent"}), 422, "invalid", "urgent"),
        json(json!({"script": "x", "priority": [1]}), 400, "malformed", "priority"),
        json(json!({"script": "x", "name": ""}), 422, "invalid", "name"),
        json(json!({"script": "x", "name": "a\nb"}), 422, "invalid", "name"),
        json(json!({"script": "x", "name": "n".repeat(256)}), 422, "invalid", "name"),
        json(json!({"script": "x", "tenant_id": "nobody"}), 404, "unknown-tenant", "nobody"),
        json(json!({"script": "x", "tenant_id": "No Body"}), 422, "invalid", "tenant_id"),
        json(json!({"script": "x", "time_limit": "soon"}), 422, "invalid", "time_limit"),
        json(json!({"script": "x", "time_limit": 0}), 422, "invalid", "time_limit"),
        json(json!({"script": "x", "time_limit": 18_446_744_073_709_551_615u64}), 422, "invalid", "time_limit"),
        json(
            json!({"script": "x", "max_runtime_minutes": 18_446_744_073_709_551_615u64}),
            422,
            "invalid",
            "max_runtime_minutes",
        ),
        json(json!({"script": "x", "time_limit": 5, "max_runtime_minutes": 5}), 422, "invalid", "not both"),
        json(json!({"script": "x", "array": "9-0"}), 422, "invalid", "array"),
        json(json!({"script": "x", "array": "0-4294967295"}), 422, "invalid", "array"),
        json(json!({"script": "x", "start_after": "tomorrow"}), 422, "invalid", "start_after"),
        json(json!({"script": "x", "environment": {"A=B": "1"}}), 422, "invalid", "environment"),
        json(json!({"script": "x", "environment": ["A"]}), 400, "malformed", "environment"),
        json(json!({"script": "a\u{0}b"}), 422, "invalid", "NUL"),
        json(json!({"image": "--privileged"}), 422, "invalid", "cannot be the name of an image"),
        json(json!({"image": "a b"}), 422, "invalid", "cannot be the name of an image"),
        json(json!({"script": "x", "mounts": ["/a:/b"]}), 422, "invalid", "only a job with an image has mounts"),
        json(json!({"image": "i", "mounts": ["a:/b"]}), 422, "invalid", "is not a mount"),
        json(json!({"image": "i", "mounts": ["/a:/b:rwx"]}), 422, "invalid", "is not a mount"),
        json(json!({"image": "i", "mounts": ["/a/../b:/b"]}), 422, "invalid", "is not a mount"),
        json(json!({"script": "x", "gpu_share": 0.01}), 422, "invalid", "0.021 to 1 of a GPU"),
        json(json!({"script": "x", "gpu_share": 0.5, "gpu_count": 2}), 422, "invalid", "shares one GPU"),
        json(json!({"script": "x", "gpu_share": 0.5, "isolation": "full"}), 422, "infeasible", "can never start"),
        json(json!({"script": "x", "tasks": [{"gpu_share": 2}]}), 422, "invalid", "gpu_share"),
        json(json!({"script": "x", "gpu_share": 2}), 422, "invalid", "gpu_share"),
        json(json!({"script": "x", "topology": "close"}), 422, "invalid", "topology"),
        json(json!({"script": "x", "on_node_lost": "cry"}), 422, "invalid", "on_node_lost"),
        json(json!({"script": "x", "time_limit": "1h", "signal": "KILL@5"}), 422, "invalid", "signal"),
        json(json!({"script": "x", "time_limit": "1h", "signal": "USR1@1h"}), 422, "invalid", "signal"),
        json(json!({"script": "x", "signal": "USR1@5"}), 422, "invalid", "signal"),
        json(json!({"script": "x", "isolation": "total"}), 422, "invalid", "isolation"),
        json(json!({"script": "x", "gpu_model": "nvidia"}), 422, "invalid", "is not a GPU model"),
        json(json!({"script": "x", "gpu_model": "A10"}), 422, "infeasible", "can never start on this cluster"),
        json(json!({"script": "x", "gpu_count": 1, "tasks": [{"gpus": 1}]}), 422, "invalid", "not both"),
        json(json!({"script": "x", "tasks": [{"count": 5000}]}), 422, "invalid", "tasks"),
        json(
            json!({"script": "x", "tasks": [{"count": 4_294_967_295u32}, {"count": 4_294_967_295u32}]}),
            422,
            "invalid",
            "tasks",
        ),
        json(json!({"script": "x".repeat(300 << 10)}), 413, "too-large", "256 KiB"),
    ]
}

#[test]
fn invalid_submissions_are_refused_with_status_code_and_sentence() {
    let server = TestServer::new();
    for (body, status, code, part) in invalid_submissions() {
        let headers = [("Content-Type", "application/json")];
        let reply = server.client().send("POST", "/api/v1/jobs", &headers, body.as_bytes());
        let shown: String = body.chars().take(200).collect();
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)), "{shown}: {}", reply.text);
        let detail = reply.json()["detail"].as_str().unwrap().to_string();
        assert!(detail.contains(part), "{shown}: `{detail}` does not contain `{part}`");
        assert!(!detail.contains("u32") && !detail.contains("Serde"), "no Rust in `{detail}`");
    }
    assert_eq!(server.get("/api/v1/jobs")["total"], 0);
}

#[test]
fn a_misspelt_field_is_refused_with_the_nearest_name_as_hint() {
    let server = TestServer::without_nodes();
    let hint = |reply: crate::client::HttpReply| reply.json()["hint"].as_str().unwrap().to_string();
    let client = server.client();
    assert_eq!(hint(client.post("/api/v1/jobs", &json!({"gpu_cont": 1}))), "did you mean `gpu_count`?");
    assert_eq!(hint(client.post("/api/v1/tenants", &json!({"max_gpu": 1}))), "did you mean `max_gpus`?");
    assert_eq!(hint(client.get("/api/v1/jobs?tenant_id=x&limt=3")), "did you mean `limit`?");
    assert_eq!(hint(client.get("/api/v1/usage?form=1")), "did you mean `from`?");
}

#[test]
fn invalid_query_parameters_are_refused() {
    let server = TestServer::without_nodes();
    let cases = [
        ("/api/v1/jobs?limit=0", 422, "invalid"),
        ("/api/v1/jobs?limit=1001", 422, "invalid"),
        ("/api/v1/jobs?limit=-1", 400, "malformed"),
        ("/api/v1/jobs?limit=ten", 400, "malformed"),
        ("/api/v1/jobs?offset=-1", 400, "malformed"),
        ("/api/v1/jobs?offset=1&cursor=job-1", 422, "invalid"),
        ("/api/v1/jobs?cursor=%00", 422, "invalid"),
        ("/api/v1/jobs?state=sleeping", 422, "invalid"),
        ("/api/v1/jobs?label=alone", 422, "invalid"),
        ("/api/v1/jobs?array=x", 422, "invalid"),
        ("/api/v1/jobs?active=perhaps", 400, "malformed"),
        ("/api/v1/usage?by=planet", 422, "invalid"),
        ("/api/v1/usage?from=yesterday", 422, "invalid"),
        ("/api/v1/usage?from=5&to=4", 422, "invalid"),
        ("/api/v1/gpus?health=fine", 422, "invalid"),
        ("/api/v1/audit?cursor=x", 422, "invalid"),
        ("/api/v1/allocations?job=x", 422, "invalid"),
        ("/api/v1/events?after=x", 400, "malformed"),
        ("/api/v1/events?job=x", 422, "invalid"),
    ];
    for (path, status, code) in cases {
        let reply = server.client().get(path);
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)), "{path}: {}", reply.text);
    }
}

#[test]
fn unknown_objects_are_404_and_wrong_methods_405() {
    let server = TestServer::without_nodes();
    let cases = [
        ("GET", "/api/v1/jobs/job-9", 404, "unknown-job"),
        ("GET", "/api/v1/jobs/nonsense", 404, "unknown-job"),
        ("GET", "/api/v1/jobs/99999999999999999999", 404, "unknown-job"),
        ("DELETE", "/api/v1/jobs/job-9", 404, "unknown-job"),
        ("PATCH", "/api/v1/jobs/job-9", 404, "unknown-job"),
        ("POST", "/api/v1/jobs/job-9/hold", 404, "unknown-job"),
        ("POST", "/api/v1/jobs/job-9/release", 404, "unknown-job"),
        ("POST", "/api/v1/jobs/job-9/requeue", 404, "unknown-job"),
        ("GET", "/api/v1/jobs/job-9/events", 404, "unknown-job"),
        ("GET", "/api/v1/jobs/job-9/attempts", 404, "unknown-job"),
        ("GET", "/api/v1/jobs/job-9/logs", 404, "unknown-job"),
        ("GET", "/api/v1/tenants/nobody", 404, "unknown-tenant"),
        ("GET", "/api/v1/tenants/No", 404, "unknown-tenant"),
        ("PATCH", "/api/v1/tenants/nobody", 404, "unknown-tenant"),
        ("DELETE", "/api/v1/tenants/nobody", 404, "unknown-tenant"),
        ("GET", "/api/v1/nodes/nowhere", 404, "unknown-node"),
        ("DELETE", "/api/v1/nodes/nowhere", 404, "unknown-node"),
        ("POST", "/api/v1/nodes/nowhere/drain", 404, "unknown-node"),
        ("GET", "/api/v1/gpus/nowhere/0", 404, "unknown-node"),
        ("GET", "/api/v1/gpus/nowhere/gpu-x", 404, "unknown-gpu"),
        ("GET", "/api/v1/allocations/job-9:1", 404, "unknown-allocation"),
        ("GET", "/api/v1/allocations/x", 404, "unknown-allocation"),
        ("DELETE", "/api/v1/allocations/job-9:1", 404, "unknown-allocation"),
        ("DELETE", "/api/v1/tokens/t-9", 404, "unknown-token"),
        ("DELETE", "/api/v1/secrets/NONE", 404, "unknown-secret"),
        ("GET", "/api/v1/nothing", 404, "unknown-path"),
        ("GET", "/favicon.ico", 404, "unknown-path"),
        ("GET", "/api/v1/jobs/", 404, "unknown-path"),
        ("PUT", "/api/v1/jobs", 405, "wrong-method"),
        ("DELETE", "/api/v1/cluster/status", 405, "wrong-method"),
        ("POST", "/health", 405, "wrong-method"),
        ("GET", "/api/v1/jobs/%FF", 400, "malformed"),
    ];
    for (method, path, status, code) in cases {
        let body: &[u8] = if ["PATCH", "PUT", "POST"].contains(&method) { b"{}" } else { b"" };
        let reply = server.client().send(method, path, &[], body);
        assert_eq!(
            (reply.status, reply.json()["code"].as_str()),
            (status, Some(code)),
            "{method} {path}: {}",
            reply.text
        );
    }
}

#[test]
fn a_body_without_content_type_is_read_as_json_and_other_types_are_415() {
    let server = TestServer::without_nodes();
    let send = |content_type: Option<&str>| {
        let headers: Vec<(&str, &str)> = content_type.map(|kind| ("Content-Type", kind)).into_iter().collect();
        server.client().send("POST", "/api/v1/jobs", &headers, br#"{"script":"true"}"#)
    };
    for kind in
        [None, Some("application/json; charset=utf-8"), Some("Application/JSON"), Some("application/merge-patch+json")]
    {
        assert_eq!(send(kind).status, 201, "{kind:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        server.expect_problem(&send(Some(kind)), 415, "unsupported-media-type");
    }
}

#[test]
fn a_body_above_the_size_limit_is_413() {
    let server = TestServer::without_nodes();
    let body = format!(r#"{{"name":"{}"}}"#, "n".repeat(2 << 20));
    let reply = server.client().send("POST", "/api/v1/tenants", &[], body.as_bytes());
    server.expect_problem(&reply, 413, "too-large");
}
