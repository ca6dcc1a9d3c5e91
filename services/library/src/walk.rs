//! Which files a load looks at.
//!
//! Folders are walked in the order of names. Hidden files and the folders of version control are
//! left out without a word; links and unreadable folders are reported, and not followed.

use super::Skipped;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Folders of version control whose names are not hidden.
const VERSION_CONTROL: &[&str] = &["CVS", "_darcs"];

/// A file to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Below the loaded folder, with `/` between folders.
    pub(crate) path: String,
    /// Where it lies, absolute.
    pub(crate) origin: PathBuf,
    pub(crate) bytes: u64,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) files: Vec<Candidate>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Walks the given files and folders. Fails only if one of them is not there.
pub(crate) fn walk(paths: &[PathBuf]) -> Result<Walked, (PathBuf, std::io::Error)> {
    let mut walked = Walked::default();
    for path in paths {
        let root = path.canonicalize().map_err(|error| (path.clone(), error))?;
        let below = if root.is_dir() {
            root.as_path()
        } else {
            root.parent().unwrap_or(&root)
        };
        let entries = WalkDir::new(&root)
            .sort_by_file_name()
            .into_iter()
            .filter_entry(is_wanted);
        for entry in entries {
            match entry {
                Ok(entry) => visit(&entry, below, &mut walked),
                Err(error) => {
                    let at = error.path().unwrap_or(&root);
                    let reason = error.io_error().map_or_else(
                        || "cannot be read".to_owned(),
                        |io| format!("cannot be read: {io}"),
                    );
                    walked.skipped.push(Skipped {
                        path: relative(at, below),
                        reason,
                    });
                }
            }
        }
    }
    Ok(walked)
}

fn visit(entry: &DirEntry, below: &Path, walked: &mut Walked) {
    let kind = entry.file_type();
    if kind.is_dir() {
        return;
    }
    let path = relative(entry.path(), below);
    if kind.is_file() {
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        walked.files.push(Candidate {
            path,
            origin: entry.path().to_owned(),
            bytes,
        });
    } else {
        let reason = if kind.is_symlink() {
            "is a link, which is not followed"
        } else {
            "is not a regular file"
        };
        let reason = reason.to_owned();
        walked.skipped.push(Skipped { path, reason });
    }
}

fn is_wanted(entry: &DirEntry) -> bool {
    // What a person named is loaded, hidden or not.
    if entry.depth() == 0 {
        return true;
    }
    let name = entry.file_name().to_string_lossy();
    !name.starts_with('.') && !VERSION_CONTROL.contains(&name.as_ref())
}

fn relative(path: &Path, below: &Path) -> String {
    let path = path.strip_prefix(below).unwrap_or(path);
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hidden_files_and_version_control_are_left_out_and_links_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(".notes");
        for file in ["b.md", "a/z.md", ".git/config", "a/.hidden.md", "CVS/Root"] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink(root.join("b.md"), root.join("c.md")).unwrap();
        let walked = walk(&[root.clone(), root.join("b.md")]).unwrap();
        let files: Vec<_> = walked.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["a/z.md", "b.md", "b.md"]);
        assert_eq!(walked.skipped[0].path, "c.md");
        assert_eq!(walked.skipped[0].reason, "is a link, which is not followed");
        assert_eq!(walk(&[root.join("none")]).unwrap_err().0, root.join("none"));
    }
}
