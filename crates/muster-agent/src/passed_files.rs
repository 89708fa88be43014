//! Open files that one process hands to another over a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Most files of one message.
const FILES_MAX: usize = 3;

/// Sends files with one byte, which separates them from the messages before and after.
pub(crate) fn send(channel: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(channel, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the files of one message. They are closed when a program is executed.
pub(crate) fn receive(channel: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn files_arrive_between_messages() {
        let (mut one, mut two) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        one.write_all(b"before").unwrap();
        send(&one, &[writer.as_fd()]).unwrap();
        one.write_all(b"after").unwrap();
        drop(writer);
        let mut text = [0; 6];
        two.read_exact(&mut text).unwrap();
        let mut files = receive(&two).unwrap();
        assert_eq!((&text, files.len()), (b"before", 1));
        std::fs::File::from(files.remove(0)).write_all(b"passed").unwrap();
        let mut passed = String::new();
        reader.read_to_string(&mut passed).unwrap();
        assert_eq!(passed, "passed");
        drop(one);
        let mut rest = String::new();
        two.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "after");
    }
}
