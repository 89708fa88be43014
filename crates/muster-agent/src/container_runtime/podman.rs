//! Adapter (ContainerRuntime): podman, which runs containers as descendants of its client. The option
//! `--cgroup-manager cgroupfs` makes podman create cgroups itself, because the cgroup of the attempt is not one of systemd.

use std::ffi::OsString;

use super::oci_flags::{self, STATUS_FORMAT};
use super::{CommandLines, ContainerRun, ContainerRuntime, words};

pub(super) struct Podman;

impl CommandLines for Podman {
    fn run(&self, runtime: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString> {
        let mut all = global_flags(runtime);
        all.extend(oci_flags::run_flags(runtime, run));
        // The program writes to the logs itself: no process of the runtime copies its output.
        all.extend(words(["--log-driver", "passthrough", "--security-opt", "label=disable"]));
        all.extend(words(["--umask", &format!("{:04o}", run.umask)]));
        // The default of podman may be above what the agent may set.
        let processes = run.pids_max;
        all.extend(words(["--ulimit", &format!("nproc={processes}:{processes}")]));
        // A proxy of the agent, with its password, is not for jobs.
        all.push("--http-proxy=false".into());
        all.extend(runtime.has_init.then(|| OsString::from("--init")));
        all.extend(oci_flags::image_and_args(run));
        all
    }

    fn find_image(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(runtime), words(["image", "exists", image])].concat())
    }

    fn image_facts(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(runtime), oci_flags::image_facts_flags(image)].concat())
    }

    fn remove_image(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>> {
        Some([global_flags(runtime), words(["image", "rm", image])].concat())
    }

    fn pull(&self, runtime: &ContainerRuntime, image: &str) -> Vec<OsString> {
        [global_flags(runtime), words(["pull", "--quiet", image])].concat()
    }

    fn status(&self, runtime: &ContainerRuntime, name: &str) -> Option<Vec<OsString>> {
        Some([global_flags(runtime), words(["container", "inspect", "--format", STATUS_FORMAT, name])].concat())
    }

    fn remove(&self, runtime: &ContainerRuntime, names: &[String]) -> Option<Vec<OsString>> {
        // Without `--ignore` releases before 4.0 fail for a container that does not exist.
        let mut all = [global_flags(runtime), words(["rm", "--force", "--ignore", "--time", "0"])].concat();
        all.extend(names.iter().map(OsString::from));
        Some(all)
    }

    fn list(&self, runtime: &ContainerRuntime, agent: &str) -> Option<Vec<OsString>> {
        Some([global_flags(runtime), oci_flags::list_flags(agent)].concat())
    }
}

fn global_flags(runtime: &ContainerRuntime) -> Vec<OsString> {
    let mut flags = words(["--cgroup-manager", "cgroupfs"]);
    flags.extend(runtime.oci_runtime.iter().flat_map(|name| words(["--runtime", name])));
    flags
}

#[cfg(test)]
mod tests {
    use super::super::RuntimeKind;
    use super::super::fixtures::{full, line, runtime, user};
    use super::*;

    #[test]
    fn command_lines_of_podman() {
        let user = user();
        let podman = ContainerRuntime { oci_runtime: Some("runc".to_string()), ..runtime(RuntimeKind::Podman) };
        assert_eq!(
            line(&Podman.run(&podman, &full(&user))),
            "--cgroup-manager cgroupfs --runtime runc run --name muster-gpu01-0a-job-7.3-2-1 \
             --label muster.agent=gpu01-0a --pull never --network host --cap-drop ALL \
             --security-opt no-new-privileges --user 700:701 \
             --cgroup-parent /muster/gpu01-0a/job-7.3.2/rank-1 --ulimit core=0:0 --ulimit nofile=1024:1024 \
             --env-file /a/env --mount type=bind,source=/a/work,target=/a/work \
             --mount type=bind,source=/data,target=/in,readonly --device nvidia.com/gpu=0 --workdir /src \
             --log-driver passthrough --security-opt label=disable --umask 0027 --ulimit nproc=4096:4096 --http-proxy=false --init \
             example.org/train:1 train --fast"
        );
        let podman = runtime(RuntimeKind::Podman);
        let names = ["a".to_string(), "b".to_string()];
        let lines = [
            Podman.find_image(&podman, "i").unwrap(),
            Podman.image_facts(&podman, "i").unwrap(),
            Podman.remove_image(&podman, "i").unwrap(),
            Podman.pull(&podman, "i"),
            Podman.status(&podman, "a").unwrap(),
            Podman.remove(&podman, &names).unwrap(),
            Podman.list(&podman, "gpu01").unwrap(),
        ];
        let expected = [
            "image exists i",
            "image inspect --format {{.Id}} {{.Size}} i",
            "image rm i",
            "pull --quiet i",
            "container inspect --format {{.State.Status}} {{.State.OOMKilled}} {{.State.Pid}} a",
            "rm --force --ignore --time 0 a b",
            "ps --all --filter label=muster.agent=gpu01 --format {{.Names}}",
        ];
        assert_eq!(lines.map(|words| line(&words)), expected.map(|line| format!("--cgroup-manager cgroupfs {line}")));
    }

    #[test]
    fn a_script_replaces_the_entrypoint_and_a_podman_without_init_runs_the_program_as_the_first_process() {
        let user = user();
        let podman = ContainerRuntime { has_init: false, ..runtime(RuntimeKind::Podman) };
        let script = ContainerRun { entrypoint: Some("/bin/sh".into()), args: vec!["/s".into()], ..full(&user) };
        let line = line(&Podman.run(&podman, &script));
        assert!(line.contains("--entrypoint /bin/sh") && !line.contains("--init"), "{line}");
        assert!(line.ends_with("example.org/train:1 /s"), "{line}");
    }
}
