//! Generates the Rust code of the gRPC definitions in `crates/muster-wire/proto`. protox compiles them, so that nobody
//! has to install protoc. A program of its own, so that it runs while the rest of the workspace does not compile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use prost_types::{FileDescriptorProto, FileDescriptorSet};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../muster-wire");
    let generated = wire.join("src/generated");
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => generate(&wire, &generated),
        ["--check"] => check(&wire, &generated),
        _ => bail!("usage: scripts/generate-proto.sh [--check]"),
    }
}

/// Fails unless the generated files are those of the definitions.
fn check(wire: &Path, generated: &Path) -> Result<()> {
    let fresh = std::env::temp_dir().join(format!("muster-wire-{}", std::process::id()));
    let compared = generate(wire, &fresh).and_then(|()| compare(&fresh, generated));
    std::fs::remove_dir_all(&fresh).with_context(|| format!("removing {}", fresh.display()))?;
    compared
}

fn compare(fresh: &Path, generated: &Path) -> Result<()> {
    for entry in std::fs::read_dir(fresh)? {
        let entry = entry?;
        let kept = generated.join(entry.file_name());
        if std::fs::read(&kept).ok() != Some(std::fs::read(entry.path())?) {
            bail!("{} is not current; run `scripts/generate-proto.sh` and commit the change", kept.display());
        }
    }
    Ok(())
}

/// The agent link: the only definitions whose server is generated. The server transcodes all other services to the REST
/// API, from their descriptors.
const AGENT_LINK: &str = "muster/v1/agent_link.proto";

fn generate(wire: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let (proto, mut files) = (wire.join("proto"), Vec::new());
    find_definitions(&proto, &mut files)?;
    files.sort();
    let compile = |with_comments: bool| -> Result<protox::Compiler> {
        let mut compiler = protox::Compiler::new([&proto])?;
        compiler.include_source_info(with_comments).include_imports(true).open_files(&files)?;
        Ok(compiler)
    };
    // Comments of the definitions become doc comments; reflection needs none.
    let documented = compile(true)?.file_descriptor_set();
    let (link, api): (Vec<_>, Vec<_>) = documented.file.into_iter().partition(|file| file.name() == AGENT_LINK);
    generate_code(folder, "agent_link.rs", link, true)?;
    generate_code(folder, "api.rs", api, false)?;
    // Encoded by protox, because prost would drop the options of our own.
    let descriptors = compile(false)?.encode_file_descriptor_set();
    std::fs::write(folder.join("descriptors.bin"), descriptors).context("writing the descriptors")
}

/// Generates the code of some definitions as `folder/name`.
fn generate_code(folder: &Path, name: &str, file: Vec<FileDescriptorProto>, server: bool) -> Result<()> {
    let builder = tonic_prost_build::configure().out_dir(folder).emit_rerun_if_changed(false).build_server(server);
    builder.compile_fds(FileDescriptorSet { file })?;
    std::fs::rename(folder.join("muster.v1.rs"), folder.join(name)).with_context(|| format!("writing {name}"))
}

/// The definitions below a folder.
fn find_definitions(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        match path.is_dir() {
            true => find_definitions(&path, files)?,
            false if path.extension().is_some_and(|extension| extension == "proto") => files.push(path),
            false => {}
        }
    }
    Ok(())
}
