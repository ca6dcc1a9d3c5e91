//! `up` over HTTPS, and what `doctor` says of its certificate.

use crate::place::Place;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Command;

const NEW_KEY: &str = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
                       -addext subjectAltName=DNS:localhost,IP:127.0.0.1";

fn openssl(place: &Place, arguments: &str) {
    let made = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert!(made.status.success(), "{arguments}: {made:?}");
}

/// A certificate for this machine that is its own authority, and its key: `NAME.pem` and `NAME.key`.
fn certify(place: &Place, name: &str, days: u32) -> [String; 2] {
    openssl(
        place,
        &format!(
            "{NEW_KEY} -x509 -addext basicConstraints=critical,CA:FALSE -days {days} -out {name}.pem -keyout {name}.key"
        ),
    );
    ["pem", "key"].map(|end| place.path(&format!("{name}.{end}")).display().to_string())
}

/// The same, from an instant to another; nothing else of `openssl` makes one whose time is over.
fn certify_between(place: &Place, name: &str, from: &str, until: &str) -> [String; 2] {
    openssl(
        place,
        &format!("{NEW_KEY} -out {name}.csr -keyout {name}.key"),
    );
    let config = "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nrand_serial = yes\nnew_certs_dir = .\n\
                  default_md = sha256\npolicy = any\ncopy_extensions = copy\n[any]\ncommonName = supplied\n";
    place.write("ca.conf", config);
    place.write("index", "");
    openssl(
        place,
        &format!(
            "ca -batch -selfsign -config ca.conf -keyfile {name}.key -in {name}.csr -out {name}.pem -notext \
             -startdate {from} -enddate {until}"
        ),
    );
    ["pem", "key"].map(|end| place.path(&format!("{name}.{end}")).display().to_string())
}

fn with<'a>(arguments: &[&'a str], files: &'a [String; 2]) -> Vec<&'a str> {
    let tls = ["--tls-certificate", &files[0], "--tls-key", &files[1]];
    [arguments, &tls].concat()
}

#[test]
fn up_says_an_address_that_speaks_https_and_whoever_trusts_it_is_answered() {
    let place = Place::new();
    let files = certify(&place, "server", 400);
    let arguments = ["up", "--json", "--listen", "127.0.0.1:0"];
    let mut up = crate::place::Running(place.command(&with(&arguments, &files)).spawn().unwrap());
    let mut line = String::new();
    let stdout = up.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let url = told["url"].as_str().unwrap();
    let port = url.rsplit(':').next().unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    // A client of somebody else.
    let python = "import ssl, sys, urllib.request\n\
                  context = ssl.create_default_context(cafile=sys.argv[2])\n\
                  print(urllib.request.urlopen(sys.argv[1] + '/health/live', context=context).status)";
    let asked = |url: &str, trusted: &str| {
        let mut command = Command::new("python3");
        let asked = command.args(["-c", python, url, trusted]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&asked.stdout), text(&asked.stderr))
    };
    let (out, err) = asked(url, &files[0]);
    assert_eq!(out.trim(), "200", "{err}");
    let other = certify(&place, "other", 2);
    let (_, err) = asked(url, &other[0]);
    assert!(err.contains("CERTIFICATE_VERIFY_FAILED"), "{err}");
    let (_, err) = asked(&url.replace("https", "http"), &files[0]);
    assert!(err.contains("400"), "{err}");
    // The graph of this `up`, as another process beside it reads it.
    let graph = format!("https://localhost:{port}");
    let mut query = place.command(&["query", "ASK {}", "--graph", &graph]);
    let ran = crate::place::finished(
        query.env("SSL_CERT_FILE", &files[0]).spawn().unwrap(),
        &["query"],
    );
    assert!(ran.well().out.contains("true"));
}

#[test]
fn a_certificate_without_its_key_and_files_that_do_not_fit_are_refused() {
    let place = Place::new();
    let (files, other) = (
        certify(&place, "server", 400),
        certify(&place, "other", 400),
    );
    let mixed = [files[0].clone(), other[1].clone()];
    let gone = [files[0].clone(), "/no/such.key".to_owned()];
    for (args, says) in [
        (
            vec!["up", "--tls-certificate", &files[0]],
            "setting `tls_certificate` needs `tls_key`",
        ),
        (
            vec!["settings", "--tls-key", &files[1]],
            "setting `tls_key` needs `tls_certificate`",
        ),
        (
            with(&["up", "--listen", "127.0.0.1:0"], &mixed),
            "is not the key of",
        ),
        (
            with(&["up", "--listen", "127.0.0.1:0"], &gone),
            "`/no/such.key`",
        ),
    ] {
        let ran = place.run(&args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
}

#[test]
fn doctor_says_how_long_the_certificate_counts() {
    let place = Place::new();
    let fine = certify(&place, "fine", 400);
    let mixed = [fine[0].clone(), certify(&place, "other", 400)[1].clone()];
    let over = ("20200101000000Z", "20200201000000Z");
    let to_come = ("20900101000000Z", "20910101000000Z");
    for (files, code, says) in [
        (fine, 0, "counts until"),
        (certify(&place, "due", 10), 0, "Warning: 9 days are left"),
        (
            certify_between(&place, "over", over.0, over.1),
            4,
            "expired at 2020-02-01T00:00:00",
        ),
        (
            certify_between(&place, "early", to_come.0, to_come.1),
            4,
            "does not count before 2090-01-01T00:00:00",
        ),
        (mixed, 4, "is not the key of"),
    ] {
        let ran = place.run(&with(&["doctor", "--json"], &files));
        assert_eq!(ran.code, code, "{ran:?}");
        let found = ran.json();
        let mut found = found.as_array().unwrap().iter();
        let told = found.find(|one| one["what"] == "certificate").unwrap();
        assert_eq!(told["ok"], code == 0, "{told}");
        assert!(told["says"].as_str().unwrap().contains(says), "{told}");
    }
    let without = place.run(&["doctor", "--json"]).well().json();
    let mut without = without.as_array().unwrap().iter();
    assert!(without.all(|one| one["what"] != "certificate"));
}
