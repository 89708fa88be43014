//! `muster policy eval`: call a function of a policy and print what it answers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_core::nearest::nearest;
use muster_policy::{Calls, Limits, Plain, Program, Sample, Takes, is_policy};
use serde::Serialize;

use super::folders::{self, Folder};
use super::json::Json;
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, ShowArgs};

/// `muster policy eval`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  \
    muster policy eval policies/cookbook/01-night-quota.gsky admit --job gpus=64,hour=12\n  \
    muster policy eval mine.gsky score --job gpus=8,labels.team=vision --node models=A100\n  \
    muster policy eval mine.gsky victims --candidate id=job-1,ran_s=60 --candidate '{\"id\": \"job-2\"}'\n  \
    muster policy eval mine.gsky limit --tenant gpus_held=8 --cluster gpus=64,hour=23\n  \
    muster policy eval mine.gsky price_of '\"h100\"'")]
pub struct Args {
    /// A policy
    file: PathBuf,
    /// One of its functions
    function: String,
    /// Values as JSON, for parameters that are called otherwise than the flags below
    values: Vec<String>,
    /// Fields of `job`: `gpus=8,labels.team=vision`, or JSON
    #[arg(long, value_name = "FIELDS")]
    job: Option<String>,
    /// Fields of `tenant`
    #[arg(long, value_name = "FIELDS")]
    tenant: Option<String>,
    /// Fields of `cluster`
    #[arg(long, value_name = "FIELDS")]
    cluster: Option<String>,
    /// Fields of `node`
    #[arg(long, value_name = "FIELDS")]
    node: Option<String>,
    /// Fields of one of the `candidates`; give it several times for several
    #[arg(long, value_name = "FIELDS")]
    candidate: Vec<String>,
    /// Fields of `failure`
    #[arg(long, value_name = "FIELDS")]
    failure: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// What was answered.
#[derive(Debug, Serialize)]
struct Answered {
    answer: Json,
    took_us: u64,
}

/// Call it.
pub fn run(args: &Args) -> Ending {
    let folders = folders::of(std::slice::from_ref(&args.file))?;
    let [folder] = folders.as_slice() else { return Err(no_policy(args)) };
    let Some(name) = folder.chosen.first().filter(|name| folder.chosen.len() == 1 && is_policy(name)) else {
        return Err(no_policy(args));
    };
    let wrong = |error| CliError::failed(folder.told(&error));
    let program = Program::of_file(&folder.files, name, Limits::default()).map_err(wrong)?;
    let takes = program.takes(name, &args.function).ok_or_else(|| unknown(&program, folder, name, args))?;
    let values = arguments(args, &takes)?;
    let began = Instant::now();
    let said = program.call_each(name, &args.function, &Calls::one(values)).pop();
    let took = began.elapsed();
    let answer = said.unwrap_or(Ok(Plain::None)).map_err(wrong)?;
    let text = format!("{answer}\n");
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    output::say(&args.show, &text, &answer.to_string(), &Answered { answer: Json(answer.clone()), took_us })?;
    output::talk(&format!("it took {}", told(took)));
    Ok(Code::DONE)
}

fn no_policy(args: &Args) -> CliError {
    CliError::usage(format!("`{}` is not one policy", args.file.display()))
}

fn unknown(program: &Program, folder: &Folder, name: &str, args: &Args) -> CliError {
    let functions = program.functions();
    let here = functions.iter().filter(|(_, files)| files.iter().any(|file| file == name));
    let known: Vec<&str> = here.map(|(function, _)| function.as_str()).collect();
    let what = format!("there is no function `{}` in `{}`", args.function, folder.shown(name));
    match nearest(&args.function, known.iter().copied()) {
        Some(meant) => CliError::failed(what).hint(format!("`{meant}`")),
        None if known.is_empty() => CliError::failed(what),
        None => CliError::failed(what).hint(known.join(", ")),
    }
}

/// What each parameter is given: by its name, or the next of the values.
fn arguments(args: &Args, takes: &Takes) -> Result<Vec<Plain>, CliError> {
    let mut values = args.values.iter();
    let mut given = Vec::new();
    for (place, name) in takes.names.iter().enumerate() {
        let sample = sampled(args, name)?;
        let value = match sample {
            Some(sample) => Some(sample),
            None => values.next().map(|value| read(value)).transpose()?,
        };
        match value {
            Some(value) => given.push(value),
            None if place >= takes.least => break,
            None => return Err(missing(args, takes, name)),
        }
    }
    match values.next() {
        Some(value) if takes.most.is_some() => {
            Err(CliError::usage(format!("nobody takes `{value}`: `{}` takes {takes}", args.function)))
        }
        Some(value) => {
            let rest = [value].into_iter().chain(values).map(|value| read(value));
            given.extend(rest.collect::<Result<Vec<_>, _>>()?);
            Ok(given)
        }
        None => Ok(given),
    }
}

fn missing(args: &Args, takes: &Takes, name: &str) -> CliError {
    let what = format!("nothing is given for `{name}`: `{}` takes {takes}", args.function);
    CliError::usage(what).hint("write values as JSON after the function")
}

/// The thing that a parameter of this name is given; nothing if its name says nothing.
fn sampled(args: &Args, parameter: &str) -> Result<Option<Plain>, CliError> {
    let one =
        |sample: Sample, said: &Option<String>| build(sample, said.as_deref().unwrap_or_default()).map(Some);
    match parameter {
        "job" => one(Sample::Job, &args.job),
        "tenant" => one(Sample::Tenant, &args.tenant),
        "cluster" => one(Sample::Cluster, &args.cluster),
        "node" => one(Sample::Node, &args.node),
        "failure" => one(Sample::Failure, &args.failure),
        "candidate" => one(Sample::Candidate, &args.candidate.first().cloned()),
        "candidates" => {
            let all = args.candidate.iter().map(|said| build(Sample::Candidate, said));
            Ok(Some(Plain::List(all.collect::<Result<_, _>>()?)))
        }
        _ => Ok(None),
    }
}

/// One with the fields that somebody wrote.
fn build(sample: Sample, said: &str) -> Result<Plain, CliError> {
    let fields = match said.trim_start().starts_with('{') {
        true => object(read(said)?),
        false => pairs(sample, said)?,
    };
    sample.with(fields).map_err(CliError::usage)
}

fn object(value: Plain) -> Vec<(String, Plain)> {
    let Plain::Dict(entries) = value else { return Vec::new() };
    let name = |key: Plain| if let Plain::Text(text) = key { text } else { key.to_string() };
    entries.into_iter().map(|(key, value)| (name(key), value)).collect()
}

/// `gpus=8,labels.team=vision`.
fn pairs(sample: Sample, said: &str) -> Result<Vec<(String, Plain)>, CliError> {
    let mut fields: Vec<(String, Plain)> = Vec::new();
    for pair in said.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            let what = format!("`{pair}` in `--{} {said}` is no field: write `name=value`", sample.word());
            return Err(CliError::usage(what));
        };
        let (name, value) = (name.trim(), value.trim());
        match name.split_once('.') {
            Some((labels, label)) => add_label(&mut fields, labels, (label.into(), value.into())),
            None => fields.push((name.to_string(), sample.read(name, value).map_err(CliError::usage)?)),
        }
    }
    Ok(fields)
}

fn add_label(fields: &mut Vec<(String, Plain)>, name: &str, label: (Plain, Plain)) {
    match fields.iter_mut().find(|(known, _)| known == name) {
        Some((_, Plain::Dict(labels))) => labels.push(label),
        _ => fields.push((name.to_string(), Plain::Dict(vec![label]))),
    }
}

fn read(value: &str) -> Result<Plain, CliError> {
    let read = muster_json::from_str::<Json>(value);
    read.map(|json| json.0).map_err(|_| {
        CliError::usage(format!("`{value}` is no JSON")).hint(format!("a text is written '{:?}'", value))
    })
}

fn told(took: Duration) -> String {
    match took.as_micros() {
        few @ 0..=9_999 => format!("{few} µs"),
        many => format!("{} ms", many / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_pairs_or_as_json() {
        let told = |said| build(Sample::Job, said).map(|job| job.to_string()).map_err(|error| error.what);
        let pairs = told("gpus=8, labels.a=1,labels.b=2,hour=23").unwrap();
        let json = told(r#"{"gpus": 8, "labels": {"a": "1", "b": "2"}, "hour": 23}"#).unwrap();
        assert_eq!(pairs, json);
        assert!(pairs.contains("gpus = 8") && pairs.contains(r#"labels = {"a": "1", "b": "2"}"#), "{pairs}");
        assert_eq!(told("gpus"), Err("`gpus` in `--job gpus` is no field: write `name=value`".to_string()));
        assert!(told("gpu=1").unwrap_err().contains("did you mean `gpus`?"));
        assert!(told("label.x=1").unwrap_err().contains("did you mean `labels`?"));
        assert_eq!(told(""), told("gpus=1"));
    }
}
