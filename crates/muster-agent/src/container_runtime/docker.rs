//! Adapter (ContainerRuntime): docker. Its daemon starts the containers, so nothing of them is a descendant of the client.

use std::ffi::OsString;

use super::oci_flags::{self, STATUS_FORMAT};
use super::{CommandLines, ContainerRun, ContainerRuntime, words};

pub(super) struct Docker;

impl CommandLines for Docker {
    fn run(&self, runtime: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString> {
        let mut all = oci_flags::run_flags(runtime, run);
        // The client writes the output to the logs of the task; the daemon keeps no second copy.
        all.extend(words(["--log-driver", "none", "--init"]));
        all.extend(oci_flags::image_and_args(run));
        all
    }

    fn find_image(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some(words(["image", "inspect", "--format", "{{.Id}}", image]))
    }

    fn image_facts(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some(oci_flags::image_facts_flags(image))
    }

    fn remove_image(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some(words(["image", "rm", image]))
    }

    fn pull(&self, _: &ContainerRuntime, image: &str) -> Vec<OsString> {
        words(["pull", "--quiet", image])
    }

    fn status(&self, _: &ContainerRuntime, name: &str) -> Option<Vec<OsString>> {
        Some(words(["container", "inspect", "--format", STATUS_FORMAT, name]))
    }

    fn remove(&self, _: &ContainerRuntime, names: &[String]) -> Option<Vec<OsString>> {
        Some(oci_flags::remove_flags(names))
    }

    fn list(&self, _: &ContainerRuntime, agent: &str) -> Option<Vec<OsString>> {
        Some(oci_flags::list_flags(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::super::RuntimeKind;
    use super::super::fixtures::{full, line, runtime, user};
    use super::*;

    #[test]
    fn command_lines_of_docker() {
        let (user, docker) = (user(), runtime(RuntimeKind::Docker));
        assert_eq!(
            line(&Docker.run(&docker, &full(&user))),
            "run --name muster-gpu01-0a-job-7.3-2-1 --label muster.agent=gpu01-0a --pull never --network host \
             --cap-drop ALL --security-opt no-new-privileges --user 700:701 \
             --cgroup-parent /muster/gpu01-0a/job-7.3.2/rank-1 --ulimit core=0:0 --ulimit nofile=1024:1024 \
             --env-file /a/env --mount type=bind,source=/a/work,target=/a/work \
             --mount type=bind,source=/data,target=/in,readonly --device nvidia.com/gpu=0 --workdir /src \
             --log-driver none --init example.org/train:1 train --fast"
        );
        let names = ["a".to_string()];
        assert_eq!(line(&Docker.find_image(&docker, "i").unwrap()), "image inspect --format {{.Id}} i");
        assert_eq!(line(&Docker.image_facts(&docker, "i").unwrap()), "image inspect --format {{.Id}} {{.Size}} i");
        assert_eq!(line(&Docker.remove_image(&docker, "i").unwrap()), "image rm i");
        assert_eq!(line(&Docker.pull(&docker, "i")), "pull --quiet i");
        assert_eq!(line(&Docker.remove(&docker, &names).unwrap()), "rm --force a");
    }

    #[test]
    fn a_daemon_that_leaves_cgroups_to_systemd_gets_the_limits_themselves() {
        let (user, docker) = (user(), ContainerRuntime { takes_cgroup_parent: false, ..runtime(RuntimeKind::Docker) });
        let line = line(&Docker.run(&docker, &full(&user)));
        assert!(line.contains("--pids-limit 4096 --memory 512m --memory-swap 512m --ulimit"), "{line}");
        assert!(!line.contains("--cgroup-parent"), "{line}");
    }
}
