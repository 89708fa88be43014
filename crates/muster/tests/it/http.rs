//! Plain HTTP, for what is asked too often to start a program each time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Long enough for a busy machine: whoever waits longer has found a server that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ask a server, on a connection of its own: the status, and what was said.
pub fn ask(url: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let length = body.len();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no status: {answer:?}")))?;
    let said = answer.split_once("\r\n\r\n").map(|(_, said)| said.to_string()).unwrap_or_default();
    Ok((status, said))
}
