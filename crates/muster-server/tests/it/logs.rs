//! The output of jobs: unchanged bytes, removed heads, last lines, and the node that holds it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::test_server::TestServer;

const OTHER_NODES: &str = "nodes:
  - { name: other, cpus: 8, memory_gib: 64, gpus: { model: T4, count: 1, memory_mib: 16384 } }";

/// A running job and the folder of its attempt, in which the test writes output of further ranks.
fn running_job(server: &TestServer) -> (String, PathBuf) {
    let job = server.submit_sleeper("1h", 1);
    server.wait_for_state(&job, "running");
    let folder = server.data_dir().join("attempts").join(&job).join("1");
    server.wait_until("the output", |_| folder.join("rank-0.out").exists());
    (job, folder)
}

#[test]
fn bytes_that_are_not_utf8_arrive_unchanged() {
    let server = TestServer::new();
    let (job, folder) = running_job(&server);
    let bytes = [b'a', 0xff, 0, b'\n'];
    std::fs::write(folder.join("rank-7.out"), bytes).unwrap();
    let path = format!("/api/v1/jobs/{job}/logs?rank=7");
    let piece = server.get(&path);
    assert_eq!((piece["text"].as_str(), piece["base64"].as_str()), (Some("a\u{fffd}\0\n"), Some("Yf8ACg==")));
    let (reply, body) = server.client().get_bytes(&format!("{path}&format=raw&offset=1"));
    assert_eq!(body, bytes[1..]);
    let headers = ["offset", "next-offset", "skipped-bytes", "size", "complete"];
    let headers = headers.map(|name| reply.header(&format!("muster-log-{name}")).to_string());
    assert_eq!(headers, ["1", "4", "0", "4", "false"]);
    let followed = server.client().stream(&format!("{path}&follow=true"), &[]).next().unwrap();
    assert_eq!((followed.event.as_str(), &followed.data["base64"]), ("piece", &piece["base64"]));
    std::fs::write(folder.join("rank-8.out"), "ä\n").unwrap();
    let text = server.get(&format!("/api/v1/jobs/{job}/logs?rank=8"));
    assert_eq!((text["text"].as_str(), &text["base64"]), (Some("ä\n"), &Value::Null));
}

#[test]
fn a_removed_head_is_skipped_and_counted() {
    const REMOVED: u64 = 1 << 20;
    let server = TestServer::new();
    let (job, folder) = running_job(&server);
    let mut file = std::fs::File::options().create(true).append(true).open(folder.join("rank-7.out")).unwrap();
    file.set_len(REMOVED).unwrap(); // A hole, as punching leaves it.
    file.write_all(b"rest\n").unwrap();
    let path = format!("/api/v1/jobs/{job}/logs?rank=7");
    let piece = server.get(&path);
    let numbers = ["skipped_bytes", "offset", "next_offset", "size"].map(|field| piece[field].as_u64().unwrap());
    assert_eq!((piece["text"].as_str(), numbers), (Some("rest\n"), [REMOVED, REMOVED, REMOVED + 5, REMOVED + 5]));
    assert_eq!(server.get(&format!("{path}&tail=9"))["skipped_bytes"], 0, "the last lines start after it");
    let (reply, body) = server.client().get_bytes(&format!("{path}&format=raw&offset=4096"));
    assert_eq!((reply.header("muster-log-skipped-bytes"), body.as_slice()), ("1044480", b"rest\n".as_slice()));
}

/// A shim writes the index beside the log: times and sizes, little-endian.
#[test]
fn output_since_a_time_is_read_from_the_index_of_its_log() {
    let server = TestServer::new();
    let (job, folder) = running_job(&server);
    let output = folder.join("rank-7.out");
    std::fs::write(&output, "old\nnew\n").unwrap();
    let entries = [(1_000_i64, 4_u64), (9_000, 8)];
    let bytes = entries.iter().flat_map(|(at, size)| [at.to_le_bytes(), size.to_le_bytes()]).flatten();
    std::fs::write(folder.join("rank-7.out.times"), bytes.collect::<Vec<u8>>()).unwrap();
    let path = format!("/api/v1/jobs/{job}/logs?rank=7");
    for (since, text) in [("999", "old\nnew\n"), ("1000", "new\n"), ("9000", ""), ("99999999999999", "")] {
        assert_eq!(server.get(&format!("{path}&since_ms={since}"))["text"], text, "since {since}");
    }
    assert_eq!(server.get(&format!("{path}&since_ms=1&tail=1"))["text"], "new\n", "the later of the two starts");
    let mut stream = server.client().stream(&format!("{path}&since_ms=1000&follow=true"), &[]);
    assert_eq!(stream.next().unwrap().data["text"], "new\n");
    let both = server.client().get(&format!("{path}&since_ms=1000&offset=4"));
    server.expect_problem(&both, 422, "invalid");
}

#[test]
fn the_last_lines_are_read_and_followed() {
    let server = TestServer::new();
    let (job, folder) = running_job(&server);
    let lines: String = (1..=40_000).map(|line| format!("line {line}\n")).collect();
    let output = folder.join("rank-7.out");
    std::fs::write(&output, lines).unwrap();
    let path = format!("/api/v1/jobs/{job}/logs?rank=7");
    assert_eq!(server.get(&format!("{path}&tail=2"))["text"], "line 39999\nline 40000\n");
    let mut stream = server.client().stream(&format!("{path}&tail=1&follow=true"), &[]);
    assert_eq!(stream.next().unwrap().data["text"], "line 40000\n");
    std::fs::File::options().append(true).open(&output).unwrap().write_all(b"more\n").unwrap();
    assert_eq!(stream.next().unwrap().data["text"], "more\n");
}

#[test]
fn each_rank_is_read_from_its_own_node() {
    let server = TestServer::new();
    // Tasks without GPUs hold no leases, so only the journal entry of the placement names their nodes.
    for gpus in [4, 0] {
        let cpu_cores = if gpus == 0 { 20 } else { 1 };
        let job = server.submit(json!({"command": ["x"], "annotations": {"muster.sim/runtime": "100ms"},
            "tasks": [{"count": 2, "gpus": gpus, "cpu_cores": cpu_cores}]}));
        let ended = server.wait_for_state(&job, "completed");
        assert_eq!(ended["nodes"].as_array().map(Vec::len), Some(2), "the gang spans two nodes: {ended}");
        for rank in 0..2 {
            let piece = server.get(&format!("/api/v1/jobs/{job}/logs?rank={rank}"));
            let (text, node) = (piece["text"].as_str().unwrap(), piece["node"].as_str().unwrap());
            assert!(text.contains(&format!("rank {rank} of 2 on {node} ")), "{node}: {text}");
        }
        let none = server.get(&format!("/api/v1/jobs/{job}/logs?rank=9"));
        assert_eq!((none["text"].as_str(), &none["complete"], &none["node"]), (Some(""), &json!(true), &Value::Null));
    }
}

#[test]
fn output_of_a_node_that_is_not_connected_is_refused_with_its_name() {
    let mut first = TestServer::new();
    let job = first.submit_sleeper("10ms", 1);
    let node = first.wait_for_state(&job, "completed")["nodes"][0].as_str().unwrap().to_string();
    // The same cluster with another data folder: the output stayed in the folder of the first server.
    let second = first.restart_with_nodes(OTHER_NODES, 1);
    let path = format!("/api/v1/jobs/{job}/logs");
    let detail = second.expect_problem(&second.client().get(&path), 404, "log-not-here");
    assert!(detail.contains(&format!("`{node}`")), "{detail}");
    let last = second.client().stream(&format!("{path}?follow=true"), &[]).last().unwrap();
    assert_eq!((last.event.as_str(), last.data["code"].as_str()), ("problem", Some("log-not-here")));
}

#[test]
fn many_streams_are_followed_in_one_response() {
    let server = TestServer::new();
    let (job, folder) = running_job(&server);
    let ranks = 100..400; // Far more than the streams that a caller may keep open.
    for rank in ranks.clone() {
        std::fs::write(folder.join(format!("rank-{rank}.out")), format!("{rank}\n")).unwrap();
    }
    let list: Vec<String> = ranks.clone().map(|rank| format!("{rank}.stdout:1")).collect();
    let path = format!("/api/v1/jobs/{job}/logs?follow=true&streams={},0.stderr", list.join(","));
    let mut stream = server.client().stream(&path, &[]);
    let texts: BTreeMap<u64, String> = stream
        .by_ref()
        .take(ranks.len())
        .map(|event| (event.data["rank"].as_u64().unwrap(), event.data["text"].as_str().unwrap().to_string()))
        .collect();
    assert!(texts.iter().all(|(rank, text)| *text == format!("{rank}\n")[1..]), "each from its offset: {texts:?}");
    assert_eq!(texts.len(), ranks.len());
    server.client().delete(&format!("/api/v1/jobs/{job}"));
    let ends = stream.filter(|event| event.event == "end").count();
    assert_eq!(ends, ranks.len() + 1, "each stream has an end, also one without output");
}

#[test]
fn a_stream_that_the_server_interrupts_has_no_end() {
    let server = TestServer::new();
    let (job, _) = running_job(&server);
    let log = server.client().stream(&format!("/api/v1/jobs/{job}/logs?follow=true"), &[]);
    drop(server);
    let events: Vec<String> = log.map(|event| event.event).collect();
    assert!(events.iter().all(|event| event == "piece"), "`end` means that there is no more output: {events:?}");
}

#[test]
fn wrong_parameters_are_refused() {
    let server = TestServer::new();
    let job = server.submit_sleeper("1h", 1);
    for (query, field) in [
        ("tail=1&offset=1", "tail"),
        ("tail=100001", "tail"),
        ("format=xml", "format"),
        ("format=raw&follow=true", "format"),
        ("offset=9223372036854775808", "offset"),
        ("streams=0.stdout", "streams"),
        ("streams=0.stdin&follow=true", "streams"),
        ("streams=&follow=true", "streams"),
        ("streams=0.stdout:x&follow=true", "streams"),
        ("streams=0.stdout&rank=1&follow=true", "streams"),
    ] {
        let reply = server.client().get(&format!("/api/v1/jobs/{job}/logs?{query}"));
        let detail = server.expect_problem(&reply, 422, "invalid");
        assert!(detail.starts_with(field), "{query}: {detail}");
    }
    for query in ["tail=-1", "tail=few", "grep=x", "rank=-1"] {
        assert_eq!(server.client().get(&format!("/api/v1/jobs/{job}/logs?{query}")).status, 400, "{query}");
    }
}
