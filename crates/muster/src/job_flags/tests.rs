use clap::Parser;

use super::*;
use crate::connection::Connection;
use crate::options::Options;

#[derive(Debug, Parser)]
struct JobFlagsCommand {
    #[command(flatten)]
    job: JobArgs,
}

fn job(line: &str) -> Result<SubmitJob, CliError> {
    let server = "http://far.example.org".parse().unwrap();
    let options =
        Options { connection: Connection { server, token: None, ca_file: None }, color: false, terminal: false };
    JobFlagsCommand::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).unwrap().job.into_job(&options)
}

#[test]
fn flags_become_the_fields_of_the_api() {
    let job = job(
        "--gpus 2 --gpu-model H100 --gpu-memory 40G --cpus 8 --mem 64G --priority high --time 2h --tenant t \
         --array 0-99%8 --after job-1 --hold --env A=1 --label k=v --annotation muster.sim/runtime=1s -- /bin/train.sh x",
    )
    .unwrap();
    assert_eq!((job.gpu_count, job.gpu_models), (Some(2), vec!["H100".to_string()]));
    assert_eq!((job.gpu_memory_mb, job.cpu_cores, job.memory_mb), (Some(40_960), Some(8), Some(65_536)));
    assert_eq!(job.priority, Some(Priority::Name("high".into())));
    assert_eq!(job.time_limit, Some(Span::Text("7200000ms".into())));
    assert_eq!((job.array.as_deref(), job.hold), (Some("0-99%8"), Some(true)));
    assert_eq!(job.after, [DependencyInput::Text("job-1".into())]);
    assert_eq!((job.name.as_deref(), job.command.len()), (Some("train"), 2));
    assert_eq!(job.environment["A"], "1");
    assert_eq!(job.directory, None, "the server is on another machine");
}

#[test]
fn topology_flags_are_passed_on() {
    let submitted = job("--gpus 2 --topology nvlink --no-cross-numa --prefer-nvlink -- true").unwrap();
    assert_eq!(submitted.topology.as_deref(), Some("nvlink"));
    assert_eq!((submitted.allow_cross_numa, submitted.prefer_nvlink), (Some(false), Some(true)));
    let none = job("--gpus 2 -- true").unwrap();
    assert_eq!((none.topology, none.allow_cross_numa, none.prefer_nvlink), (None, None, None));
}

#[test]
fn zero_gpu_jobs_and_gangs_are_sent_as_tasks() {
    let none = job("--gpus 0 -- true").unwrap();
    assert_eq!((none.gpu_count, none.tasks[0].gpus, none.tasks[0].count), (None, Some(0), None));
    let gang = job("--tasks 4 --gpus 8 -- true").unwrap();
    assert_eq!((gang.gpu_count, gang.tasks[0].gpus, gang.tasks[0].count), (None, Some(8), Some(4)));
    let elastic = job("--tasks 2-8 -- true").unwrap();
    assert_eq!((elastic.tasks[0].count, elastic.tasks[0].max_count), (Some(2), Some(8)));
    let wrong = "two".parse::<TaskCount>().unwrap_err();
    assert_eq!(wrong, "`two` is neither a number of tasks like `4` nor a range like `2-8`");
}

#[test]
fn flags_override_the_file() {
    let file = std::env::temp_dir().join(format!("muster-job-{}.yaml", std::process::id()));
    std::fs::write(&file, "name: a\ngpu_count: 4\nscript: echo hi\npriority: 7\nlabels: {x: y}\n").unwrap();
    let plain = job(&format!("-f {}", file.display())).unwrap();
    assert_eq!(
        (plain.name.as_deref(), plain.gpu_count, plain.script.as_deref()),
        (Some("a"), Some(4), Some("echo hi"))
    );
    let changed = job(&format!("-f {} --gpus 2 --label z=1 -- ls -l", file.display())).unwrap();
    assert_eq!((changed.gpu_count, changed.script, changed.command.len()), (Some(2), None, 2));
    assert_eq!((changed.labels.len(), changed.priority), (2, Some(Priority::Number(7))));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_misspelt_field_of_a_file_is_refused() {
    let file = std::env::temp_dir().join(format!("muster-misspelt-{}.yaml", std::process::id()));
    std::fs::write(&file, "gpu_cuont: 4\nscript: x\n").unwrap();
    let error = job(&format!("-f {}", file.display())).unwrap_err();
    assert!(error.message.contains("gpu_cuont"), "{}", error.message);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn nothing_to_run_is_refused() {
    assert_eq!(job("--gpus 1").unwrap_err().message, "there is nothing to run");
}
