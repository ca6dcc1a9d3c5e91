//! Who decides, where a decision is to be a person's.

use crate::error::Failure;

/// The name that was given, else that of the user of the system. Nobody is made up: the name stays in
/// the records.
pub(super) fn name(given: Option<&str>) -> Result<String, Failure> {
    chosen(given, of_system())
}

/// The same, where a change that nobody answers for is better than none: it is then the program's.
pub(super) fn name_or_program(given: Option<&str>) -> Result<String, Failure> {
    chosen(given, of_system().or_else(|| Some("cli".to_owned())))
}

fn of_system() -> Option<String> {
    let mut names = ["USER", "LOGNAME", "USERNAME"].into_iter();
    names.find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()))
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
