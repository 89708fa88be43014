//! Lists: filters combine, totals are right, and pages join without gap.

use serde_json::{Value, json};

use crate::house::House;

fn ids(list: &Value) -> Vec<String> {
    let jobs = list["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["id"].as_str().unwrap().to_string()).collect()
}

/// Three tenants' jobs, some held, some cancelled.
fn filled() -> House {
    let house = House::empty();
    for tenant in ["red", "blue"] {
        house.client().post("/api/v1/tenants", &json!({"name": tenant}));
    }
    for number in 0..12 {
        let tenant = ["default", "red", "blue"][number % 3];
        house.submit(json!({"tenant_id": tenant, "name": format!("Train-{number}"), "script": "x",
            "user": if number % 2 == 0 { "ada" } else { "bob" }, "hold": number % 4 == 0,
            "labels": {"run": format!("r{}", number % 2)}}));
    }
    for job in ["job-2", "job-5"] {
        house.client().delete(&format!("/api/v1/jobs/{job}"));
    }
    house
}

#[test]
fn filters_combine_and_totals_count_all_pages() {
    let house = filled();
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
        assert_eq!(house.get(&format!("/api/v1/jobs?{query}"))["total"], total, "{query}");
    }
}

#[test]
fn pages_by_offset_and_by_cursor_are_the_same_list() {
    let house = filled();
    let all = ids(&house.get("/api/v1/jobs?limit=1000"));
    assert_eq!(all.first().map(String::as_str), Some("job-12"), "newest first");
    let by_offset: Vec<String> = (0..12)
        .step_by(5)
        .flat_map(|offset| ids(&house.get(&format!("/api/v1/jobs?limit=5&offset={offset}"))))
        .collect();
    assert_eq!(by_offset, all);
    let mut by_cursor = Vec::new();
    let mut page = house.get("/api/v1/jobs?limit=5");
    loop {
        by_cursor.extend(ids(&page));
        assert!(by_cursor.len() <= all.len(), "the pages do not end");
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        // What arrives meanwhile does not shift the pages.
        house.submit(json!({"script": "late"}));
        page = house.get(&format!("/api/v1/jobs?limit=5&cursor={cursor}"));
    }
    assert_eq!(by_cursor, all);
}

#[test]
fn acts_are_on_record_whether_done_or_refused() {
    let house = House::empty();
    house.client().post("/api/v1/tenants", &json!({"name": "red"}));
    house.client().post("/api/v1/tenants", &json!({"name": "red"}));
    house.client().delete("/api/v1/tenants/default");
    let audit = house.get("/api/v1/audit");
    let entry = |place: usize| {
        let entry = &audit["entries"][place];
        (
            entry["actor"].as_str(),
            entry["action"].as_str(),
            entry["object"].as_str(),
            entry["refused"].as_str(),
        )
    };
    assert_eq!(entry(0), (Some("local"), Some("tenant.delete"), Some("default"), Some("default-tenant")));
    assert_eq!(entry(1), (Some("local"), Some("tenant.create"), Some("red"), Some("duplicate-tenant")));
    assert_eq!(entry(2), (Some("local"), Some("tenant.create"), Some("red"), None));
    let page = house.get("/api/v1/audit?limit=1");
    let next = house.get(&format!("/api/v1/audit?limit=1&cursor={}", page["next_cursor"].as_str().unwrap()));
    assert_eq!(next["entries"][0], audit["entries"][1]);
    assert_eq!(page["total"], audit["total"]);
}
