//! Files that would cost a parser its stack, its memory or hours: each costs that file only, and says
//! which bound it broke.

use crate::place::Place;
use flate2::Compression;
use flate2::write::{DeflateEncoder, ZlibEncoder};
use std::io::Write as _;

const RDF: &str = "xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:e='urn:e:'";

fn bomb() -> String {
    let entities = (1..12).fold("<!ENTITY e0 \"lol\">".to_owned(), |all, n| {
        let inner = format!("&e{};", n - 1).repeat(10);
        format!("{all}<!ENTITY e{n} \"{inner}\">")
    });
    format!(
        "<?xml version='1.0'?><!DOCTYPE r [{entities}]><rdf:RDF {RDF}><rdf:Description rdf:about='urn:s'>\
         <e:p>&e11;</e:p></rdf:Description></rdf:RDF>"
    )
}

/// A ZIP archive of these parts.
fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    let two = |n: usize| u16::try_from(n).unwrap().to_le_bytes();
    let four = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    for (name, text) in parts {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(text).unwrap();
        let packed = packed.finish().unwrap();
        let offset = out.len();
        let mut checksum = flate2::Crc::new();
        checksum.update(text);
        // Version, flags, method, time, checksum, sizes, lengths.
        let shared = [
            &[20, 0, 0, 0, 8, 0, 0, 0, 0, 0][..],
            &checksum.sum().to_le_bytes(),
            &four(packed.len()),
            &four(text.len()),
            &two(name.len()),
            &two(0),
        ]
        .concat();
        out.extend([b"PK\x03\x04", &shared[..], name.as_bytes(), &packed].concat());
        let entry = [
            b"PK\x01\x02",
            &[20, 0][..],
            &shared,
            &[0; 10],
            &four(offset),
            name.as_bytes(),
        ];
        directory.extend(entry.concat());
    }
    let (count, start) = (two(parts.len()), four(out.len()));
    let end = [
        b"PK\x05\x06",
        &[0; 4][..],
        &count,
        &count,
        &four(directory.len()),
        &start,
        &[0, 0],
    ];
    out.extend(directory);
    out.extend(end.concat());
    out
}

fn word(body: &str) -> Vec<u8> {
    let styles = "<w:styles><w:style w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style></w:styles>";
    let text = format!("<?xml version='1.0'?><w:document><w:body>{body}</w:body></w:document>");
    archive(&[
        ("word/styles.xml", styles.as_bytes()),
        ("word/document.xml", text.as_bytes()),
    ])
}

/// A PDF with a stream for each page, packed.
fn pdf(pages: &[&[u8]]) -> Vec<u8> {
    let kids: String = (0..pages.len())
        .map(|n| format!("{} 0 R ", 10 + 2 * n))
        .collect();
    let mut objects = vec![
        (1, b"<</Type/Catalog/Pages 2 0 R>>".to_vec()),
        (
            2,
            format!("<</Type/Pages/Kids[{kids}]/Count {}>>", pages.len()).into_bytes(),
        ),
        (
            3,
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_vec(),
        ),
        (4, b"<</Title(The pump)>>".to_vec()),
    ];
    for (n, page) in pages.iter().enumerate() {
        let at = 10 + 2 * n;
        let resources = "/Resources<</Font<</F1 3 0 R>>>>/MediaBox[0 0 600 800]";
        objects.push((
            at,
            format!(
                "<</Type/Page/Parent 2 0 R{resources}/Contents {} 0 R>>",
                at + 1
            )
            .into_bytes(),
        ));
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(page).unwrap();
        let packed = packed.finish().unwrap();
        let head = format!("<</Length {}/Filter/FlateDecode>>stream\n", packed.len());
        objects.push((at + 1, [head.as_bytes(), &packed, b"\nendstream"].concat()));
    }
    let mut out = b"%PDF-1.4\n".to_vec();
    let mut table = String::new();
    for (number, object) in objects {
        table += &format!("{number} 1\n{:010} 00000 n \n", out.len());
        out.extend(format!("{number} 0 obj\n").into_bytes());
        out.extend(object);
        out.extend(b"\nendobj\n");
    }
    let size = 10 + 2 * pages.len();
    let tail = format!(
        "xref\n0 1\n0000000000 65535 f \n{table}trailer\n<</Size {size}/Root 1 0 R/Info 4 0 R>>\nstartxref\n{}\n%%EOF\n",
        out.len()
    );
    out.extend(tail.into_bytes());
    out
}

#[tokio::test]
async fn each_hostile_file_costs_that_file_only() {
    let place = Place::new().await;
    let deep = "is nested deeper than 200 levels";
    let zeros = vec![b' '; 20 << 20];
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "bomb.rdf",
            bomb().into_bytes(),
            "has the entity `e4`, which stands for more than 64 KiB",
        ),
        (
            "deep.rdf",
            format!("<rdf:RDF {RDF}>{}", "<e:a><e:b>".repeat(20_000)).into_bytes(),
            deep,
        ),
        (
            "deep.ttl",
            format!("<urn:s> <urn:p> {} .", "<<( <urn:s> <urn:p> ".repeat(8_000)).into_bytes(),
            deep,
        ),
        (
            "lists.ttl",
            format!("<urn:s> <urn:p> {}", "(".repeat(100_000)).into_bytes(),
            deep,
        ),
        (
            "deep.jsonld",
            format!("{{\"urn:p\":{}", "[".repeat(100_000)).into_bytes(),
            deep,
        ),
        ("deep.docx", word(&"<w:a>".repeat(1_000)), deep),
        (
            "zip.docx",
            archive(&[("word/document.xml", &vec![b' '; 130 << 20])]),
            "has `word/document.xml`, which unpacks to more than 128 MiB",
        ),
        (
            "none.docx",
            archive(&[("a", b"b")]),
            "broken DOCX: there is no `word/document.xml`",
        ),
        (
            "cut.docx",
            b"PK\x05\x06\xff\xff".to_vec(),
            "broken DOCX: it is no ZIP archive",
        ),
        (
            "zip.pdf",
            pdf(&[&zeros]),
            "holds a stream that unpacks to more than 16 MiB",
        ),
        ("cut.pdf", b"%PDF-1.4\n1 0 obj".to_vec(), "broken PDF: "),
        (
            "marks.md",
            "*a _b ".repeat(200_000).into_bytes(),
            "has a paragraph with more than 20000 marks",
        ),
        ("empty.pdf", pdf(&[b"q Q"]), "holds no text"),
    ];
    for (path, content, _) in &cases {
        place.write(path, content);
    }
    // Nested without bound where a parser has no stack: read, and no larger than it was.
    place.write("deep.html", "<ul><li>a ".repeat(20_000));
    place.write("deep.md", format!("{} word\n", ">".repeat(20_000)));
    place.write("good.ttl", "<urn:s> <urn:p> 'o' .");
    let report = place.load("c").await;
    let mut said: Vec<(&str, &str)> = report
        .skipped
        .iter()
        .map(|skipped| (skipped.path.as_str(), skipped.reason.as_str()))
        .collect();
    said.sort_unstable();
    let mut expected: Vec<_> = cases
        .iter()
        .map(|(path, _, reason)| (*path, *reason))
        .collect();
    expected.sort_unstable();
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for ((path, reason), (own, start)) in said.into_iter().zip(expected) {
        assert_eq!(path, own);
        let found = reason.contains(start);
        assert!(found, "{path}: {reason}");
    }
    assert_eq!(report.loaded, 3);
}

#[tokio::test]
async fn a_pdf_without_a_title_has_the_name_of_its_file() {
    let place = Place::new().await;
    let page = b"BT /F1 12 Tf 72 700 Td (The valve opens at 3 bar.) Tj ET";
    let mut bytes = pdf(&[page]);
    let title = b"<</Title(The pump)>>";
    let at = bytes
        .windows(title.len())
        .position(|found| found == title)
        .unwrap();
    bytes[at..at + title.len()].copy_from_slice(b"<</Other(The pump)>>");
    place.write("valve.pdf", bytes);
    assert_eq!(place.load("c").await.loaded, 1);
    let hits = place.library.search(&"c".into(), "valve", 3).await.unwrap();
    assert_eq!(hits.first().unwrap().title, "Valve");
}

#[tokio::test]
async fn pdf_word_and_restructured_text_are_found_by_their_words() {
    let place = Place::new().await;
    place.write(
        "pump.pdf",
        pdf(&[
            b"BT /F1 12 Tf 72 700 Td (The pump delivers 340 litres) Tj 0 -14 Td (per minute.) Tj ET",
            b"BT /F1 12 Tf 72 700 Td (It is serviced in March.) Tj ET",
        ]),
    );
    let paragraph = |text: &str| format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>");
    let cell = |text: &str| format!("<w:tc>{}</w:tc>", paragraph(text));
    let table = format!(
        "<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}</w:tr></w:tbl>",
        cell("Part"),
        cell("Price"),
        cell("Rotor"),
        cell("12")
    );
    let heading = "<w:p><w:pPr><w:pStyle w:val='berschrift1'/></w:pPr><w:r><w:t>Offer &amp; terms</w:t></w:r></w:p>";
    let item = "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>Deliv</w:t></w:r><w:r><w:t>ery in May</w:t></w:r></w:p>";
    place.write(
        "offer.docx",
        word(&format!(
            "{heading}{}{item}{table}",
            paragraph("We offer a rotor.")
        )),
    );
    place.write(
        "tool.rst",
        "Frob\n====\n\nSetup\n-----\n\nRun this::\n\n    frob --init\n\nDone.\n",
    );
    let report = place.load("c").await;
    assert_eq!(
        (report.loaded, report.skipped.len()),
        (3, 0),
        "{:?}",
        report.skipped
    );
    for (words, title, heading, text) in [
        ("litres delivers", "The pump", "", "340 litres"),
        (
            "serviced",
            "The pump",
            "",
            "## page 2\nIt is serviced in March.",
        ),
        (
            "rotor",
            "Offer & terms",
            "",
            "We offer a rotor.\n- Delivery in May\nrow: Part = Rotor; Price = 12",
        ),
        (
            "frob init",
            "Frob",
            "Setup",
            "Run this:\n```\nfrob --init\n```\nDone.",
        ),
    ] {
        let hits = place.library.search(&"c".into(), words, 3).await.unwrap();
        let hit = hits.first().unwrap();
        assert_eq!(
            (hit.title.as_str(), hit.heading.as_str()),
            (title, heading),
            "{words}"
        );
        assert!(hit.text.contains(text), "{words}: {}", hit.text);
    }
}
