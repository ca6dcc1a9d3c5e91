//! The MCP server of `tests/mcp`, on the official Python SDK.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp");

/// A Python that has the SDK.
pub(crate) fn python() -> String {
    static PYTHON: OnceLock<String> = OnceLock::new();
    let set_up = || {
        let script = format!("{FOLDER}/venv.sh");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    PYTHON.get_or_init(set_up).clone()
}

/// What that Python runs.
pub(crate) fn script() -> String {
    format!("{FOLDER}/server.py")
}

/// The server over HTTP; it ends with the test.
pub(crate) struct Http {
    child: Child,
    pub(crate) url: String,
}

impl Http {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(python())
            .args([&script(), "http"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let url = line.trim().to_owned();
        Self { child, url }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
