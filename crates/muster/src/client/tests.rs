//! The client against a server that misbehaves.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use muster_protocol::submit::Submitted;

use super::*;
use crate::error::Exit;

/// What the server does with one connection.
#[derive(Clone, Copy)]
enum ScriptedResponse {
    /// Close the connection without a response.
    HangUp,
    /// Send this status and body.
    Respond(&'static str, &'static str),
}

/// Serve connections one after the other, and return their idempotency keys.
fn scripted_server(acts: Vec<ScriptedResponse>) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let keys = std::thread::spawn(move || acts.into_iter().map(|act| serve_one(&listener, act)).collect());
    (Client::new(&Connection { server, token: None, ca_file: None }).unwrap(), keys)
}

fn serve_one(listener: &TcpListener, act: ScriptedResponse) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let key = head.iter().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap_or_default();
    if let ScriptedResponse::Respond(status, body) = act {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
    }
    key.to_string()
}

const ACCEPTED: &str = r#"{"job_id":"job-7","status":"submitted","message":"accepted"}"#;

#[test]
fn a_submission_is_repeated_with_the_same_key() {
    let (client, keys) = scripted_server(vec![
        ScriptedResponse::HangUp,
        ScriptedResponse::Respond("503 Away", "{}"),
        ScriptedResponse::Respond("201 Created", ACCEPTED),
    ]);
    let submitted: Submitted = client.post_idempotent("jobs", &"x", new_idempotency_key()).unwrap();
    assert_eq!(submitted.job_id, "job-7");
    let keys = keys.join().unwrap();
    assert_eq!(keys[0].len(), 32);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn requests_without_an_idempotency_key_are_not_retried() {
    let (client, keys) = scripted_server(vec![ScriptedResponse::HangUp]);
    let error = client.send::<Submitted>(Method::POST, "tenants", &"x").unwrap_err();
    assert_eq!((error.exit, error.is_transient), (Exit::Unreachable, true));
    assert_eq!(keys.join().unwrap(), [""]);
}

#[test]
fn an_unparsable_response_is_reported() {
    let (client, _) = scripted_server(vec![ScriptedResponse::Respond("200 OK", "<html>")]);
    let error = client.get::<Submitted>("jobs").unwrap_err();
    assert_eq!(error.exit, Exit::Failed);
    assert!(error.message.contains("sent a response that this version cannot parse"), "{}", error.message);
}
