//! Running the examples of a document, so that what people copy is known to work.
//!
//! A fenced block marked ```` ```sh test ```` or ```` ```python test ```` is an example. The blocks
//! of one language run in one process, in their order, as a person would type them: what one sets,
//! the next can use. A block marked ```` ```text output ```` says what the example before it prints:
//! each of its lines must be found in the output, in order, where `...` stands for anything.
//!
//! The server's address comes in the environment variable [`URL`], and [`TOKEN`] as its token.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Names the server to the examples.
pub(crate) const URL: &str = "AGENTFLEET_URL";

/// What the examples send as the server's token.
pub(crate) const TOKEN: &str = "of-the-examples";

/// Printed before each example, with its line.
const MARK: &str = "@@ example at line ";

/// Who runs an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Shell,
    Python,
}

/// One example of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Example {
    pub(crate) language: Language,
    /// Line of its fence in the document.
    pub(crate) line: usize,
    pub(crate) code: String,
    /// Lines its output must hold.
    pub(crate) output: Vec<String>,
}

/// What went wrong with the examples of a document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the code block at line {0} is not closed")]
    Open(usize),
    #[error("the expected output at line {0} follows no example")]
    NoExample(usize),
    #[error("cannot run `{program}`: {reason}")]
    Start {
        program: &'static str,
        reason: std::io::Error,
    },
    #[error("the {language:?} examples did not end within {limit:?}")]
    Timeout { language: Language, limit: Duration },
    #[error("the {language:?} example at line {line} failed:\n{output}")]
    Failed {
        language: Language,
        line: usize,
        output: String,
    },
    #[error("the example at line {line} should print `{expected}`, and prints:\n{output}")]
    Output {
        line: usize,
        expected: String,
        output: String,
    },
}

/// The examples of a Markdown document, in order.
pub(crate) fn extract(markdown: &str) -> Result<Vec<Example>, Failure> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let opened = at + 1;
        let mut body = String::new();
        loop {
            let Some((_, line)) = lines.next() else {
                return Err(Failure::Open(opened));
            };
            if line.trim() == "```" {
                break;
            }
            body.push_str(line);
            body.push('\n');
        }
        let language = match info.trim() {
            "sh test" => Language::Shell,
            "python test" => Language::Python,
            "text output" => {
                let example = examples.last_mut().ok_or(Failure::NoExample(opened))?;
                example.output = body.lines().map(str::to_owned).collect();
                continue;
            }
            _ => continue,
        };
        examples.push(Example {
            language,
            line: opened,
            code: body,
            output: Vec::new(),
        });
    }
    Ok(examples)
}

/// Runs the examples of one language against the server at `url`, and checks what they print.
pub(crate) async fn run(
    examples: &[Example],
    language: Language,
    url: &str,
    limit: Duration,
) -> Result<(), Failure> {
    let (program, mut script) = match language {
        Language::Shell => ("sh", "set -eu\n".to_owned()),
        Language::Python => ("python3", String::new()),
    };
    let chosen: Vec<&Example> = examples.iter().filter(|e| e.language == language).collect();
    for example in &chosen {
        let line = example.line;
        let mark = match language {
            Language::Shell => format!("echo; echo '{MARK}{line}'\n"),
            Language::Python => format!("print('\\n{MARK}{line}', flush=True)\n"),
        };
        let _ = writeln!(script, "{mark}{}", example.code);
    }
    let child = Command::new(program)
        .args(["-c", &script])
        .env(URL, url)
        .env("AGENTFLEET_HTTP_TOKEN", TOKEN)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(limit, child)
        .await
        .map_err(|_| Failure::Timeout { language, limit })?
        .map_err(|reason| Failure::Start { program, reason })?;
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    let outputs = by_example(&printed);
    if !done.status.success() {
        let (line, output) = outputs.last().cloned().unwrap_or_default();
        let output = format!("{output}\n{}", String::from_utf8_lossy(&done.stderr));
        return Err(Failure::Failed {
            language,
            line,
            output,
        });
    }
    for example in &chosen {
        let output = outputs.iter().find(|(line, _)| *line == example.line);
        let output = output.map(|(_, text)| text.as_str()).unwrap_or_default();
        check(example, output)?;
    }
    Ok(())
}

/// What each example printed, by its line.
fn by_example(printed: &str) -> Vec<(usize, String)> {
    let mut outputs: Vec<(usize, String)> = Vec::new();
    for line in printed.lines() {
        if let Some(at) = line.strip_prefix(MARK).and_then(|at| at.parse().ok()) {
            outputs.push((at, String::new()));
        } else if let Some((_, output)) = outputs.last_mut() {
            output.push_str(line);
            output.push('\n');
        }
    }
    outputs
}

fn check(example: &Example, output: &str) -> Result<(), Failure> {
    let mut lines = output.lines();
    for expected in &example.output {
        if !lines.any(|line| fits(expected, line)) {
            return Err(Failure::Output {
                line: example.line,
                expected: expected.clone(),
                output: output.to_owned(),
            });
        }
    }
    Ok(())
}

/// Whether a line is as expected, where `...` stands for anything.
fn fits(expected: &str, line: &str) -> bool {
    let mut parts = expected.trim_end().split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.trim_end().strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn examples_are_the_marked_blocks_and_output_belongs_to_the_one_before() {
        let markdown = "# T\n```sh\nno\n```\n```sh test\na=1\n```\ntext\n```text output\nx ... y\n```\n```python test\nprint(1)\n```\n";
        let examples = extract(markdown).unwrap();
        assert_eq!(examples.len(), 2);
        assert_eq!((examples[0].line, examples[0].code.as_str()), (5, "a=1\n"));
        assert_eq!(examples[0].output, ["x ... y"]);
        assert_eq!(examples[1].language, Language::Python);
        assert!(matches!(extract("```sh test\na"), Err(Failure::Open(1))));
        assert!(matches!(
            extract("```text output\n```"),
            Err(Failure::NoExample(1))
        ));
    }

    #[test]
    fn dots_stand_for_anything() {
        for (expected, line, fitting) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a...", "ab", true),
            ("...b", "ab", true),
            ("...b", "abc", false),
            ("{...\"x\":1...}", "{\"y\":2,\"x\":1,\"z\":3}", true),
            ("{...\"x\":1...}", "{\"y\":2}", false),
            ("...", "", true),
        ] {
            assert_eq!(fits(expected, line), fitting, "{expected} / {line}");
        }
    }

    #[tokio::test]
    async fn an_example_that_fails_or_prints_something_else_is_named() {
        let markdown = "```sh test\nx=1\n```\n```sh test\necho \"$x $AGENTFLEET_URL\"\n```\n```text output\n1 http://h\n```\n";
        let examples = extract(markdown).unwrap();
        run(&examples, Language::Shell, "http://h", LIMIT)
            .await
            .unwrap();
        let other = run(&examples, Language::Shell, "http://other", LIMIT)
            .await
            .unwrap_err();
        assert!(matches!(other, Failure::Output { line: 4, .. }), "{other}");
        let examples = extract("```sh test\ntrue\n```\n```sh test\nfalse\n```\n").unwrap();
        let failed = run(&examples, Language::Shell, "", LIMIT)
            .await
            .unwrap_err();
        assert!(
            matches!(failed, Failure::Failed { line: 4, .. }),
            "{failed}"
        );
    }
}
