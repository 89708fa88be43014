//! Default view views and views with given fields.

use super::*;

fn sample_text(view: ViewKind, fields: &[(&str, PolicyValue)]) -> Result<String, String> {
    let given = fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    view.sample_with(given).map(|record| record.to_string())
}

#[test]
fn dependent_fields_are_derived_from_the_given_ones() {
    let has = |view, fields: &[(&str, PolicyValue)], expected: &str| {
        let text = sample_text(view, fields).unwrap();
        assert!(text.contains(expected), "{text}");
    };
    has(ViewKind::Job, &[], "gpus = 1, gpus_per_task = 1, gpu_share = 1.0");
    has(ViewKind::Job, &[], "now = struct(unix = 1767787200, hour = 12, minute = 0, weekday = 2)");
    has(ViewKind::Job, &[("gpus", PolicyValue::Int(8)), ("tasks", PolicyValue::Int(3))], "gpus_per_task = 3");
    has(ViewKind::Job, &[("gpus", PolicyValue::Int(0))], "gpus_per_task = 0, gpu_share = 0.0");
    has(
        ViewKind::Job,
        &[("hour", PolicyValue::Int(23)), ("weekday", PolicyValue::Int(5))],
        "unix = 1768086000, hour = 23",
    );
    has(ViewKind::Job, &[("unix", PolicyValue::Int(86_399))], "unix = 86399, hour = 23, minute = 59, weekday = 3");
    has(ViewKind::Job, &[("gpu_share", PolicyValue::Int(1))], "gpu_share = 1.0");
    has(ViewKind::Cluster, &[], "gpus = 64, gpus_held = 0.0, pools = {}, now = struct(unix = 1767787200, hour = 12");
    has(
        ViewKind::Cluster,
        &[("hour", PolicyValue::Int(22)), ("gpus", PolicyValue::Int(9))],
        "gpus = 9, gpus_held = 0.0",
    );
    has(ViewKind::Cluster, &[("hour", PolicyValue::Int(22))], "hour = 22, minute = 0");
    let pools = PolicyValue::Dict(vec![("fast".into(), PolicyValue::Int(8))]);
    has(ViewKind::Cluster, &[("pools", pools)], "pools = {\"fast\": 8}");
    let models = PolicyValue::List(vec!["NVIDIA A100-SXM4-80GB".into()]);
    has(ViewKind::Node, &[("models", models)], "models = [\"a100-sxm4-80gb\"]");
    has(ViewKind::Failure, &[("signal", PolicyValue::Int(9))], "exit_code = None, signal = 9");
    has(ViewKind::Failure, &[("exit_code", PolicyValue::None)], "exit_code = None");
}

#[test]
fn invalid_sample_fields_are_reported() {
    let cases = [
        (ViewKind::Job, "gpu", PolicyValue::Int(1), "job has no field `gpu`; did you mean `gpus`?"),
        (ViewKind::Job, "now", PolicyValue::Int(1), "job has no field `now`"),
        (ViewKind::Job, "hours", PolicyValue::Int(1), "did you mean `hour`?"),
        (ViewKind::Tenant, "hour", PolicyValue::Int(1), "tenant has no field `hour`"),
        (ViewKind::Job, "gpus", PolicyValue::text("8"), "`gpus` is \"8\" (string); it must be a whole number from 0"),
        (ViewKind::Job, "gpus", PolicyValue::Int(-1), "`gpus` is -1 (int)"),
        (ViewKind::Job, "gpus", PolicyValue::None, "`gpus` is None"),
        (ViewKind::Job, "hour", PolicyValue::Int(24), "it must be a whole number from 0 to 23"),
        (ViewKind::Job, "gpu_share", PolicyValue::Float(1.5), "it must be a number from 0 to 1"),
        (ViewKind::Job, "isolation", PolicyValue::text("ful"), "it must be one of none, memory, full"),
        (
            ViewKind::Job,
            "labels",
            PolicyValue::Dict(vec![("a".into(), PolicyValue::Int(1))]),
            "it must be a dict of strings",
        ),
        (ViewKind::Job, "time_limit_s", PolicyValue::text("1h"), "it must be a whole number from 0, or None"),
        (
            ViewKind::Cluster,
            "pools",
            PolicyValue::Dict(vec![("a".into(), PolicyValue::text("8"))]),
            "it must be a dict of whole numbers from 0",
        ),
        (ViewKind::Cluster, "hours", PolicyValue::Int(1), "cluster has no field `hours`; did you mean `hour`?"),
        (ViewKind::Node, "partitioned", PolicyValue::Int(1), "it must be True or False"),
        (ViewKind::Node, "models", PolicyValue::text("H100"), "it must be a list of strings"),
    ];
    for (view, name, value, expected) in cases {
        let error = sample_text(view, &[(name, value)]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn fields_are_read_from_a_command_line() {
    let parse = |name, text| ViewKind::Job.parse_field(name, text).map(|value| value.to_string());
    assert_eq!(parse("gpus", "8"), Ok("8".to_string()));
    assert_eq!(parse("gpu_share", "0.5"), Ok("0.5".to_string()));
    assert_eq!(parse("time_limit_s", "none"), Ok("None".to_string()));
    assert_eq!(parse("gpu_models", "H100+A100"), Ok("[\"h100\", \"a100\"]".to_string()));
    assert_eq!(ViewKind::Candidate.parse_field("saves", "true"), Ok(PolicyValue::Bool(true)));
    assert!(parse("gpus", "many").unwrap_err().contains("it must be a whole number"));
    assert!(parse("gpuss", "1").unwrap_err().contains("did you mean `gpus`?"));
}
