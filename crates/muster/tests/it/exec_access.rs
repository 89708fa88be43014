//! Programs inside running jobs beyond local mode: over HTTPS, with the tokens of people.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use super::agents::{AgentProcess, ONE_GPU, Site};
use super::exec::{count_of, text};

const NOT_ALLOWED: Option<i32> = Some(4);
const UNREACHABLE: Option<i32> = Some(69);

/// A site with HTTPS and tokens, and a job of `ann`.
struct Stage {
    _agent: AgentProcess,
    site: Site,
    job: String,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let site = Site::secure(&format!("exec-{name}"));
        let agent = site.joined("g1", ONE_GPU);
        site.ok(&["tenant", "create", "vision", "--max-gpus", "4"]);
        for (person, role) in [("ann", "member"), ("bob", "member"), ("vera", "viewer")] {
            let file = format!("{person}.token");
            site.ok(&["token", "create", person, "--role", role, "--tenant", "vision", "--out", &file]);
        }
        let work = site.folder.join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut stage = Stage { _agent: agent, site, job: String::new() };
        let script = "echo work > here; echo ready; sleep 600";
        let words = ["submit", "--dir", work.to_str().unwrap(), "--", "sh", "-c", script];
        stage.job = text(&stage.as_person("ann", &words).stdout).trim().to_string();
        let job = &stage.job;
        stage.site.wait("the job runs", || text(&stage.as_person("ann", &["logs", job]).stdout).contains("ready"));
        stage
    }

    /// A command with the token of a person, and the CA of the server by the option of the command line.
    fn command(&self, person: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.site.folder.join("bin/muster"));
        command.args(["--ca-file", "data/tls/ca.pem", "--token-file", &format!("{person}.token")]).args(words);
        command.current_dir(&self.site.folder).env("MUSTER_SERVER", self.site.url()).env("MUSTER_DATA_DIR", "/nowhere");
        command
    }

    fn as_person(&self, person: &str, words: &[&str]) -> Output {
        self.command(person, words).output().unwrap()
    }

    fn start_sleeper(&self, seconds: &str) -> Child {
        let mut command =
            self.command("ann", &["exec", &self.job, "--", "sh", "-c", &format!("sleep {seconds} & wait")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.site.wait("the program runs", || count_of(seconds) >= 2);
        child
    }

    fn wait_until_gone(&self, seconds: &str) {
        self.site.wait("the program is gone", || count_of(seconds) == 0);
    }
}

#[test]
fn the_owner_enters_a_job_over_https_and_nobody_else_of_the_tenant_does() {
    let stage = Stage::new("tokens");
    let job = stage.job.as_str();
    let seen = stage.as_person("ann", &["exec", job, "--", "sh", "-c", "cat here; exit 7"]);
    assert_eq!((text(&seen.stdout).as_str(), seen.status.code()), ("work\n", Some(7)), "{}", text(&seen.stderr));
    let mut attach = stage.command("ann", &["attach", job]);
    let mut child = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"cat here; exit 3\n").unwrap();
    let seen = child.wait_with_output().unwrap();
    assert_eq!((text(&seen.stdout).as_str(), seen.status.code()), ("work\n", Some(3)));
    std::fs::write(stage.site.folder.join("file"), "content").unwrap();
    let (into, out_of) = (format!("{job}:/tmp/file"), format!("{job}:here"));
    assert_eq!(stage.as_person("ann", &["cp", "file", &into]).status.code(), Some(0));
    assert_eq!(text(&stage.as_person("ann", &["exec", job, "--", "cat", "/tmp/file"]).stdout), "content");
    assert_eq!(stage.as_person("ann", &["cp", &out_of, "back"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(stage.site.folder.join("back")).unwrap(), "work\n");

    for (person, why) in [("bob", "`ann`"), ("vera", "role member")] {
        for words in [&["exec", job, "--", "true"][..], &["attach", job], &["cp", "file", &into], &["cp", &out_of, "x"]]
        {
            let refused = stage.as_person(person, words);
            assert_eq!(refused.status.code(), NOT_ALLOWED, "{person} {words:?}: {}", text(&refused.stderr));
            assert!(text(&refused.stderr).contains(why), "{person}: {}", text(&refused.stderr));
        }
    }
    let audit = stage.site.ok(&["audit", "-o", "csv"]);
    let of = |person: &str| audit.lines().filter(|line| line.contains("job.exec") && line.contains(person)).count();
    assert!(of("ann") >= 3 && of("bob") >= 1, "{audit}");
    let mut without_ca = Command::new(stage.site.folder.join("bin/muster"));
    without_ca.args(["--token-file", "ann.token", "exec", job, "--", "true"]).current_dir(&stage.site.folder);
    without_ca.env("MUSTER_SERVER", stage.site.url()).env("MUSTER_DATA_DIR", "/nowhere");
    let untrusted = without_ca.output().unwrap();
    assert_eq!(untrusted.status.code(), UNREACHABLE);
    assert!(text(&untrusted.stderr).contains("--ca-file"), "{}", text(&untrusted.stderr));
}

#[test]
fn a_session_over_https_ends_with_its_token_and_with_its_server() {
    let mut stage = Stage::new("https-ends");
    let client = stage.start_sleeper("8001.5");
    let tokens = stage.site.ok(&["token", "ls", "-o", "csv", "--no-headers", "--columns", "token,name"]);
    let token = tokens.lines().find_map(|line| line.strip_suffix(",ann")).unwrap();
    stage.site.ok(&["token", "create", "ann", "--tenant", "vision", "--out", "second.token"]);
    stage.site.ok(&["token", "rm", token, "--yes"]);
    let ended = client.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), NOT_ALLOWED);
    assert!(text(&ended.stderr).contains("was revoked"), "{}", text(&ended.stderr));
    stage.wait_until_gone("8001.5");
    std::fs::rename(stage.site.folder.join("second.token"), stage.site.folder.join("ann.token")).unwrap();

    let client = stage.start_sleeper("8002.5");
    stage.site.kill_server();
    let lost = client.wait_with_output().unwrap();
    assert_eq!(lost.status.code(), UNREACHABLE);
    assert!(text(&lost.stderr).contains("the connection to the program was lost"), "{}", text(&lost.stderr));
    stage.wait_until_gone("8002.5");
    stage.site.start_server();
    let back = || stage.as_person("ann", &["exec", &stage.job, "--", "true"]).status.success();
    stage.site.wait("the agent is back", back);
}
