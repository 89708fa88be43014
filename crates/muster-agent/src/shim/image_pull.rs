//! Makes sure that the image of a job is on this node before its tasks start. The pull is supervised as a gang of one task:
//! the job can be stopped and fences itself meanwhile.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use muster_protocol::agent::Exit;
use rustix::process::Pid;

use super::gang_monitor::GangMonitor;
use super::tasks::{RunningGang, SignalTarget};
use super::wakeups::Wakeups;
use super::{ShimError, exit_before_the_start, supervision};
use crate::attempt_dir::AttemptDir;
use crate::attempt_processes::ATTEMPT_DIR_VARIABLE;
use crate::clock;
use crate::container_runtime::{ContainerRuntime, ContainerSetup, ImagePull, last_line};
use crate::isolation::Isolation;
use crate::pulled_images::PulledImages;
use crate::records::{ExitRecord, LaunchIntent, SelfFence};
use crate::shim_socket::ShimSocket;

const PULL_LOG_FILE: &str = "pull.log";
/// What registries and runtimes say, in lower case, if the image does not exist or may not be pulled: no retry helps.
const ERRORS_OF_THE_JOB: [&str; 9] = [
    "manifest unknown",
    "name unknown",
    "not found",
    "does not exist",
    "invalid reference format",
    "must be lowercase",
    "requested access to the resource is denied",
    "no such image",
    "unauthorized",
];

/// Whether the image is there, or the attempt is over.
pub(super) enum Image {
    Present {
        socket: Option<ShimSocket>,
        /// As it was renewed while the image was pulled.
        self_fence: Option<SelfFence>,
    },
    Missing(ExitRecord),
}

pub(super) fn ensure_image(
    attempt_dir: &AttemptDir,
    intent: &LaunchIntent,
    isolation: &Isolation,
    socket: Option<ShimSocket>,
) -> Result<Image, ShimError> {
    let present = |socket| Ok(Image::Present { socket, self_fence: intent.self_fence });
    let (Some(image), Some(setup)) = (&intent.order.run.image, &isolation.container) else { return present(socket) };
    let not_started = |why: String| Ok(Image::Missing(exit_before_the_start(intent, Exit::NotStarted(why))));
    if !setup.runtime.kind.takes_image(image) {
        let why = format!("`{image}` cannot be the name of an image; write `[HOST/]NAME[:TAG]`");
        return Ok(Image::Missing(exit_before_the_start(intent, Exit::invalid_job(&why))));
    }
    let images = PulledImages::of(attempt_dir.data_dir());
    let must_pull = images.lock_shared().and_then(|_lock| {
        images.note_use(image)?;
        must_pull(setup, image)
    });
    match must_pull {
        Ok(false) => present(socket),
        Ok(true) if setup.pull == ImagePull::Never => {
            not_started(format!("image {image} is not on this node, and `agent.image_pull` is `never`"))
        }
        Ok(true) => {
            // With `always` it may be one of the site.
            let is_ours =
                images.find(image).is_some() || setup.runtime.image_facts(image).is_ok_and(|facts| facts.is_none());
            let pulled = pull(attempt_dir, intent, isolation, (&setup.runtime, image, socket))?;
            if is_ours && matches!(pulled, Image::Present { .. }) {
                note_pull(&images, &setup.runtime, image);
            }
            Ok(pulled)
        }
        Err(error) => not_started(format!("the container runtime does not find image {image}: {error}")),
    }
}

/// Without a note the image stays on the node, as one of the site.
fn note_pull(images: &PulledImages, runtime: &ContainerRuntime, image: &str) {
    let noted =
        runtime.image_facts(image).and_then(|facts| facts.map_or(Ok(()), |facts| images.note_pull(image, &facts.id)));
    if let Err(error) = noted {
        eprintln!("the pull of image {image} is not noted, so the image cache never removes it: {error}");
    }
}

fn must_pull(setup: &ContainerSetup, image: &str) -> io::Result<bool> {
    match setup.pull {
        // A runtime that pulls images by itself looks for a newer one by itself.
        ImagePull::Always => Ok(!setup.runtime.kind.runs_as_the_job()),
        ImagePull::Missing | ImagePull::Never => setup.runtime.has_image(image).map(|has_image| !has_image),
    }
}

fn pull(
    attempt_dir: &AttemptDir,
    intent: &LaunchIntent,
    isolation: &Isolation,
    (runtime, image, socket): (&ContainerRuntime, &str, Option<ShimSocket>),
) -> Result<Image, ShimError> {
    let ended = |exit: Exit| Image::Missing(exit_before_the_start(intent, exit));
    let log = attempt_dir.make_container_dir().map(|dir| dir.join(PULL_LOG_FILE));
    let started = log.and_then(|log| Ok((start(attempt_dir, runtime, image, &log)?, log)));
    let (pid, log) = match started {
        Ok(started) => started,
        Err(error) => return Ok(ended(Exit::NotStarted(format!("image {image} cannot be pulled: {error}")))),
    };
    let gang = RunningGang {
        process_group: pid,
        task_pids: vec![(0, pid)],
        logs: Vec::new(),
        signals: SignalTarget::Processes,
    };
    let mut wakeups = Wakeups::new(socket).map_err(ShimError::Wait)?;
    let monitor = GangMonitor::new(1, intent.self_fence);
    let monitor = supervision::supervise_until_gone((attempt_dir, isolation), &gang, monitor, &mut wakeups)?;
    let socket = wakeups.into_socket().map_err(ShimError::Wait)?;
    let self_fence = monitor.self_fence();
    let record = monitor.into_exit_record(&intent.order, clock::unix_now_ms());
    Ok(match record.exit {
        _ if record.stopped => {
            let exit = Exit::NotStarted("the attempt was stopped while its image was pulled".to_string());
            Image::Missing(ExitRecord { exit, ..record })
        }
        Exit::Code(0) => Image::Present { socket, self_fence },
        Exit::Unknown(why) => ended(Exit::NotStarted(why)), // It fenced itself, and nothing of the job has run.
        _ => ended(pull_failure(image, &last_line(&std::fs::read(&log).unwrap_or_default()))),
    })
}

fn start(attempt_dir: &AttemptDir, runtime: &ContainerRuntime, image: &str, log: &Path) -> io::Result<Pid> {
    let output = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(log)?;
    let mut command = runtime.client(runtime.pull_arguments(image));
    command.env(ATTEMPT_DIR_VARIABLE, attempt_dir.path()).process_group(0);
    command.stdout(output.try_clone()?).stderr(output);
    // The child is reaped with all others.
    command.spawn().map(|child| Pid::from_child(&child))
}

fn pull_failure(image: &str, error: &str) -> Exit {
    let why = format!("image {image} cannot be pulled: {error}");
    let error = error.to_lowercase();
    match ERRORS_OF_THE_JOB.iter().any(|known| error.contains(known)) {
        true => Exit::invalid_job(&why),
        false => Exit::NotStarted(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_does_not_exist_ends_the_job_and_an_unreachable_registry_does_not() {
        let reason = |error: &str| match pull_failure("train:1", error) {
            Exit::NotStarted(why) => why,
            other => panic!("{other:?}"),
        };
        let unknown = reason("reading manifest 1 in docker.io/library/train: manifest unknown: Manifest Unknown");
        assert!(unknown.starts_with("invalid job: image train:1 cannot be pulled: reading manifest"), "{unknown}");
        let refused =
            reason("pinging container registry localhost: dial tcp 127.0.0.1:443: connect: connection refused");
        assert!(refused.starts_with("image train:1 cannot be pulled: pinging"), "{refused}");
    }
}
