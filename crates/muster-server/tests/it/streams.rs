//! Event streams and logs.

use serde_json::json;

use crate::test_server::TestServer;

#[test]
fn events_are_followed_live_and_from_the_journal() {
    let server = TestServer::new();
    let mut live = server.client().stream("/api/v1/events", &[]);
    let job = server.submit(json!({"name": "told", "command": ["x"], "environment": {"SECRET": "s3cr3t"},
        "annotations": {"muster.sim/runtime": "100ms"}}));
    let submitted = live.next().unwrap();
    assert_eq!((submitted.event.as_str(), submitted.data["job_id"].as_str()), ("JobSubmitted", Some(job.as_str())));
    assert_eq!(submitted.id, submitted.data["seq"].as_u64());
    assert!(!submitted.data.to_string().contains("s3cr3t"), "the environment stays in the journal");
    let ended = live.find(|event| event.event == "AttemptEnded").unwrap();
    assert_eq!(ended.data["data"]["next"]["next"], "ended");

    let id = submitted.id.unwrap().to_string();
    let mut again = server.client().stream("/api/v1/events", &[("Last-Event-ID", id.as_str())]);
    assert!(again.next().unwrap().id > submitted.id, "the stream continues after `Last-Event-ID`");
    let again: Vec<u64> =
        server.client().stream("/api/v1/events?after=0", &[]).take(3).filter_map(|event| event.id).collect();
    assert_eq!(again, [1, 2, 3], "from the start of the journal");
}

#[test]
fn an_event_stream_can_be_filtered_by_job() {
    let server = TestServer::new();
    let mut only = server.client().stream("/api/v1/events?job=job-2&after=0", &[]);
    server.submit_sleeper("10ms", 1);
    let second = server.submit_sleeper("10ms", 1);
    server.wait_for_state(&second, "completed");
    let kinds: Vec<String> = only
        .by_ref()
        .take(4)
        .map(|event| {
            assert_eq!(event.data["job_id"], "job-2");
            event.event
        })
        .collect();
    assert_eq!(kinds, ["JobSubmitted", "JobPlaced", "AttemptStarted", "AttemptEnded"]);
    let page = server.get("/api/v1/jobs/job-2/events");
    let listed: Vec<&str> =
        page["events"].as_array().unwrap().iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(listed, kinds);
    let rest = server.get(&format!("/api/v1/jobs/job-2/events?after={}", page["events"][1]["seq"]));
    assert_eq!(rest["events"].as_array().unwrap().len(), 2);
    let first = server.get("/api/v1/jobs/job-2/events?limit=1");
    assert_eq!(first["next_after"], first["events"][0]["seq"]);
}

#[test]
fn streams_end_when_the_server_stops() {
    let server = TestServer::new();
    let mut events = server.client().stream("/api/v1/events", &[]);
    let job = server.submit_sleeper("1h", 1);
    server.wait_for_state(&job, "running");
    let mut log = server.client().stream(&format!("/api/v1/jobs/{job}/logs?follow=true"), &[]);
    let started = std::time::Instant::now();
    drop(server);
    assert!(started.elapsed().as_secs() < 10, "the streams delayed the stop");
    assert!(events.by_ref().count() < 100 && log.by_ref().count() < 100, "the streams end");
}

#[test]
fn logs_are_read_by_offset_and_followed_to_the_end() {
    let server = TestServer::new();
    let job = server.submit_sleeper("300ms", 1);
    let path = format!("/api/v1/jobs/{job}/logs");
    let followed: Vec<_> = server.client().stream(&format!("{path}?follow=true"), &[]).collect();
    let text: String = followed.iter().filter_map(|event| event.data["text"].as_str()).collect();
    assert_eq!(followed.last().map(|event| event.event.as_str()), Some("end"));
    assert!(!text.is_empty(), "the simulated job writes a log");
    let whole = server.get(&path);
    assert_eq!((whole["text"].as_str(), whole["complete"].as_bool()), (Some(text.as_str()), Some(true)));
    let rest = server.get(&format!("{path}?offset=3&stream=stdout&attempt=1&rank=0"));
    assert_eq!(rest["text"].as_str(), Some(&text[3..]));
    assert_eq!(server.get(&format!("{path}?offset={}", whole["next_offset"]))["text"], "");
    server.expect_problem(&server.client().get(&format!("{path}?attempt=2")), 422, "invalid");
    server.expect_problem(&server.client().get(&format!("{path}?attempt=0")), 422, "invalid");
    server.expect_problem(&server.client().get(&format!("{path}?stream=stdin")), 422, "invalid");
    server.expect_problem(&server.client().get("/api/v1/jobs/job-9/logs?follow=true"), 404, "unknown-job");
}

#[test]
fn a_log_piece_never_splits_a_utf8_character() {
    let server = TestServer::new();
    let job = server.submit_sleeper("1h", 1);
    server.wait_for_state(&job, "running");
    let folder = server.data_dir().join("attempts").join(&job).join("1");
    server.wait_until("the log", |_| folder.exists());
    std::fs::write(folder.join("rank-7.out"), [b'a', 0xc3]).unwrap();
    let path = format!("/api/v1/jobs/{job}/logs?rank=7");
    let piece = server.get(&path);
    assert_eq!((piece["text"].as_str(), piece["next_offset"].as_u64()), (Some("a"), Some(1)));
    std::fs::write(folder.join("rank-7.out"), "aä").unwrap();
    assert_eq!(server.get(&format!("{path}&offset=1"))["text"], "ä");
}
