//! The test runner: expectations pass or fail as written, and line coverage is exact.

use std::time::Duration;

use super::*;

fn report_of(files: &[(&str, &str)]) -> TestReport {
    let files: BTreeMap<String, String> =
        files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    let tests: Vec<&str> = files.keys().map(String::as_str).filter(|name| is_test_file(name)).collect();
    // Generous: a busy machine must not fail the test.
    run_tests(&files, &tests, &Limits { steps: 20_000, load_time: Duration::from_secs(60), ..Limits::default() })
}

/// The error of a test with this body; empty if it passes.
fn error_of_test_body(body: &str) -> String {
    let source = format!("load('a.gsky', 'admit')\ndef test_it():\n    {body}\n");
    let policy = "def admit(job):\n    return job.gpus <= 8 or refuse('too large')\n";
    let outcomes = report_of(&[("a.gsky", policy), ("a_test.gsky", &source)]).outcomes;
    assert_eq!(outcomes.len(), 1);
    outcomes[0].error.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn satisfied_expectations_pass() {
    for body in [
        "expect.eq(admit(job(gpus = 8)), True)",
        "expect.eq(admit(job(gpus = 9)), refuse('too large'))",
        "expect.ne(admit(job(gpus = 9)), refuse('too small'))",
        "expect.true([1])",
        "expect.false([])",
        "expect.contains({'a': 1}, 'a')",
        "expect.contains('abc', 'bc')",
        "expect.contains([1, 2], 2)",
        "expect.fails(lambda: fail('oh dear'), 'dear')",
        "expect.fails(lambda: admit(failure()), 'gpus')",
        "expect.fails(lambda: job(gpuss = 1), 'did you mean `gpus`?')",
        "expect.eq([node().gpus, tenant().weight, candidate().id, failure().exit_code], [8, 1, 'job-1', 1])",
    ] {
        assert_eq!(error_of_test_body(body), "", "{body}");
    }
}

#[test]
fn failed_expectations_report_both_values_and_the_line() {
    for (body, expected) in [
        (
            "expect.eq(admit(job(gpus = 9)), True)",
            "a_test.gsky:3:5: expect.eq: struct(refuse=\"too large\") is not True",
        ),
        ("expect.eq(1, '1')", "a_test.gsky:3:5: expect.eq: 1 is not \"1\""),
        ("expect.ne([1], [1])", "a_test.gsky:3:5: expect.ne: [1] is the same as [1]"),
        ("expect.true('')", "expect.true: \"\" is not true"),
        ("expect.false(3)", "expect.false: 3 is not false"),
        ("expect.contains([1], 2)", "expect.contains: 2 is not in [1]"),
        ("expect.fails(lambda: 7, 'x')", "expect.fails: it returns 7 and does not fail"),
        ("expect.fails(lambda: fail('a'), 'b')", "which does not contain \"b\""),
        ("admit(job(gpuss = 1))", "a_test.gsky:3:11: job has no field `gpuss`; did you mean `gpus`?"),
        ("admit(3)", "a.gsky:2:"),
        ("pass", "a_test.gsky: `test_it` has no expectation, so it cannot fail"),
        ("for i in range(100000000): expect.true(True)", "it exceeded the step limit"),
    ] {
        let error = error_of_test_body(body);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_test_file_that_does_not_load_or_has_no_tests_is_a_failure() {
    let outcomes = report_of(&[
        ("a_test.gsky", "load('gone.gsky', 'x')"),
        ("b_test.gsky", "def tast_it():\n    pass"),
        ("c_test.gsky", "def test_b():\n    expect.eq(1, 1)\ndef test_a(x):\n    expect.eq(1, 1)"),
    ])
    .outcomes;
    let found: Vec<(String, Option<String>, usize, String)> = outcomes
        .into_iter()
        .map(|outcome| {
            let error = outcome.error.map(|error| error.to_string()).unwrap_or_default();
            (outcome.file, outcome.name, outcome.line, error)
        })
        .collect();
    assert_eq!(found.len(), 4);
    assert!(found[0].1.is_none() && found[0].3.contains("there is no file `gone.gsky`"), "{found:?}");
    assert!(found[1].1.is_none() && found[1].3.contains("the file defines no function `test_…`"), "{found:?}");
    assert_eq!(found[2], ("c_test.gsky".to_string(), Some("test_b".to_string()), 1, String::new()));
    assert!(found[3].2 == 3 && found[3].3.contains("must be a function without parameters"), "{found:?}");
}

#[test]
fn tests_are_isolated_and_policies_see_no_test_builtins() {
    let test = "\
load('a.gsky', 'peek')
def test_one():
    expect.eq(peek(), 1)
    gpu_ops.register_pool(gpu_pool(name = 'mine'))
    expect.eq(peek(), 2)
def test_two():
    expect.eq(peek(), 1)
";
    let policy = "gpu_ops.register_pool(gpu_pool(name = 'p'))\ndef peek():\n    return len(gpu_ops.get_all_pools())";
    let outcomes = report_of(&[("a.gsky", policy), ("a_test.gsky", test)]).outcomes;
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()), "{outcomes:?}");
    for name in ["expect.eq(1, 1)", "job()", "__ran(1)"] {
        let outcomes = report_of(&[("a.gsky", name), ("a_test.gsky", "load('a.gsky', 'x')")]).outcomes;
        let error = outcomes[0].error.as_ref().unwrap().to_string();
        assert!(error.starts_with("a.gsky:1:1: ") && error.contains("not found"), "{error}");
    }
}

/// The lines with statements, and those that the test reached.
fn statement_and_reached_lines(policy: &str, body: &str) -> (Vec<usize>, Vec<usize>) {
    let source = format!("load('a.gsky', 'f')\ndef test_it():\n    expect.true(True)\n    {body}\n");
    let report = report_of(&[("a.gsky", policy), ("a_test.gsky", &source)]);
    assert_eq!(report.outcomes[0].error, None);
    let coverage = &report.coverage["a.gsky"];
    (coverage.lines.iter().copied().collect(), coverage.reached_lines.iter().copied().collect())
}

#[test]
fn coverage_separates_reached_from_missed_lines() {
    let policy = "\
\"\"\"A string literal is no statement.\"\"\"
LIMIT = 8

def small(n):
    \"\"\"Small enough to be inlined.\"\"\"
    return n <= LIMIT

def f(n):
    if small(n):
        return 'small'
    elif n > 100:
        return 'huge'
    else:
        (a, b) = (1, 2)
    for i in (1, 2):
        if i == 9: continue
        a += i; b = [
            a,
            b,
        ]
    return (b)

if LIMIT > 100:
    LIMITLESS = True
(f)(1)
";
    let all = vec![2, 6, 9, 10, 11, 12, 14, 15, 16, 17, 21, 23, 24, 25];
    let loaded = vec![2, 6, 9, 10, 23, 25];
    assert_eq!(statement_and_reached_lines(policy, "f(1)"), (all.clone(), loaded));
    assert_eq!(statement_and_reached_lines(policy, "f(101)"), (all.clone(), vec![2, 6, 9, 10, 11, 12, 23, 25]));
    // On line 16 only the condition ran.
    assert_eq!(statement_and_reached_lines(policy, "f(9)"), (all, vec![2, 6, 9, 10, 11, 14, 15, 17, 21, 23, 25]));
}

#[test]
fn instrumentation_preserves_every_statement_form() {
    let policy = "\
def f(x):
    y = [a for a in x if a] if (x) else None
    if (x and
        not y): pass
    if not x: return {'a': 1}['a']
    for (a, b) in [(1, 2)]:
        def g(z = lambda q: q):
            return z(a)
        g()
    x[0] = 'ä: #'; x[0] += '\"'  # ä
    f_ = '''
if not a statement:
'''
    return x  # the end
";
    let (statements, reached) = statement_and_reached_lines(policy, "f(['x'])");
    assert_eq!(statements, [2, 3, 4, 5, 6, 8, 9, 10, 11, 14]);
    assert_eq!(reached, [2, 3, 6, 8, 9, 10, 11, 14]);
}

#[test]
fn coverage_percent_is_rounded_down() {
    let of =
        |reached: usize, lines: usize| Coverage { lines: (0..lines).collect(), reached_lines: (0..reached).collect() };
    assert_eq!([of(0, 0).percent(), of(999, 1_000).percent(), of(3, 3).percent()], [100, 99, 100]);
    assert_eq!(of(1, 3).missed_lines(), [1, 2]);
    let unloaded = Coverage::of_unloaded_file("a.gsky", "def f():\n    return 1\nf()");
    assert_eq!((unloaded.percent(), unloaded.missed_lines()), (0, vec![2, 3]));
}
