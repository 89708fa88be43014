//! A small HTTP/1.1 client on a plain socket, so that tests control every byte of a request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::schema;

/// Silence after which a test fails.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    address: String,
    token: Option<String>,
}

#[derive(Debug, Clone)]
pub struct HttpReply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
}

impl HttpReply {
    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        muster_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// One header; empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

impl Client {
    pub fn new(url: &str, token: Option<String>) -> Client {
        Client { address: url.trim_start_matches("http://").to_string(), token }
    }

    /// The same server with another token.
    pub fn with_token(&self, token: &str) -> Client {
        Client { token: Some(token.to_string()), ..self.clone() }
    }

    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The same server without a token.
    pub fn anonymous(&self) -> Client {
        Client { token: None, ..self.clone() }
    }

    pub fn get(&self, path: &str) -> HttpReply {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&self, path: &str) -> HttpReply {
        self.send("DELETE", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> HttpReply {
        self.send_json("POST", path, body)
    }

    pub fn put(&self, path: &str, body: &Value) -> HttpReply {
        self.send_json("PUT", path, body)
    }

    pub fn patch(&self, path: &str, body: &Value) -> HttpReply {
        self.send_json("PATCH", path, body)
    }

    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> HttpReply {
        self.send(method, path, &[("Content-Type", "application/json")], &muster_json::to_vec(body))
    }

    /// Send a request unchanged, and check the response against the OpenAPI document.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
        let mut socket = self.open(method, path, headers, body);
        let mut reply = read_head(&mut socket);
        if method != "HEAD" {
            reply.text = read_body(&mut socket, &reply);
        }
        schema::check_reply(method, path, &reply);
        reply
    }

    /// GET a body that is not text, and check its media type against the OpenAPI document.
    pub fn get_bytes(&self, path: &str) -> (HttpReply, Vec<u8>) {
        let mut socket = self.open("GET", path, &[], b"");
        let reply = read_head(&mut socket);
        schema::check_reply("GET", path, &reply);
        let bytes = read_bytes(&mut socket, &reply);
        (reply, bytes)
    }

    /// GET without the check, for paths that are not in the document.
    pub fn get_unchecked(&self, path: &str) -> HttpReply {
        let mut socket = self.open("GET", path, &[], b"");
        let mut reply = read_head(&mut socket);
        reply.text = read_body(&mut socket, &reply);
        reply
    }

    /// GET with headers and without the check.
    pub fn get_with_headers_unchecked(&self, path: &str, headers: &[(&str, &str)]) -> HttpReply {
        self.send_unchecked("GET", path, headers, b"")
    }

    /// Send a request unchanged, without the check.
    pub fn send_unchecked(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
        let mut socket = self.open(method, path, headers, body);
        let mut reply = read_head(&mut socket);
        reply.text = read_body(&mut socket, &reply);
        reply
    }

    /// Open a stream of server-sent events.
    pub fn stream(&self, path: &str, headers: &[(&str, &str)]) -> SseReader {
        let mut socket = self.open("GET", path, headers, b"");
        let reply = read_head(&mut socket);
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"), "{path}");
        SseReader { socket, buffered: String::new() }
    }

    /// The status of a stream, which is closed at once.
    pub fn stream_status(&self, path: &str) -> u16 {
        read_head(&mut self.open("GET", path, &[], b"")).status
    }

    fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        socket.write_all(head.as_bytes()).unwrap();
        // A server may refuse the request and close the connection before it has read the whole body.
        let _ = socket.write_all(body);
        BufReader::new(socket)
    }
}

fn read_head(socket: &mut BufReader<TcpStream>) -> HttpReply {
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not an HTTP response: `{line}`"));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_string()),
            None => return HttpReply { status, headers, text: String::new() },
        };
    }
}

fn read_body(socket: &mut BufReader<TcpStream>, head: &HttpReply) -> String {
    String::from_utf8(read_bytes(socket, head)).unwrap()
}

fn read_bytes(socket: &mut BufReader<TcpStream>, head: &HttpReply) -> Vec<u8> {
    let mut bytes = Vec::new();
    match head.header("content-length").parse::<usize>() {
        Ok(length) => {
            bytes.resize(length, 0);
            socket.read_exact(&mut bytes).unwrap();
        }
        Err(_) => while read_chunk(socket, &mut bytes) {},
    }
    bytes
}

/// Read one chunk; false at the last one.
fn read_chunk(socket: &mut BufReader<TcpStream>, bytes: &mut Vec<u8>) -> bool {
    let mut size = String::new();
    socket.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
    let mut chunk = vec![0; size + 2];
    if socket.read_exact(&mut chunk).is_err() {
        return false;
    }
    chunk.truncate(size);
    bytes.extend(chunk);
    size > 0
}

/// One server-sent event.
#[derive(Debug, Clone, Default)]
pub struct SseEvent {
    pub id: Option<u64>,
    pub event: String,
    pub data: Value,
}

/// A stream of server-sent events.
pub struct SseReader {
    socket: BufReader<TcpStream>,
    buffered: String,
}

impl Iterator for SseReader {
    type Item = SseEvent;

    /// The next event; `None` when the stream has ended.
    fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((block, rest)) = self.buffered.split_once("\n\n") {
                let (block, rest) = (block.to_string(), rest.to_string());
                self.buffered = rest;
                match parse_sse_event(&block) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let mut bytes = Vec::new();
            if !read_chunk(&mut self.socket, &mut bytes) {
                return None;
            }
            self.buffered.push_str(&String::from_utf8(bytes).unwrap());
        }
    }
}

/// The event of a block; `None` for a comment.
fn parse_sse_event(block: &str) -> Option<SseEvent> {
    let mut event = SseEvent::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => event.id = id.parse().ok(),
            Some(("event", name)) => event.event = name.to_string(),
            Some(("data", data)) => event.data = muster_json::from_str(data).unwrap(),
            _ => {}
        }
    }
    (!event.event.is_empty()).then_some(event)
}
