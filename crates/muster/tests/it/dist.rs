//! `scripts/dist.sh` packs a release, here with the binary of the tests.

use std::path::Path;
use std::process::Command;

use super::docs::root;

fn build_archive(folder: &Path) -> String {
    let output = Command::new(root().join("scripts/dist.sh"))
        .args([Path::new(env!("CARGO_BIN_EXE_muster")), folder])
        .env("GZIP_LEVEL", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

fn shell(folder: &Path, line: &str) -> String {
    let output = Command::new("bash").args(["-euc", line]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "$ {line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_release_unpacks_into_a_binary_that_runs() {
    let folder = std::env::temp_dir().join(format!("muster-dist-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let archive = build_archive(&folder);
    let name = Path::new(&archive).file_name().unwrap().to_str().unwrap().to_string();
    assert!(name.starts_with(&format!("muster-{}-", env!("CARGO_PKG_VERSION"))), "{name}");
    shell(&folder, &format!("sha256sum --check {name}.sha256 && tar -xzf {name}"));
    let top = folder.join(name.trim_end_matches(".tar.gz"));
    assert_eq!(
        shell(&top, "find . -type f -o -type l | sort").lines().collect::<Vec<_>>(),
        [
            "./CHANGELOG.md",
            "./LICENSE",
            "./README.md",
            "./bin/agent",
            "./bin/gpu-cli",
            "./bin/muster",
            "./bin/scheduler",
            "./bin/star",
            "./completions/muster.bash",
            "./completions/muster.fish",
            "./completions/muster.zsh",
            "./config/scheduler-config.yaml",
        ]
    );
    assert!(shell(&top, "bin/muster --version").contains(env!("CARGO_PKG_VERSION")));
    assert!(shell(&top, "bin/gpu-cli --help").starts_with("CLI tool for the GPU scheduler"));
    assert!(shell(&top, "bash -c 'source completions/muster.bash && complete -p muster'").contains("muster"));
    shell(&top, "bin/muster config check config/scheduler-config.yaml");
    std::fs::remove_dir_all(&folder).unwrap();
}
