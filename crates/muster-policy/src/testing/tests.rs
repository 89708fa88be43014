//! That tests of policies fail when they should, and that lines are counted right.

use std::time::Duration;

use super::*;

fn tested(files: &[(&str, &str)]) -> Tested {
    let files: BTreeMap<String, String> =
        files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    let tests: Vec<&str> = files.keys().map(String::as_str).filter(|name| is_test(name)).collect();
    // Time is no measure on a machine that does other things as well.
    test(&files, &tests, &Limits { steps: 20_000, load_time: Duration::from_secs(60), ..Limits::default() })
}

/// What the only test of a body says.
fn says(body: &str) -> String {
    let source = format!("load('a.gsky', 'admit')\ndef test_it():\n    {body}\n");
    let policy = "def admit(job):\n    return job.gpus <= 8 or refuse('too large')\n";
    let outcomes = tested(&[("a.gsky", policy), ("a_test.gsky", &source)]).outcomes;
    assert_eq!(outcomes.len(), 1);
    outcomes[0].error.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn what_holds_holds() {
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
        assert_eq!(says(body), "", "{body}");
    }
}

#[test]
fn what_does_not_hold_is_told_with_both_values_and_its_line() {
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
        ("expect.fails(lambda: 7, 'x')", "expect.fails: it answers 7 and does not fail"),
        ("expect.fails(lambda: fail('a'), 'b')", "which does not tell \"b\""),
        ("admit(job(gpuss = 1))", "a_test.gsky:3:11: job: there is no field `gpuss`; did you mean `gpus`?"),
        ("admit(3)", "a.gsky:2:"),
        ("pass", "a_test.gsky: `test_it` expects nothing, so it cannot fail"),
        ("for i in range(100000000): expect.true(True)", "more steps than it may"),
    ] {
        let said = says(body);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_that_does_not_run_or_tests_nothing_is_an_outcome() {
    let outcomes = tested(&[
        ("a_test.gsky", "load('gone.gsky', 'x')"),
        ("b_test.gsky", "def tast_it():\n    pass"),
        ("c_test.gsky", "def test_b():\n    expect.eq(1, 1)\ndef test_a(x):\n    expect.eq(1, 1)"),
    ])
    .outcomes;
    let told: Vec<(String, Option<String>, usize, String)> = outcomes
        .into_iter()
        .map(|it| (it.file, it.name, it.line, it.error.map(|error| error.to_string()).unwrap_or_default()))
        .collect();
    assert_eq!(told.len(), 4);
    assert!(told[0].1.is_none() && told[0].3.contains("there is no file `gone.gsky`"), "{told:?}");
    assert!(told[1].1.is_none() && told[1].3.contains("there is no test in it"), "{told:?}");
    assert_eq!(told[2], ("c_test.gsky".to_string(), Some("test_b".to_string()), 1, String::new()));
    assert!(told[3].2 == 3 && told[3].3.contains("must be a function without parameters"), "{told:?}");
}

#[test]
fn one_test_leaves_nothing_to_the_next_and_policies_have_no_more_than_ever() {
    let test = "\
load('a.gsky', 'peek')
def test_one():
    expect.eq(peek(), 1)
    gpu_ops.register_pool(gpu_pool(name = 'mine'))
    expect.eq(peek(), 2)
def test_two():
    expect.eq(peek(), 1)
";
    let policy =
        "gpu_ops.register_pool(gpu_pool(name = 'p'))\ndef peek():\n    return len(gpu_ops.get_all_pools())";
    let outcomes = tested(&[("a.gsky", policy), ("a_test.gsky", test)]).outcomes;
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()), "{outcomes:?}");
    for name in ["expect.eq(1, 1)", "job()", "__ran(1)"] {
        let outcomes = tested(&[("a.gsky", name), ("a_test.gsky", "load('a.gsky', 'x')")]).outcomes;
        let said = outcomes[0].error.as_ref().unwrap().to_string();
        assert!(said.starts_with("a.gsky:1:1: ") && said.contains("not found"), "{said}");
    }
}

/// Lines that could run, and those that did.
fn lines(policy: &str, body: &str) -> (Vec<usize>, Vec<usize>) {
    let source = format!("load('a.gsky', 'f')\ndef test_it():\n    expect.true(True)\n    {body}\n");
    let tested = tested(&[("a.gsky", policy), ("a_test.gsky", &source)]);
    assert_eq!(tested.outcomes[0].error, None);
    let coverage = &tested.coverage["a.gsky"];
    (coverage.lines.iter().copied().collect(), coverage.ran.iter().copied().collect())
}

#[test]
fn lines_that_ran_are_told_from_those_that_did_not() {
    let policy = "\
\"\"\"What this is for.\"\"\"
LIMIT = 8

def small(n):
    \"\"\"So small that the interpreter puts it into its callers.\"\"\"
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
    assert_eq!(lines(policy, "f(1)"), (all.clone(), loaded));
    assert_eq!(lines(policy, "f(101)"), (all.clone(), vec![2, 6, 9, 10, 11, 12, 23, 25]));
    // Of line 16 only the condition ran.
    assert_eq!(lines(policy, "f(9)"), (all, vec![2, 6, 9, 10, 11, 14, 15, 17, 21, 23, 25]));
}

#[test]
fn shapes_of_statements_survive_their_marks() {
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
    let (could, ran) = lines(policy, "f(['x'])");
    assert_eq!(could, [2, 3, 4, 5, 6, 8, 9, 10, 11, 14]);
    assert_eq!(ran, [2, 3, 6, 8, 9, 10, 11, 14]);
}

#[test]
fn percents_are_rounded_down() {
    let of = |ran: usize, lines: usize| Coverage { lines: (0..lines).collect(), ran: (0..ran).collect() };
    assert_eq!([of(0, 0).percent(), of(999, 1_000).percent(), of(3, 3).percent()], [100, 99, 100]);
    assert_eq!(of(1, 3).missed(), [1, 2]);
    let nobodys = Coverage::unreached("a.gsky", "def f():\n    return 1\nf()");
    assert_eq!((nobodys.percent(), nobodys.missed()), (0, vec![2, 3]));
}
