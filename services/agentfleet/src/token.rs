//! The data directory's token, which callers of the door that `up` serves must send. Whoever may read
//! the data directory has it, and nobody else; a setting may say another.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use uuid::Uuid;

pub(crate) fn path(settings: &Settings) -> PathBuf {
    settings.data.join("http-token")
}

/// The token, if there is one.
pub(crate) fn found(settings: &Settings) -> Option<String> {
    if let Some(token) = &settings.http_token {
        return Some(token.expose().to_owned());
    }
    let text = fs::read_to_string(path(settings)).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The token, made now if there is none.
pub(crate) fn ensure(settings: &Settings) -> Result<String, Failure> {
    let path = path(settings);
    if let Some(token) = found(settings) {
        return Ok(token);
    }
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Unavailable,
            format!("cannot write `{}`: {error}", path.display()),
        )
    };
    // Whole or not at all, and the first of two processes wins.
    let draft = path.with_extension(Uuid::new_v4().simple().to_string());
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .map_err(failed)?;
    file.write_all(format!("{token}\n").as_bytes())
        .map_err(failed)?;
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft).map_err(failed)?;
    match linked {
        Ok(()) => Ok(token),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            found(settings).ok_or_else(|| failed(error))
        }
        Err(error) => Err(failed(error)),
    }
}
