//! `muster policy eval`: call a function of a policy and print its answer.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_core::nearest::nearest;
use muster_policy::{CallBatch, Limits, PolicyValue, Program, Signature, ViewKind, is_policy_file};
use serde::Serialize;

use super::json::JsonValue;
use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::output::{self, ShowArgs};
use crate::policy_dirs::{self, PolicyDir};

/// `muster policy eval`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  \
    muster policy eval policies/cookbook/01-night-quota.gsky admit --job gpus=64,hour=12\n  \
    muster policy eval mine.gsky score --job gpus=8,labels.team=vision --node models=A100\n  \
    muster policy eval mine.gsky victims --candidate id=job-1,ran_s=60 --candidate '{\"id\": \"job-2\"}'\n  \
    muster policy eval mine.gsky limit --tenant gpus_held=8 --cluster gpus=64,hour=23\n  \
    muster policy eval mine.gsky price_of '\"h100\"'")]
pub struct Args {
    /// Policy file
    file: PathBuf,
    /// Function of the policy
    function: String,
    /// Values as JSON, for parameters that have no flag below
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
    /// Fields of one of the `candidates`; may be repeated
    #[arg(long, value_name = "FIELDS")]
    candidate: Vec<String>,
    /// Fields of `failure`
    #[arg(long, value_name = "FIELDS")]
    failure: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// The output of `-o json`.
#[derive(Debug, Serialize)]
struct EvalReport {
    answer: JsonValue,
    took_us: u64,
}

pub fn run(args: &Args) -> CommandResult {
    let folders = policy_dirs::read_policy_dirs(std::slice::from_ref(&args.file))?;
    let [folder] = folders.as_slice() else { return Err(not_one_policy(args)) };
    let Some(name) = folder.selected.first().filter(|name| folder.selected.len() == 1 && is_policy_file(name)) else {
        return Err(not_one_policy(args));
    };
    let failed = |error| CliError::failed(folder.error_with_source(&error));
    let program = Program::compile_file(&folder.files, name, Limits::default()).map_err(failed)?;
    let signature =
        program.signature(name, &args.function).ok_or_else(|| unknown_function(&program, folder, name, args))?;
    let values = call_arguments(args, &signature)?;
    let begin = Instant::now();
    let returned = program.call_each(name, &args.function, &CallBatch::single(values)).pop();
    let took = begin.elapsed();
    let answer = returned.unwrap_or(Ok(PolicyValue::None)).map_err(failed)?;
    let text = format!("{answer}\n");
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    output::print_text(
        &args.show,
        &text,
        &answer.to_string(),
        &EvalReport { answer: JsonValue(answer.clone()), took_us },
    )?;
    output::print_stderr(&format!("took {}", elapsed_text(took)));
    Ok(ExitStatus::SUCCESS)
}

fn not_one_policy(args: &Args) -> CliError {
    CliError::usage(format!("`{}` is not a policy file", args.file.display()))
}

fn unknown_function(program: &Program, folder: &PolicyDir, name: &str, args: &Args) -> CliError {
    let functions = program.functions();
    let of_file = functions.iter().filter(|(_, files)| files.iter().any(|file| file == name));
    let known: Vec<&str> = of_file.map(|(function, _)| function.as_str()).collect();
    let message = format!("there is no function `{}` in `{}`", args.function, folder.display_path(name));
    match nearest(&args.function, known.iter().copied()) {
        Some(similar) => CliError::failed(message).hint(format!("`{similar}`")),
        None if known.is_empty() => CliError::failed(message),
        None => CliError::failed(message).hint(known.join(", ")),
    }
}

/// The argument of each parameter: the sample of its name, or the next positional value.
fn call_arguments(args: &Args, signature: &Signature) -> Result<Vec<PolicyValue>, CliError> {
    let mut values = args.values.iter();
    let mut arguments = Vec::new();
    for (index, name) in signature.names.iter().enumerate() {
        let sample = sample_argument(args, name)?;
        let value = match sample {
            Some(sample) => Some(sample),
            None => values.next().map(|value| parse_json_value(value)).transpose()?,
        };
        match value {
            Some(value) => arguments.push(value),
            None if index >= signature.args_min => break,
            None => return Err(missing_argument(args, signature, name)),
        }
    }
    match values.next() {
        Some(value) if signature.args_max.is_some() => {
            let function = &args.function;
            Err(CliError::usage(format!("too many values (`{value}`): `{function}` takes {signature}")))
        }
        Some(value) => {
            let rest = [value].into_iter().chain(values).map(|value| parse_json_value(value));
            arguments.extend(rest.collect::<Result<Vec<_>, _>>()?);
            Ok(arguments)
        }
        None => Ok(arguments),
    }
}

fn missing_argument(args: &Args, signature: &Signature, name: &str) -> CliError {
    let message = format!("no value for parameter `{name}`: `{}` takes {signature}", args.function);
    CliError::usage(message).hint("write values as JSON after the function")
}

/// The sample for a parameter of this name; `None` if no flag describes it.
fn sample_argument(args: &Args, parameter: &str) -> Result<Option<PolicyValue>, CliError> {
    let one = |sample: ViewKind, fields: &Option<String>| {
        build_sample(sample, fields.as_deref().unwrap_or_default()).map(Some)
    };
    match parameter {
        "job" => one(ViewKind::Job, &args.job),
        "tenant" => one(ViewKind::Tenant, &args.tenant),
        "cluster" => one(ViewKind::Cluster, &args.cluster),
        "node" => one(ViewKind::Node, &args.node),
        "failure" => one(ViewKind::Failure, &args.failure),
        "candidate" => one(ViewKind::Candidate, &args.candidate.first().cloned()),
        "candidates" => {
            let all = args.candidate.iter().map(|fields| build_sample(ViewKind::Candidate, fields));
            Ok(Some(PolicyValue::List(all.collect::<Result<_, _>>()?)))
        }
        _ => Ok(None),
    }
}

/// A sample with these fields; the others have default values.
fn build_sample(sample: ViewKind, text: &str) -> Result<PolicyValue, CliError> {
    let fields = match text.trim_start().starts_with('{') {
        true => dict_entries(parse_json_value(text)?),
        false => parse_field_list(sample, text)?,
    };
    sample.sample_with(fields).map_err(CliError::usage)
}

fn dict_entries(value: PolicyValue) -> Vec<(String, PolicyValue)> {
    let PolicyValue::Dict(entries) = value else { return Vec::new() };
    let name = |key: PolicyValue| if let PolicyValue::Text(text) = key { text } else { key.to_string() };
    entries.into_iter().map(|(key, value)| (name(key), value)).collect()
}

/// `gpus=8,labels.team=vision`.
fn parse_field_list(sample: ViewKind, text: &str) -> Result<Vec<(String, PolicyValue)>, CliError> {
    let mut fields: Vec<(String, PolicyValue)> = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            let flag = sample.as_str();
            return Err(CliError::usage(format!("`{pair}` in `--{flag} {text}` is not a field: write `name=value`")));
        };
        let (name, value) = (name.trim(), value.trim());
        match name.split_once('.') {
            Some((labels, label)) => add_label(&mut fields, labels, (label.into(), value.into())),
            None => fields.push((name.to_string(), sample.parse_field(name, value).map_err(CliError::usage)?)),
        }
    }
    Ok(fields)
}

fn add_label(fields: &mut Vec<(String, PolicyValue)>, name: &str, label: (PolicyValue, PolicyValue)) {
    match fields.iter_mut().find(|(known, _)| known == name) {
        Some((_, PolicyValue::Dict(labels))) => labels.push(label),
        _ => fields.push((name.to_string(), PolicyValue::Dict(vec![label]))),
    }
}

fn parse_json_value(value: &str) -> Result<PolicyValue, CliError> {
    let parsed = muster_json::from_str::<JsonValue>(value);
    parsed.map(|json| json.0).map_err(|_| {
        CliError::usage(format!("`{value}` is not valid JSON")).hint(format!("a string is written '{:?}'", value))
    })
}

fn elapsed_text(took: Duration) -> String {
    match took.as_micros() {
        few @ 0..=9_999 => format!("{few} µs"),
        many => format!("{} ms", many / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_fields_are_parsed_from_pairs_or_json() {
        let sample = |text| build_sample(ViewKind::Job, text).map(|job| job.to_string()).map_err(|error| error.message);
        let pairs = sample("gpus=8, labels.a=1,labels.b=2,hour=23").unwrap();
        let json = sample(r#"{"gpus": 8, "labels": {"a": "1", "b": "2"}, "hour": 23}"#).unwrap();
        assert_eq!(pairs, json);
        assert!(pairs.contains("gpus = 8") && pairs.contains(r#"labels = {"a": "1", "b": "2"}"#), "{pairs}");
        let error = "`gpus` in `--job gpus` is not a field: write `name=value`";
        assert_eq!(sample("gpus"), Err(error.to_string()));
        assert!(sample("gpu=1").unwrap_err().contains("did you mean `gpus`?"));
        assert!(sample("label.x=1").unwrap_err().contains("did you mean `labels`?"));
        assert_eq!(sample(""), sample("gpus=1"));
    }
}
