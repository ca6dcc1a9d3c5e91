//! What a server answered, as the result of a call.

use crate::ToolResult;
use crate::kinds::http::{MAX_ANSWER, result};
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::Source;
use agentfleet_schema::uris;
use reqwest::Url;
use rmcp::model::{CallToolResult, ContentBlock, ReadResourceResult, ResourceContents};
use serde_json::Value;

/// Sources that one answer may name.
const MOST_SOURCES: usize = 50;

/// The result of a tool.
pub(crate) fn told(
    item: &ToolItem,
    server: &str,
    tool: &str,
    answer: CallToolResult,
) -> Result<ToolResult, String> {
    let mut parts = Vec::new();
    // Not an address, since nobody can open it, but it tells one from another.
    let mut sources = vec![Source {
        uri: format!("mcp:{}/{}", uris::encode(server), uris::encode(tool)),
        title: item.name.clone(),
    }];
    for block in answer.content {
        match block {
            ContentBlock::Text(text) => parts.push(text.text),
            ContentBlock::Image(image) => {
                parts.push(unshown("image", Some(&image.mime_type), image.data.len()));
            }
            ContentBlock::Audio(audio) => {
                parts.push(unshown("audio", Some(&audio.mime_type), audio.data.len()));
            }
            ContentBlock::Resource(embedded) => {
                resource(embedded.resource, &mut parts, &mut sources);
            }
            ContentBlock::ResourceLink(link) => {
                parts.push(format!("[resource {} ({})]", link.uri, link.name));
                source(&link.uri, &link.name, &mut sources);
            }
            _ => parts.push("[content of an unknown kind]".to_owned()),
        }
    }
    if let Some(structured) = answer.structured_content {
        // Some servers wrap a bare text or number into an object of one field.
        let bare = structured.as_object().filter(|fields| fields.len() == 1);
        let bare = bare.and_then(|fields| fields.values().next());
        let is_told = |part: &String| {
            let read = serde_json::from_str::<Value>(part).ok();
            let is_bare = |bare: &Value| bare.as_str() == Some(part) || read.as_ref() == Some(bare);
            read.as_ref() == Some(&structured) || bare.is_some_and(is_bare)
        };
        let is_error = answer.is_error == Some(true);
        if item.result.is_some() && !is_error {
            parts = vec![structured.to_string()];
        } else if !parts.iter().any(is_told) {
            parts.push(structured.to_string());
        }
    }
    let content = parts.join("\n\n");
    if answer.is_error == Some(true) {
        return Ok(ToolResult::error(cut(content)));
    }
    Ok(ToolResult {
        content: cut(result(item, content)?),
        sources,
        ..ToolResult::default()
    })
}

/// The text of a resource.
pub(crate) fn read(item: &ToolItem, answer: ReadResourceResult) -> Result<ToolResult, String> {
    let mut parts = Vec::new();
    let mut sources = Vec::new();
    for contents in answer.contents {
        resource(contents, &mut parts, &mut sources);
    }
    Ok(ToolResult {
        content: cut(result(item, parts.join("\n\n"))?),
        sources,
        ..ToolResult::default()
    })
}

fn resource(contents: ResourceContents, parts: &mut Vec<String>, sources: &mut Vec<Source>) {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            source(&uri, &uri, sources);
            parts.push(text);
        }
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => {
            source(&uri, &uri, sources);
            parts.push(unshown(&uri, mime_type.as_deref(), blob.len()));
        }
        _ => parts.push("[a resource of an unknown kind]".to_owned()),
    }
}

/// What is no text is named. Of Base64, three bytes take four characters.
fn unshown(what: &str, media_type: Option<&str>, encoded: usize) -> String {
    let media_type = media_type.unwrap_or("of an unknown type");
    format!(
        "[{what}, {media_type}, {} bytes, not shown]",
        encoded / 4 * 3
    )
}

/// Notes where a text is from, if that can stand in the graph.
fn source(uri: &str, title: &str, sources: &mut Vec<Source>) {
    if let Ok(url) = Url::parse(uri)
        && sources.len() < MOST_SOURCES
    {
        sources.push(Source {
            uri: url.to_string(),
            title: title.chars().take(200).collect(),
        });
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_ANSWER {
        text.truncate(text.floor_char_boundary(MAX_ANSWER));
        text += &format!("\n\n[the answer was cut after {MAX_ANSWER} bytes]");
    }
    text
}
