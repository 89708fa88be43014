//! A client against servers that misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use muster_protocol::submit::Submitted;

use super::*;
use crate::error::Exit;

/// What a server does with one connection: hang up without a word, or say this.
#[derive(Clone, Copy)]
enum Does {
    HangUp,
    Say(&'static str, &'static str),
}

/// Serve connections one after the other, and return the keys that came with them.
fn serve(acts: Vec<Does>) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let keys = std::thread::spawn(move || acts.into_iter().map(|act| exchange(&listener, act)).collect());
    (Client::new(&Connection { server, token: None, ca_file: None }).unwrap(), keys)
}

fn exchange(listener: &TcpListener, act: Does) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let key = head.iter().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap_or_default();
    if let Does::Say(status, body) = act {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .unwrap();
    }
    key.to_string()
}

const ACCEPTED: &str = r#"{"job_id":"job-7","status":"submitted","message":"accepted"}"#;

#[test]
fn a_submission_is_repeated_with_the_same_key() {
    let (client, keys) =
        serve(vec![Does::HangUp, Does::Say("503 Away", "{}"), Does::Say("201 Created", ACCEPTED)]);
    let submitted: Submitted = client.send_once("jobs", &"x", new_key()).unwrap();
    assert_eq!(submitted.job_id, "job-7");
    let keys = keys.join().unwrap();
    assert_eq!(keys[0].len(), 32);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn what_changes_something_without_a_key_is_sent_once() {
    let (client, keys) = serve(vec![Does::HangUp]);
    let error = client.send::<Submitted>(Method::POST, "tenants", &"x").unwrap_err();
    assert_eq!((error.exit, error.may_pass), (Exit::Unreachable, true));
    assert_eq!(keys.join().unwrap(), [""]);
}

#[test]
fn an_answer_of_another_kind_is_said_to_be_one() {
    let (client, _) = serve(vec![Does::Say("200 OK", "<html>")]);
    let error = client.get::<Submitted>("jobs").unwrap_err();
    assert_eq!(error.exit, Exit::Failed);
    assert!(error.what.contains("something else than this version expects"), "{}", error.what);
}
