//! How well the worked example's dossier answers the questions it is for.

use crate::place::{Place, tool};

/// Parts of the titles of the files that speak of a dimension.
const FINANCE: &[&str] = &["financial statements", "Credit note", "key figures"];
const LEGAL: &[&str] = &[
    "regulatory filings",
    "Sanctions screening",
    "litigation register",
];
const REPUTATION: &[&str] = &["press review", "Reviews"];
const OPERATIONS: &[&str] = &["supply chain", "operations incident"];

#[tokio::test]
async fn each_dimension_finds_its_own_documents_first() {
    let place = Place::new().await;
    let report = place.load_dossier().await;
    assert_eq!(report.skipped, []);
    for (query, own, at_least) in [
        (
            "Analyse financial health and stability of Company X",
            FINANCE,
            3,
        ),
        ("liquidity and refinancing of the term loan", FINANCE, 4),
        (
            "Review regulatory filings, sanctions, and legal exposure for Company X",
            LEGAL,
            4,
        ),
        ("sanctions list match", LEGAL, 4),
        ("open court cases and provisions", LEGAL, 3),
        (
            "Analyse news sentiment and public reputation of Company X",
            REPUTATION,
            4,
        ),
        (
            "Assess supply chain dependencies and operational risks for Company X",
            OPERATIONS,
            4,
        ),
        ("single supplier of control boards", OPERATIONS, 3),
    ] {
        let found = place.titles("dossier", query).await;
        let is_own = |title: &String| own.iter().any(|part| title.contains(part));
        let hits = found.iter().filter(|title| is_own(title)).count();
        assert!(hits >= at_least && is_own(&found[0]), "{query}: {found:#?}");
    }
}

#[tokio::test]
async fn both_sides_of_a_contradiction_are_found() {
    let place = Place::new().await;
    place.load_dossier().await;
    for (query, figures) in [
        ("current ratio at the end of 2025", ["1.12", "0.94"]),
        ("net debt to EBITDA covenant", ["3.1", "3.9"]),
        (
            "second source for control boards qualified",
            ["fourth quarter of 2025", "third quarter of 2026"],
        ),
        ("on-time delivery percent", ["96", "88"]),
        (
            "Distributor D agreement ended deliveries",
            ["December 2025", "April 2026"],
        ),
    ] {
        let arguments = [("query", query)];
        let found = place
            .call(&tool("document-search"), "dossier", &arguments)
            .await
            .content;
        for figure in figures {
            assert!(
                found.contains(figure),
                "{query}: {figure} is not in\n{found}"
            );
        }
    }
}

#[tokio::test]
async fn ownership_is_answered_from_the_graph() {
    let place = Place::new().await;
    place.load_dossier().await;
    for (question, expected) in [
        (
            "Who owns Company X?",
            "- Company X | parent organization | Holding N [urn:example:company-x:company]",
        ),
        (
            "Who owns Company X?",
            "- Stake of Fund F in Company X | value | 23 percent of votes",
        ),
        (
            "What does Trust T control?",
            "- Holding N | parent organization | Trust T [urn:example:company-x:holding-n]",
        ),
        (
            "What does Supplier A make?",
            "- Supplier A | makes offer | offer (",
        ),
        (
            "distributor sanctions",
            "One owner with 12 percent is a possible sanctions match",
        ),
    ] {
        let arguments = [("question", question)];
        let result = place
            .call(&tool("knowledge-query"), "dossier", &arguments)
            .await;
        assert!(
            result.content.contains(expected),
            "{question}: {expected} is not in\n{}",
            result.content
        );
        assert!(
            result
                .sources
                .iter()
                .any(|s| s.uri == "urn:agentfleet:document:dossier:ownership.ttl")
        );
    }
}
