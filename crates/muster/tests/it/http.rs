//! Plain HTTP requests, for tests that send too many to start a process for each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Long enough for a busy machine; a longer wait means that the server hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request on a new connection; returns the status and the body.
pub fn request(url: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let length = body.len();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no status: {response:?}")))?;
    let body = response.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or_default();
    Ok((status, body))
}
