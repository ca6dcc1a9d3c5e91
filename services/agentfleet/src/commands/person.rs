//! Who decides, where a decision is to be a person's.

use crate::error::Failure;
use std::os::unix::fs::MetadataExt as _;

/// The name that was given, else that of the user of the system: one rule for every decision. Nobody is
/// made up: the name stays in the records.
pub(super) fn name(given: Option<&str>) -> Result<String, Failure> {
    chosen(given, of_system())
}

/// The user of the system: what the environment says, else the name of the account.
pub(super) fn of_system() -> Option<String> {
    let mut names = ["USER", "LOGNAME", "USERNAME"].into_iter();
    let said = names.find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    said.or_else(|| {
        // The owner of a process is the owner of its folder there.
        let account = std::fs::metadata("/proc/self").ok()?.uid();
        account_name(&std::fs::read_to_string("/etc/passwd").ok()?, account)
    })
}

/// The name of an account, by the lines of `/etc/passwd`.
fn account_name(passwd: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    let mut accounts = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let found = accounts.find(|fields| fields.get(2) == Some(&id.as_str()));
    let name = found?.first().copied()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// What a command that is proposed to people has to say so that it is known who they are.
pub(super) fn to_say() -> &'static str {
    match of_system() {
        Some(_) => "",
        None => " --as NAME",
    }
}

fn chosen(given: Option<&str>, of_system: Option<String>) -> Result<String, Failure> {
    match given.map(str::trim) {
        Some("") => Err(Failure::usage("`--as` needs a name")),
        Some(name) => Ok(name.to_owned()),
        None => of_system.ok_or_else(|| {
            Failure::usage("nobody knows who decides: the system names no user")
                .hint("say it with `--as NAME`")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_the_name_of_its_line() {
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n:x:7:7::/:/\n";
        for (id, name) in [
            (0, Some("root")),
            (1_000, Some("ada")),
            (100, None),
            (7, None),
        ] {
            assert_eq!(account_name(passwd, id).as_deref(), name, "{id}");
        }
    }

    #[test]
    fn a_decision_is_that_of_somebody_with_a_name() {
        for (given, of_system, expected) in [
            (Some(" Ada "), Some("ben"), Ok("Ada")),
            (None, Some("ben"), Ok("ben")),
            (Some(" "), Some("ben"), Err("`--as` needs a name")),
            (
                None,
                None,
                Err("nobody knows who decides: the system names no user"),
            ),
        ] {
            let decides = chosen(given, of_system.map(str::to_owned));
            let decides = decides
                .as_deref()
                .map_err(|failure| failure.message.as_str());
            assert_eq!(decides, expected);
        }
    }
}
