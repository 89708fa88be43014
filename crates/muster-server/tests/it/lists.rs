//! Lists: filters, totals, sort order and pages without gaps.

use serde_json::{Value, json};

use crate::test_server::TestServer;

fn job_ids(list: &Value) -> Vec<String> {
    let jobs = list["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["id"].as_str().unwrap().to_string()).collect()
}

/// Jobs of three tenants, some held, some cancelled.
fn server_with_jobs_of_three_tenants() -> TestServer {
    let server = TestServer::without_nodes();
    for tenant in ["red", "blue"] {
        server.client().post("/api/v1/tenants", &json!({"name": tenant}));
    }
    for number in 0..12 {
        let tenant = ["default", "red", "blue"][number % 3];
        server.submit(json!({"tenant_id": tenant, "name": format!("Train-{number}"), "script": "x",
            "user": if number % 2 == 0 { "ada" } else { "bob" }, "hold": number % 4 == 0,
            "labels": {"run": format!("r{}", number % 2)}}));
    }
    for job in ["job-2", "job-5"] {
        server.client().delete(&format!("/api/v1/jobs/{job}"));
    }
    server
}

#[test]
fn filters_combine_and_totals_count_all_pages() {
    let server = server_with_jobs_of_three_tenants();
    let cases = [
        ("", 12),
        ("tenant_id=red", 4),
        ("tenant_id=red&state=pending", 2),
        ("tenant_id=red&state=pending,cancelled", 4),
        ("state=cancelled", 2),
        ("state=running", 0),
        ("phase=Held", 2),
        ("user=ada", 6),
        ("user=ada&tenant_id=blue", 2),
        ("name=train-1", 3),
        ("label=run%3Dr1&limit=2", 6),
        ("label=run=r0&tenant_id=default", 2),
        ("active=true", 10),
        ("array=7", 1),
        ("tenant_id=nobody", 0),
        ("tenant_id=red&limit=1&offset=3", 4),
        ("tenant_id=red&limit=1&offset=400", 4),
    ];
    for (query, total) in cases {
        assert_eq!(server.get(&format!("/api/v1/jobs?{query}"))["total"], total, "{query}");
    }
}

#[test]
fn pages_by_offset_and_by_cursor_are_the_same_list() {
    let server = server_with_jobs_of_three_tenants();
    let all = job_ids(&server.get("/api/v1/jobs?limit=1000"));
    assert_eq!(all.first().map(String::as_str), Some("job-12"), "newest first");
    let by_offset: Vec<String> = (0..12)
        .step_by(5)
        .flat_map(|offset| job_ids(&server.get(&format!("/api/v1/jobs?limit=5&offset={offset}"))))
        .collect();
    assert_eq!(by_offset, all);
    let mut by_cursor = Vec::new();
    let mut page = server.get("/api/v1/jobs?limit=5");
    loop {
        by_cursor.extend(job_ids(&page));
        assert!(by_cursor.len() <= all.len(), "the pages do not end");
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        // A job submitted meanwhile does not shift the pages.
        server.submit(json!({"script": "late"}));
        page = server.get(&format!("/api/v1/jobs?limit=5&cursor={cursor}"));
    }
    assert_eq!(by_cursor, all);
}

#[test]
fn the_whole_list_is_sorted_before_a_page_is_taken() {
    let server = TestServer::without_nodes();
    for (name, priority) in [("c", 300), ("a", 100), ("d", 100), ("b", 200)] {
        server.submit(json!({"name": name, "script": "x", "priority": priority}));
    }
    let list = |query: &str| job_ids(&server.get(&format!("/api/v1/jobs?{query}")));
    assert_eq!(list("sort=submitted&limit=1"), ["job-1"], "the oldest");
    assert_eq!(list("sort=id&limit=2"), ["job-1", "job-2"]);
    assert_eq!(list("sort=name"), ["job-2", "job-4", "job-1", "job-3"]);
    assert_eq!(list("sort=-priority&limit=2"), ["job-1", "job-4"]);
    assert_eq!(list("sort=-priority&limit=2&offset=2"), ["job-3", "job-2"], "the rest of the same list");
    for (query, expected) in [
        ("sort=colour", "`colour` is none of id, name"),
        ("group=tenant", "`tenant` is not `array`"),
        ("sort=name&cursor=job-2", "continue a sorted list with `offset`"),
        ("group=array&offset=1", "send `cursor`"),
    ] {
        let reply = server.client().get(&format!("/api/v1/jobs?{query}"));
        assert!(server.expect_problem(&reply, 422, "invalid").contains(expected), "{query}: {}", reply.text);
    }
}

#[test]
fn group_array_lists_each_array_as_one_row() {
    let server = TestServer::new();
    server.submit(json!({"name": "first", "script": "x", "hold": true}));
    server.submit(json!({"name": "sweep", "command": ["x"], "array": "0-39", "gpu_count": 1,
        "annotations": {"muster.sim/runtime": "10m"}}));
    server.submit(json!({"name": "two", "command": ["x"], "array": "5,9", "hold": true}));
    server.submit(json!({"name": "last", "script": "x", "hold": true}));
    let running = "/api/v1/jobs?state=running&group=array";
    server.wait_until("8 tasks to run", |server| server.get(running)["total"] == 8);
    let list = server.get(running);
    assert_eq!(job_ids(&list), ["job-2"]);
    let row = &list["jobs"][0];
    assert_eq!(
        row["array_tasks"],
        json!({"first": 0, "last": 39, "tasks": 40, "by_state": {"pending": 32, "running": 8}})
    );
    assert!(row["waits_for"].as_str().unwrap().contains("GPU"), "why the others wait: {row}");
    let list = |query: &str| server.get(&format!("/api/v1/jobs?group=array&{query}"));
    assert_eq!(job_ids(&list("")), ["job-4", "job-3", "job-2", "job-1"]);
    assert_eq!(job_ids(&list("sort=id")), ["job-1", "job-2", "job-3", "job-4"]);
    assert_eq!(job_ids(&list("sort=-name&limit=2")), ["job-3", "job-2"]);
    for sort in ["id", "-id"] {
        let mut seen = Vec::new();
        let mut page = list(&format!("sort={sort}&limit=1"));
        loop {
            seen.extend(job_ids(&page));
            assert!(seen.len() <= 5, "the pages do not end: {seen:?}");
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            page = list(&format!("sort={sort}&limit=1&cursor={cursor}"));
        }
        assert_eq!(seen.len(), 4, "{sort}: {seen:?}");
    }
    assert_eq!(server.get("/api/v1/jobs?limit=1000")["jobs"].as_array().unwrap().len(), 44, "tasks otherwise");
}

#[test]
fn the_audit_log_records_allowed_and_refused_acts() {
    let server = TestServer::without_nodes();
    server.client().post("/api/v1/tenants", &json!({"name": "red"}));
    server.client().post("/api/v1/tenants", &json!({"name": "red"}));
    server.client().delete("/api/v1/tenants/default");
    let audit = server.get("/api/v1/audit");
    let entry = |index: usize| {
        let entry = &audit["entries"][index];
        (entry["actor"].as_str(), entry["action"].as_str(), entry["object"].as_str(), entry["refused"].as_str())
    };
    assert_eq!(entry(0), (Some("local"), Some("tenant.delete"), Some("default"), Some("default-tenant")));
    assert_eq!(entry(1), (Some("local"), Some("tenant.create"), Some("red"), Some("duplicate-tenant")));
    assert_eq!(entry(2), (Some("local"), Some("tenant.create"), Some("red"), None));
    let page = server.get("/api/v1/audit?limit=1");
    let next = server.get(&format!("/api/v1/audit?limit=1&cursor={}", page["next_cursor"].as_str().unwrap()));
    assert_eq!(next["entries"][0], audit["entries"][1]);
    assert_eq!(page["total"], audit["total"]);
}
