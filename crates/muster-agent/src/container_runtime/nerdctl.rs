//! Adapter (ContainerRuntime): nerdctl, the client of containerd.

use std::ffi::OsString;

use super::oci_flags::{self, STATUS_FORMAT};
use super::{CommandLines, ContainerRun, ContainerRuntime, words};

pub(super) struct Nerdctl;

impl CommandLines for Nerdctl {
    fn run(&self, runtime: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString> {
        let mut all = global_flags();
        all.extend(oci_flags::run_flags(runtime, run));
        all.extend(words(["--umask", &format!("{:04o}", run.umask)]));
        all.extend(runtime.has_init.then(|| OsString::from("--init")));
        all.extend(oci_flags::image_and_args(run));
        all
    }

    fn find_image(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(), words(["image", "inspect", "--format", "{{.ID}}", image])].concat())
    }

    fn image_facts(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(), words(["image", "inspect", "--format", "{{.ID}} {{.Size}}", image])].concat())
    }

    fn remove_image(&self, _: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(), words(["image", "rm", image])].concat())
    }

    fn pull(&self, _: &ContainerRuntime, image: &str) -> Vec<OsString> {
        [global_flags(), words(["pull", "--quiet", image])].concat()
    }

    fn status(&self, _: &ContainerRuntime, name: &str) -> Option<Vec<OsString>> {
        Some([global_flags(), words(["container", "inspect", "--format", STATUS_FORMAT, name])].concat())
    }

    fn remove(&self, _: &ContainerRuntime, names: &[String]) -> Option<Vec<OsString>> {
        Some([global_flags(), oci_flags::remove_flags(names)].concat())
    }

    fn list(&self, _: &ContainerRuntime, agent: &str) -> Option<Vec<OsString>> {
        Some([global_flags(), oci_flags::list_flags(agent)].concat())
    }
}

/// The cgroup of the attempt is not one of systemd.
fn global_flags() -> Vec<OsString> {
    words(["--cgroup-manager", "cgroupfs"])
}

#[cfg(test)]
mod tests {
    use super::super::RuntimeKind;
    use super::super::fixtures::{full, line, runtime, user};
    use super::*;

    #[test]
    fn command_lines_of_nerdctl() {
        let (user, nerdctl) = (user(), ContainerRuntime { has_init: false, ..runtime(RuntimeKind::Nerdctl) });
        assert_eq!(
            line(&Nerdctl.run(&nerdctl, &full(&user))),
            "--cgroup-manager cgroupfs run --name muster-gpu01-0a-job-7.3-2-1 --label muster.agent=gpu01-0a \
             --pull never --network host --cap-drop ALL --security-opt no-new-privileges --user 700:701 \
             --group-add 44 --cgroup-parent /muster/gpu01-0a/job-7.3.2/rank-1 --ulimit core=0:0 \
             --ulimit nofile=1024:1024 --env-file /a/env --mount type=bind,source=/a/work,target=/a/work \
             --mount type=bind,source=/data,target=/in,readonly --device nvidia.com/gpu=0 --workdir /src \
             --umask 0027 example.org/train:1 train --fast"
        );
        let rm = Nerdctl.remove_image(&nerdctl, "i").unwrap();
        assert_eq!(line(&rm), "--cgroup-manager cgroupfs image rm i");
        assert_eq!(line(&Nerdctl.pull(&nerdctl, "i")), "--cgroup-manager cgroupfs pull --quiet i");
    }
}
