//! GPUs of jobs with an image: podman adds the devices of a Container Device Interface specification.

use muster_testing::PodmanStore;
use muster_testing::images::PLAIN;

use super::agents::Site;

/// The device files are others for `/dev/null`, which every job may open.
const SPECIFICATION: &str = r#"
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
  - name: "0"
    containerEdits: {env: ["GPU_0=yes"], deviceNodes: [{path: /dev/test-gpu0, hostPath: /dev/null, type: c, major: 1, minor: 3}]}
  - name: "1"
    containerEdits: {env: ["GPU_1=yes"], deviceNodes: [{path: /dev/test-gpu1, hostPath: /dev/null, type: c, major: 1, minor: 3}]}
"#;

/// The agent has an `/etc` of its own, in which the driver describes two GPUs.
#[test]
fn a_container_has_the_devices_of_the_gpus_of_its_job_and_no_others() {
    let Some(podman) = PodmanStore::new("gpus") else { return };
    let etc = podman.dir().join("etc");
    let copied = std::process::Command::new("cp").args(["-a", "/etc"]).arg(&etc).status().unwrap();
    assert!(copied.success());
    std::fs::create_dir_all(etc.join("cdi")).unwrap();
    std::fs::write(etc.join("cdi/nvidia.yaml"), SPECIFICATION).unwrap();
    let site = Site::new("image-gpus");
    let config = format!("agent: {{container_runtime: \"{}\"}}\n", podman.program().display());
    std::fs::write(site.folder.join("agent.yaml"), config).unwrap();
    let mount = format!("mount --bind {} /etc && exec \"$@\"", etc.display());
    let launcher = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &mount, "sh"];
    let _agent = site.joined_under(&launcher, "g1", &["--config", "agent.yaml", "--gpus", "2"]);
    let script =
        "echo $MUSTER_GPUS; ls /dev | grep test-gpu; env | grep ^GPU_; : > /dev/test-gpu$MUSTER_GPUS && echo opened";
    let run = |gpus: &str, script: &str| {
        site.ok(&["run", "--quiet", "--image", PLAIN, "--gpus", gpus, "--", "sh", "-c", script])
    };
    assert_eq!(run("1", script), "0\ntest-gpu0\nGPU_0=yes\nopened\n");
    assert_eq!(run("2", "env | grep -c ^GPU_"), "2\n");
    assert_eq!(run("0", "env | grep -c ^GPU_ || ls /dev | grep -c test-gpu || true"), "0\n0\n");
}
