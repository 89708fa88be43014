//! Adapter (ContainerRuntime): apptainer. It replaces itself by the program of the container, with the rights, the mounts and
//! the environment of the task, and pulls images by itself.

use std::ffi::OsString;

use super::{BindMount, CommandLines, ContainerRun, ContainerRuntime, words};

/// A name with one of these beginnings, or a path, is understood by apptainer as it is; others are names of a registry.
const SCHEMES: [&str; 6] = ["docker://", "oras://", "library://", "shub://", "oci:", "docker-archive:"];

pub(super) struct Apptainer;

impl CommandLines for Apptainer {
    fn run(&self, _: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString> {
        // `run` keeps the entrypoint of the image, `exec` replaces it.
        let verb = if run.entrypoint.is_some() { "exec" } else { "run" };
        let mut all = words(["--quiet", verb]);
        run.mounts.iter().for_each(|mount| all.extend(["--bind".into(), bind_value(mount)]));
        if !run.devices.is_empty() {
            all.extend(words(["--nv"])); // Binds the driver; the device filter decides about the devices.
        }
        if let Some(directory) = run.directory {
            all.extend(["--pwd".into(), directory.into()]);
        }
        all.push(source(run.image).into());
        all.extend(run.entrypoint.iter().map(OsString::from));
        all.extend(run.args.iter().map(OsString::from));
        all
    }

    fn find_image(&self, _: &ContainerRuntime, _: &str) -> Option<Vec<OsString>> {
        None
    }

    fn image_facts(&self, _: &ContainerRuntime, _: &str) -> Option<Vec<OsString>> {
        None
    }

    fn remove_image(&self, _: &ContainerRuntime, _: &str) -> Option<Vec<OsString>> {
        None
    }

    fn pull(&self, _: &ContainerRuntime, image: &str) -> Vec<OsString> {
        words(["--quiet", "pull", &source(image)])
    }

    fn status(&self, _: &ContainerRuntime, _: &str) -> Option<Vec<OsString>> {
        None
    }

    fn remove(&self, _: &ContainerRuntime, _: &[String]) -> Option<Vec<OsString>> {
        None
    }

    fn list(&self, _: &ContainerRuntime, _: &str) -> Option<Vec<OsString>> {
        None
    }
}

fn source(image: &str) -> String {
    let is_complete = image.starts_with('/') || SCHEMES.iter().any(|scheme| image.starts_with(scheme));
    if is_complete { image.to_string() } else { format!("docker://{image}") }
}

fn bind_value(mount: &BindMount) -> OsString {
    let mut value = mount.source.clone().into_os_string();
    value.push(":");
    value.push(&mount.target);
    value.push(if mount.read_only { ":ro" } else { ":rw" });
    value
}

#[cfg(test)]
mod tests {
    use super::super::RuntimeKind;
    use super::super::fixtures::{full, line, runtime, user};
    use super::*;

    #[test]
    fn command_lines_of_apptainer() {
        let (user, apptainer) = (user(), runtime(RuntimeKind::Apptainer));
        assert_eq!(
            line(&Apptainer.run(&apptainer, &full(&user))),
            "--quiet run --bind /a/work:/a/work:rw --bind /data:/in:ro --nv --pwd /src \
             docker://example.org/train:1 train --fast"
        );
        let script = ContainerRun {
            entrypoint: Some("/bin/sh".into()),
            args: vec!["/s".to_string()],
            devices: vec![],
            image: "/images/train.sif",
            ..full(&user)
        };
        assert_eq!(
            line(&Apptainer.run(&apptainer, &script)),
            "--quiet exec --bind /a/work:/a/work:rw --bind /data:/in:ro --pwd /src /images/train.sif /bin/sh /s"
        );
    }
}
