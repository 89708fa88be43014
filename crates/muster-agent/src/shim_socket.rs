//! The socket of a shim: the agent sends it messages that are not worth a disk write, or that say "look at once".
//!
//! It is a datagram socket in the attempt directory, so a restarted agent finds it by its path and there is no
//! connection to lose. A message may be lost (the shim is suspended, its queue is full, the directory was deleted): the
//! records on disk stay the truth, and a shim without renewals ends its attempt, which is the safe side.

use std::fs::{File, Permissions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use serde::{Deserialize, Serialize};

use crate::attempt_dir::{AttemptDir, SHIM_SOCKET_FILE};
use crate::records::SelfFence;

/// Longer than any message.
const MESSAGE_BYTES_MAX: usize = 512;

/// A message of the agent to a shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShimMessage {
    /// The agent has written the stop record.
    StopRecordWritten,
    /// The agent has written the signal record.
    SignalRecordWritten,
    /// A leader acknowledged a heartbeat.
    RenewSelfFence(SelfFence),
}

/// The receiving end, held by the shim.
#[derive(Debug)]
pub(crate) struct ShimSocket(UnixDatagram);

impl ShimSocket {
    /// Binds the socket in the attempt directory. The kernel then adds the credentials of the sender to each message.
    pub fn bind(attempt_dir: &AttemptDir) -> io::Result<ShimSocket> {
        let (_dir, path) = short_socket_path(attempt_dir)?;
        let socket = UnixDatagram::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(ShimSocket(socket))
    }

    /// The messages that have arrived. Those of other users, and unreadable ones, are dropped.
    pub fn receive(&self) -> Vec<ShimMessage> {
        let mut messages = Vec::new();
        loop {
            match self.receive_one() {
                Ok(message) => messages.extend(message),
                Err(rustix::io::Errno::INTR) => {}
                // Usually that nothing more has arrived.
                Err(_) => return messages,
            }
        }
    }

    fn receive_one(&self) -> rustix::io::Result<Option<ShimMessage>> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::empty())?.bytes;
        let sender = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.uid),
            _ => None,
        });
        let own = rustix::process::geteuid();
        if !sender.is_some_and(|sender| sender == own || sender.is_root()) {
            eprintln!("a message of user {sender:?} is ignored; only the agent's user may send one");
            return Ok(None);
        }
        Ok(muster_json::from_slice(&bytes[..received]).ok())
    }
}

impl AsFd for ShimSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The sending end, held by the agent for all its shims.
#[derive(Debug)]
pub(crate) struct ShimSender(UnixDatagram);

impl ShimSender {
    pub fn new() -> io::Result<ShimSender> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?; // A suspended shim must not stop the agent.
        Ok(ShimSender(socket))
    }

    /// Fails if the shim is gone, is of an older release, or does not read its messages.
    pub fn send(&self, attempt_dir: &AttemptDir, message: &ShimMessage) -> io::Result<()> {
        let (_dir, path) = short_socket_path(attempt_dir)?;
        self.0.send_to(muster_json::to_string(message).as_bytes(), path).map(drop)
    }
}

/// The path of the socket through the open directory: a socket address is limited to 108 bytes, and data directories
/// may have longer paths.
fn short_socket_path(attempt_dir: &AttemptDir) -> io::Result<(File, PathBuf)> {
    let dir = File::open(attempt_dir.path())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SHIM_SOCKET_FILE}", dir.as_raw_fd()));
    Ok((dir, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;
    use std::path::Path;

    fn attempt_dir(dir: &Path) -> AttemptDir {
        AttemptDir::at_path(dir.to_path_buf())
    }

    #[test]
    fn messages_arrive_in_order_even_in_a_directory_with_a_long_path() {
        let dir = TempDir::new();
        let deep = dir.join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let (socket, sender) = (ShimSocket::bind(&attempt_dir(&deep)).unwrap(), ShimSender::new().unwrap());
        assert_eq!(socket.receive(), []);
        let renewal = ShimMessage::RenewSelfFence(SelfFence { acknowledged_at_boot_ms: 7, within_ms: 300_000 });
        for message in [ShimMessage::StopRecordWritten, renewal] {
            sender.send(&attempt_dir(&deep), &message).unwrap();
        }
        assert_eq!(socket.receive(), [ShimMessage::StopRecordWritten, renewal]);
    }

    #[test]
    fn unreadable_messages_are_dropped_and_a_flood_does_not_block_the_sender() {
        let dir = TempDir::new();
        let (socket, sender) = (ShimSocket::bind(&attempt_dir(&dir)).unwrap(), ShimSender::new().unwrap());
        sender.0.send_to(b"{\"from-a-newer-release\":1}", dir.join("shim.sock")).unwrap();
        let sent = (0..10_000).take_while(|_| sender.send(&attempt_dir(&dir), &ShimMessage::StopRecordWritten).is_ok());
        let sent = sent.count();
        assert!(sent < 10_000, "the queue has no limit");
        assert_eq!(socket.receive().len(), sent, "all but the unreadable one");
    }

    /// Root may claim to be any user, so only root can run this test. The kernel refuses the claim to others.
    #[test]
    fn a_message_of_another_user_is_dropped() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred, sendmsg};
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can send as another user");
            return;
        }
        let dir = TempDir::new();
        let socket = ShimSocket::bind(&attempt_dir(&dir)).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect(dir.join("shim.sock")).unwrap();
        let bytes = muster_json::to_string(&ShimMessage::StopRecordWritten);
        for (uid, received) in [(65_534, 0), (0, 1)] {
            let credentials = UCred {
                pid: rustix::process::getpid(),
                uid: rustix::process::Uid::from_raw(uid),
                gid: rustix::process::getgid(),
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmCredentials(credentials)));
            let parts = [std::io::IoSlice::new(bytes.as_bytes())];
            sendmsg(&sender, &parts, &mut ancillary, SendFlags::empty()).unwrap();
            assert_eq!(socket.receive().len(), received, "user {uid}");
        }
    }

    #[test]
    fn sending_to_a_shim_without_socket_fails_and_does_nothing_else() {
        let dir = TempDir::new();
        assert!(ShimSender::new().unwrap().send(&attempt_dir(&dir), &ShimMessage::StopRecordWritten).is_err());
    }
}
