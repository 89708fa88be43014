//! The account that runs the tasks of a job: from the site's map, or the one account for all jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PASSWD_PATH: &str = "/etc/passwd";
const GROUP_PATH: &str = "/etc/group";
/// The account of jobs where no other one is configured.
const FALLBACK_ACCOUNT: &str = "nobody";

/// The account of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUser {
    /// For the variables `USER` and `LOGNAME`.
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// `None` if the account has no home directory on this machine; then the job's working directory is its home.
    pub home: Option<PathBuf>,
}

/// Which account runs the jobs of which user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobUsers {
    /// All jobs run as the user of the agent, which is not root.
    Shared,
    /// All jobs run as this account.
    One(JobUser),
    /// Each user's jobs run as that user's account; users who are not in the map cannot run jobs here.
    Map(BTreeMap<String, JobUser>),
}

impl JobUsers {
    /// The accounts for an agent that runs with root's rights or not. `account` is the setting `agent.job_user`; `map` has
    /// the entries of `agent.users` as `uid:gid[:group,…]` by user.
    pub fn resolve(
        is_root: bool,
        account: &str,
        map: &BTreeMap<String, String>,
        allow_root: bool,
    ) -> Result<JobUsers, String> {
        let passwd = fs::read_to_string(PASSWD_PATH).unwrap_or_default();
        let group = fs::read_to_string(GROUP_PATH).unwrap_or_default();
        Databases { passwd: &passwd, group: &group }.resolve(is_root, account, map, allow_root)
    }

    /// The account of a user's jobs; `None` for the user of the agent.
    pub fn of(&self, user: &str) -> Result<Option<&JobUser>, String> {
        match self {
            JobUsers::Shared => Ok(None),
            JobUsers::One(account) => Ok(Some(account)),
            JobUsers::Map(map) => map.get(user).map(Some).ok_or_else(|| {
                format!("the user `{user}` has no account on this node; an operator adds one to `agent.users`")
            }),
        }
    }

    /// The value of the node's label.
    pub fn label(&self) -> String {
        match self {
            JobUsers::Shared => "shared-user".to_string(),
            JobUsers::One(account) => account.name.clone(),
            JobUsers::Map(_) => "map".to_string(),
        }
    }
}

/// The texts of `/etc/passwd` and `/etc/group`.
struct Databases<'a> {
    passwd: &'a str,
    group: &'a str,
}

impl Databases<'_> {
    fn resolve(
        &self,
        is_root: bool,
        account: &str,
        map: &BTreeMap<String, String>,
        allow_root: bool,
    ) -> Result<JobUsers, String> {
        if !is_root {
            return Ok(JobUsers::Shared);
        }
        if map.is_empty() {
            let found = self.account(account).or_else(|| self.account(FALLBACK_ACCOUNT));
            let found = found.ok_or_else(|| {
                format!("there is neither an account `{account}` nor `{FALLBACK_ACCOUNT}`; set `agent.job_user`")
            })?;
            return check_not_root(found, allow_root).map(JobUsers::One);
        }
        let entry = |(user, ids): (&String, &String)| {
            let account = self.mapped_account(user, ids)?;
            Ok((user.clone(), check_not_root(account, allow_root)?))
        };
        map.iter().map(entry).collect::<Result<_, String>>().map(JobUsers::Map)
    }

    /// A line is `name:password:uid:gid:comment:home:shell`.
    fn account(&self, name: &str) -> Option<JobUser> {
        let fields = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
        Some(JobUser {
            name: name.to_string(),
            uid: found.get(2)?.parse().ok()?,
            gid: found.get(3)?.parse().ok()?,
            groups: self.groups_of(name),
            home: home_directory(found.get(5)?),
        })
    }

    /// A line is `name:password:gid:member,member`.
    fn groups_of(&self, member: &str) -> Vec<u32> {
        let gid = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_member = fields.get(3)?.split(',').any(|name| name == member);
            is_member.then(|| fields.get(2)?.parse().ok()).flatten()
        };
        self.group.lines().filter_map(gid).collect()
    }

    fn mapped_account(&self, user: &str, ids: &str) -> Result<JobUser, String> {
        let wrong =
            || format!("`agent.users`: `{user}={ids}` is not of the form `user=uid:gid` or `user=uid:gid:group+group`");
        let mut parts = ids.split(':');
        let mut number = || parts.next().and_then(|part| part.trim().parse::<u32>().ok());
        let (uid, gid) = (number().ok_or_else(wrong)?, number().ok_or_else(wrong)?);
        let listed = parts.next().unwrap_or_default().split('+').filter(|part| !part.trim().is_empty());
        let groups = listed.map(|part| part.trim().parse().ok()).collect::<Option<Vec<u32>>>().ok_or_else(wrong)?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        let uid_text = uid.to_string();
        let fields = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let known = fields.into_iter().find(|fields| fields.get(2) == Some(&uid_text.as_str()));
        let name = known.as_ref().and_then(|fields| fields.first()).map_or(user, |name| name).to_string();
        let home = known.and_then(|fields| home_directory(fields.get(5)?));
        Ok(JobUser { name, uid, gid, groups, home })
    }
}

fn home_directory(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute() && path != Path::new("/") && path.is_dir())
}

/// Root's group counts as root: it opens what root's own files leave to the group.
fn check_not_root(account: JobUser, allow_root: bool) -> Result<JobUser, String> {
    let is_root = account.uid == 0 || account.gid == 0 || account.groups.contains(&0);
    if is_root && !allow_root {
        return Err(format!(
            "jobs would run as `{}` with the rights of root; use another account, or set `agent.allow_root: true` if every \
             user of this cluster may do anything on this node",
            account.name
        ));
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASES: Databases<'_> = Databases {
        passwd: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n\
                 gpu:x:700:701::/tmp:/bin/sh\n",
        group: "root:x:0:\nvideo:x:44:gpu,ann\nrender:x:45:ann\nall:x:46:gpu\n",
    };

    fn resolve(account: &str, map: &[(&str, &str)], allow_root: bool) -> Result<JobUsers, String> {
        let map = map.iter().map(|(user, ids)| (user.to_string(), ids.to_string())).collect();
        DATABASES.resolve(true, account, &map, allow_root)
    }

    #[test]
    fn an_agent_without_root_runs_jobs_as_itself() {
        let users = DATABASES.resolve(false, "gpu", &BTreeMap::new(), false).unwrap();
        assert_eq!((users.of("ann").unwrap(), users.label().as_str()), (None, "shared-user"));
    }

    #[test]
    fn without_a_map_all_jobs_run_as_one_account_or_nobody() {
        let users = resolve("gpu", &[], false).unwrap();
        let account = users.of("ann").unwrap().unwrap();
        assert_eq!((account.uid, account.gid, account.groups.as_slice()), (700, 701, &[44, 46][..]));
        assert_eq!(account.home.as_deref(), Some(Path::new("/tmp")));
        let fallback = resolve("missing", &[], false).unwrap();
        let account = fallback.of("ann").unwrap().unwrap();
        assert_eq!((account.uid, account.home.as_deref(), fallback.label().as_str()), (65_534, None, "nobody"));
    }

    #[test]
    fn a_map_gives_each_user_an_account_and_refuses_the_others() {
        let users = resolve("gpu", &[("ann", "700:50:44+45"), ("bob", "9000:9000")], false).unwrap();
        let ann = users.of("ann").unwrap().unwrap();
        assert_eq!((ann.name.as_str(), ann.uid, ann.gid, ann.groups.as_slice()), ("gpu", 700, 50, &[44, 45][..]));
        assert_eq!(users.of("bob").unwrap().unwrap().name, "bob");
        assert!(users.of("eve").unwrap_err().contains("`agent.users`"));
        for wrong in ["", "1", "a:b", "1:2:x", "1:2:3:4", "-1:2"] {
            assert!(resolve("gpu", &[("ann", wrong)], false).unwrap_err().contains("not of the form"), "{wrong}");
        }
    }

    #[test]
    fn root_runs_no_job_unless_allowed() {
        for map in [&[][..], &[("ann", "0:1")], &[("ann", "5:0")], &[("ann", "5:5:0")]] {
            assert!(resolve("root", map, false).unwrap_err().contains("allow_root"), "{map:?}");
            assert!(resolve("root", map, true).is_ok());
        }
    }
}
