//! Which form an answer takes, and which form a body may have (RFC 9110, sections 8.3 and 12.5.1).

use crate::problem::{Code, Problem};
use axum::http::{HeaderMap, header};

/// One form an answer can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer<T> {
    pub form: T,
    /// What is sent as `Content-Type`.
    pub content_type: &'static str,
    /// What may be asked for, most usual first.
    pub media_types: &'static [&'static str],
    /// What may stand in `?format=`.
    pub names: &'static [&'static str],
}

/// Chooses among offers by the `Accept` headers; the first offer wins a tie.
pub(crate) fn choose<'a, T>(
    headers: &HeaderMap,
    offers: &'a [Offer<T>],
) -> Result<&'a Offer<T>, Problem> {
    let ranges = ranges(headers);
    let mut best: Option<(&Offer<T>, f32)> = None;
    for offer in offers {
        let quality = offer.media_types.iter().map(|kind| quality(&ranges, kind));
        let quality = quality.fold(0.0, f32::max);
        if quality > 0.0 && best.is_none_or(|(_, other)| quality > other) {
            best = Some((offer, quality));
        }
    }
    best.map(|(offer, _)| offer).ok_or_else(|| {
        let known: Vec<_> = offers
            .iter()
            .flat_map(|offer| offer.media_types)
            .map(|m| format!("`{m}`"))
            .collect();
        Problem::new(
            Code::NotAcceptable,
            format!(
                "nothing in `Accept` can be produced (available: {})",
                known.join(", ")
            ),
        )
    })
}

/// Media ranges and their weights. None given accepts everything.
fn ranges(headers: &HeaderMap) -> Vec<(String, f32)> {
    let mut ranges = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            if kind.is_empty() {
                continue;
            }
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            ranges.push((kind, weight.unwrap_or(1.0)));
        }
    }
    if ranges.is_empty() {
        ranges.push(("*/*".to_owned(), 1.0));
    }
    ranges
}

/// The weight of a media type: that of the most specific range that holds it.
fn quality(ranges: &[(String, f32)], kind: &str) -> f32 {
    let family = format!("{}/*", kind.split('/').next().unwrap_or_default());
    [kind, &family, "*/*"]
        .iter()
        .find_map(|wanted| ranges.iter().find(|(range, _)| range == wanted))
        .map_or(0.0, |(_, weight)| *weight)
}

/// Of these media types, the one that `Accept` names with most weight; the first of equals there.
pub(crate) fn named<'k>(headers: &HeaderMap, kinds: &[&'k str]) -> Option<&'k str> {
    let mut best: Option<(&str, f32)> = None;
    for (range, weight) in ranges(headers) {
        let kind = kinds.iter().find(|kind| **kind == range);
        if let Some(kind) = kind
            && weight > best.map_or(0.0, |(_, weight)| weight)
        {
            best = Some((kind, weight));
        }
    }
    best.map(|(kind, _)| kind)
}

/// Whether the caller asks for a media type by name.
pub(crate) fn wants(headers: &HeaderMap, kind: &str) -> bool {
    let ranges = ranges(headers);
    let mut weights = ranges.iter().filter(|(range, _)| range == kind);
    weights.any(|(_, weight)| *weight > 0.0)
}

/// The media type of the body, without its parameters.
pub(crate) fn body_type(headers: &HeaderMap) -> String {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Refuses a body of another type. A web page cannot send JSON to another origin unasked, so this
/// is also what keeps it out.
pub(crate) fn require_type(headers: &HeaderMap, wanted: &str) -> Result<(), Problem> {
    let kind = body_type(headers);
    if kind == wanted {
        return Ok(());
    }
    let given = if kind.is_empty() {
        "none is given".to_owned()
    } else {
        format!("it is `{kind}`")
    };
    Err(Problem::new(
        Code::UnsupportedMediaType,
        format!("the `Content-Type` of the body must be `{wanted}`, and {given}"),
    )
    .hint(format!("add the header `Content-Type: {wanted}`")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::http::HeaderValue;

    const OFFERS: &[Offer<u8>] = &[
        Offer {
            form: 1,
            content_type: "application/sparql-results+json",
            media_types: &["application/sparql-results+json", "application/json"],
            names: &["json"],
        },
        Offer {
            form: 2,
            content_type: "text/csv",
            media_types: &["text/csv"],
            names: &["csv"],
        },
    ];

    #[test]
    fn the_offer_with_the_highest_weight_is_chosen() {
        let table = [
            (None, Some(1)),
            (Some(""), Some(1)),
            (Some("*/*"), Some(1)),
            (Some("text/csv"), Some(2)),
            (Some("TEXT/CSV; header=present"), Some(2)),
            (Some("text/*"), Some(2)),
            (Some("application/json;q=0.5, text/csv;q=0.4"), Some(1)),
            (Some("application/json;q=0.5, text/csv;q=0.6"), Some(2)),
            (Some("application/*;q=0.1, */*;q=0.2"), Some(2)),
            (Some("application/json;q=0, */*"), Some(1)),
            (
                Some("text/csv;q=0, application/sparql-results+json;q=0"),
                None,
            ),
            (Some("image/png"), None),
        ];
        for (accept, expected) in table {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            }
            let chosen = choose(&headers, OFFERS).map(|offer| offer.form).ok();
            assert_eq!(chosen, expected, "{accept:?}");
        }
    }
}
