//! The usual ones, and those that somebody describes.

use super::*;

fn with(sample: Sample, fields: &[(&str, Plain)]) -> Result<String, String> {
    let given = fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    sample.with(given).map(|record| record.to_string())
}

#[test]
fn what_follows_from_what_was_given_is_put_right() {
    let has = |sample, fields: &[(&str, Plain)], expected: &str| {
        let told = with(sample, fields).unwrap();
        assert!(told.contains(expected), "{told}");
    };
    has(Sample::Job, &[], "gpus = 1, gpus_per_task = 1, gpu_share = 1.0");
    has(Sample::Job, &[], "now = struct(unix = 1767787200, hour = 12, minute = 0, weekday = 2)");
    has(Sample::Job, &[("gpus", Plain::Int(8)), ("tasks", Plain::Int(3))], "gpus_per_task = 3");
    has(Sample::Job, &[("gpus", Plain::Int(0))], "gpus_per_task = 0, gpu_share = 0.0");
    has(Sample::Job, &[("hour", Plain::Int(23)), ("weekday", Plain::Int(5))], "unix = 1768086000, hour = 23");
    has(Sample::Job, &[("unix", Plain::Int(86_399))], "unix = 86399, hour = 23, minute = 59, weekday = 3");
    has(Sample::Job, &[("gpu_share", Plain::Int(1))], "gpu_share = 1.0");
    has(
        Sample::Cluster,
        &[],
        "gpus = 64, gpus_held = 0.0, pools = {}, now = struct(unix = 1767787200, hour = 12",
    );
    has(Sample::Cluster, &[("hour", Plain::Int(22)), ("gpus", Plain::Int(9))], "gpus = 9, gpus_held = 0.0");
    has(Sample::Cluster, &[("hour", Plain::Int(22))], "hour = 22, minute = 0");
    let pools = Plain::Dict(vec![("fast".into(), Plain::Int(8))]);
    has(Sample::Cluster, &[("pools", pools)], "pools = {\"fast\": 8}");
    let models = Plain::List(vec!["NVIDIA A100-SXM4-80GB".into()]);
    has(Sample::Node, &[("models", models)], "models = [\"a100-sxm4-80gb\"]");
    has(Sample::Failure, &[("signal", Plain::Int(9))], "exit_code = None, signal = 9");
    has(Sample::Failure, &[("exit_code", Plain::None)], "exit_code = None");
}

#[test]
fn what_is_wrong_is_told() {
    let cases = [
        (Sample::Job, "gpu", Plain::Int(1), "job: there is no field `gpu`; did you mean `gpus`?"),
        (Sample::Job, "now", Plain::Int(1), "there is no field `now`"),
        (Sample::Job, "hours", Plain::Int(1), "did you mean `hour`?"),
        (Sample::Tenant, "hour", Plain::Int(1), "there is no field `hour`"),
        (Sample::Job, "gpus", Plain::text("8"), "`gpus` is \"8\" (string); it must be a whole number from 0"),
        (Sample::Job, "gpus", Plain::Int(-1), "`gpus` is -1 (int)"),
        (Sample::Job, "gpus", Plain::None, "`gpus` is None"),
        (Sample::Job, "hour", Plain::Int(24), "it must be a whole number from 0 to 23"),
        (Sample::Job, "gpu_share", Plain::Float(1.5), "it must be a number from 0 to 1"),
        (Sample::Job, "isolation", Plain::text("ful"), "it must be one of none, memory, full"),
        (Sample::Job, "labels", Plain::Dict(vec![("a".into(), Plain::Int(1))]), "it must be a dict of texts"),
        (Sample::Job, "time_limit_s", Plain::text("1h"), "it must be a whole number from 0, or None"),
        (
            Sample::Cluster,
            "pools",
            Plain::Dict(vec![("a".into(), Plain::text("8"))]),
            "it must be a dict of whole numbers from 0",
        ),
        (Sample::Cluster, "hours", Plain::Int(1), "cluster: there is no field `hours`; did you mean `hour`?"),
        (Sample::Node, "partitioned", Plain::Int(1), "it must be True or False"),
        (Sample::Node, "models", Plain::text("H100"), "it must be a list of texts"),
    ];
    for (sample, name, value, expected) in cases {
        let said = with(sample, &[(name, value)]).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn fields_are_read_from_a_command_line() {
    let read = |name, text| Sample::Job.read(name, text).map(|value| value.to_string());
    assert_eq!(read("gpus", "8"), Ok("8".to_string()));
    assert_eq!(read("gpu_share", "0.5"), Ok("0.5".to_string()));
    assert_eq!(read("time_limit_s", "none"), Ok("None".to_string()));
    assert_eq!(read("gpu_models", "H100+A100"), Ok("[\"h100\", \"a100\"]".to_string()));
    assert_eq!(Sample::Candidate.read("saves", "true"), Ok(Plain::Bool(true)));
    assert!(read("gpus", "many").unwrap_err().contains("it must be a whole number"));
    assert!(read("gpuss", "1").unwrap_err().contains("did you mean `gpus`?"));
}
