//! Health, metrics, the OpenAPI document and the HTML pages.

use serde_json::json;

use crate::test_server::TestServer;

#[test]
fn the_leader_is_healthy_on_every_health_route() {
    let server = TestServer::without_nodes();
    for path in ["/health", "/api/v1/health", "/readyz", "/healthz"] {
        assert_eq!(server.get(path)["status"], "healthy", "{path}");
    }
    assert_eq!(server.client().get("/healthz").text, r#"{"status":"healthy"}"#);
    assert_eq!(server.client().send("HEAD", "/health", &[], b"").status, 200);
}

#[test]
fn a_standby_serves_lists_and_names_the_leader() {
    let mut leader = TestServer::without_nodes();
    let job = leader.submit(json!({"name": "seen", "script": "x", "hold": true}));
    let standby = leader.second_server();
    for path in ["/health", "/api/v1/health", "/readyz"] {
        let reply = standby.client().get(path);
        assert_eq!((reply.status, reply.json()["status"].as_str()), (503, Some("unhealthy")), "{path}");
        assert_eq!(reply.json()["role"], "standby");
    }
    assert_eq!(standby.client().get("/healthz").status, 200, "the process lives");
    assert_eq!(standby.get("/api/v1/jobs")["jobs"][0]["name"], "seen");
    assert_eq!(standby.get(&format!("/api/v1/jobs/{job}"))["phase"], "Held");
    let refused = standby.client().post("/api/v1/jobs", &json!({"script": "x"}));
    let detail = standby.expect_problem(&refused, 503, "unavailable");
    assert!(detail.starts_with("this server is a standby; the leader is"), "{detail}");
    assert_eq!(refused.header("retry-after"), "1");
    standby.expect_problem(&standby.client().delete(&format!("/api/v1/jobs/{job}")), 503, "unavailable");
    standby.expect_problem(&standby.client().get("/api/v1/nodes"), 503, "unavailable");
    leader.stop();
    standby.wait_until("the standby to become leader", |server| server.client().get("/readyz").status == 200);
    assert_eq!(standby.client().delete(&format!("/api/v1/jobs/{job}")).status, 200);
}

#[test]
fn the_openapi_document_is_served_and_complete() {
    let server = TestServer::without_nodes();
    let document = server.get("/api/v1/openapi.json");
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            assert!(operation["summary"].is_string(), "{method} {path}");
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
        }
    }
    assert!(operations > 45, "{operations}");
    assert_eq!(document["paths"]["/api/v1/jobs"]["post"]["security"], json!([{"token": []}]));
    assert!(document["paths"]["/health"]["get"]["security"].is_null());
    assert!(document["paths"]["/api/v1/tenants"]["post"]["description"].as_str().unwrap().contains("`admin`"));
}

#[test]
fn html_pages_load_nothing_external() {
    let server = TestServer::without_nodes();
    for path in ["/", "/api/v1/docs"] {
        let page = server.client().get(path);
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        let policy = page.header("content-security-policy").to_string();
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(page.header("x-frame-options"), "DENY", "{path}");
        assert!(page.text.contains("/api/v1/") && !page.text.contains("<script"), "{path}");
    }
}

#[test]
fn metrics_show_jobs_gpus_and_nodes() {
    let server = TestServer::new();
    server.wait_for_state(&server.submit_sleeper("1h", 3), "running");
    server.submit(json!({"script": "x", "hold": true}));
    let metrics = server.client().get("/metrics");
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    let lines = [
        "muster_jobs{state=\"running\"} 1",
        "muster_jobs{state=\"pending\"} 1",
        "muster_pending_jobs{reason=\"Held\"} 1",
        "muster_gpus{model=\"NVIDIA H100\",state=\"held\"} 3",
        "muster_gpus{model=\"NVIDIA H100\",state=\"free\"} 5",
        "muster_gpu_allocated_ratio 0.375",
        "muster_node_state{state=\"Ready\"} 2",
        "muster_decisions_total{result=\"placed\"} 1",
        "muster_queue_wait_seconds_count 1",
        "muster_tenant_gpu_seconds_total{tenant=\"default\"}",
        "muster_schedule_round_seconds_bucket",
        "muster_build_info{version=",
        "gpu_scheduler_jobs_total 2",
        "gpu_scheduler_queue_size 0",
        "gpu_scheduler_gpu_utilization 0.375",
        "gpu_scheduler_scheduling_latency ",
        "gpu_scheduler_preemptions_total 0",
        "# EOF",
    ];
    for line in lines {
        assert!(metrics.text.contains(line), "no `{line}` in\n{}", metrics.text);
    }
}

#[test]
fn metrics_count_preemptions() {
    let server = TestServer::new();
    let lower: Vec<String> = (0..2).map(|_| server.submit_sleeper("1h", 4)).collect();
    lower.iter().for_each(|job| drop(server.wait_for_state(job, "running")));
    let urgent = json!({"script": "x", "gpu_count": 4, "priority": 9000,
        "annotations": {"muster.sim/runtime": "1h"}});
    server.wait_for_state(&server.submit(urgent), "running");
    let metrics = server.client().get("/metrics").text;
    for line in ["muster_decisions_total{result=\"preempted\"} 1", "gpu_scheduler_preemptions_total 1"] {
        assert!(metrics.contains(line), "no `{line}` in\n{metrics}");
    }
}

#[test]
fn a_plain_request_id_of_the_client_is_kept() {
    let server = TestServer::without_nodes();
    let id = |given: &str| {
        server.client().send("GET", "/healthz", &[("X-Request-Id", given)], b"").header("x-request-id").to_string()
    };
    assert_eq!(id("my-run.7"), "my-run.7");
    assert_ne!(id("not plain"), "not plain");
    assert_ne!(id(&"x".repeat(65)), "x".repeat(65));
}
