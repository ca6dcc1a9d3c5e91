//! API keys, the audit log and the settings of an issuer, by command line.

use crate::place::Place;
use agentfleet::store::Store;

#[test]
fn whoever_deletes_a_role_is_told_which_keys_have_it() {
    let place = Place::new();
    let put = |name: &str| {
        let role = serde_json::json!({"name": name, "may": ["ask"]}).to_string();
        let file = place.write("role.json", &role);
        place.run(&["config", "put", "role", name, &file]).well();
    };
    let key = |name: &str, role: &str| {
        let make = ["keys", "create", name, "--tenant", "acme", "--role", role];
        let made = place.run(&[&make[..], &["--json"]].concat()).well().json();
        made["id"].as_str().unwrap().to_owned()
    };
    put("porter");
    put("analyst");
    let porter = key("billing", "porter");
    let gone = key("old", "porter");
    let analyst = key("reports", "analyst");
    place.run(&["keys", "revoke", &gone]).well();
    let told = |role: &str| place.run(&["config", "delete", "role", role]).well().err;
    let said = told("porter");
    assert!(
        said.contains("1 API key had the role `porter`") && said.contains(&porter),
        "{said}"
    );
    assert!(!said.contains(&gone) && !said.contains(&analyst), "{said}");
    let said = told("analyst");
    assert!(
        said.contains("comes with the program counts again") && said.contains(&analyst),
        "{said}"
    );
    // Of one that nobody has there is nothing to say.
    put("nobodys");
    assert_eq!(told("nobodys"), "");
}

#[test]
fn a_key_is_shown_once_listed_revoked_and_every_change_is_in_the_log() {
    let place = Place::new();
    let make = [
        "keys",
        "create",
        "billing",
        "--tenant",
        "acme",
        "--role",
        "producer",
        "--role",
        "analyst",
        "--per-minute",
        "7",
        "--expires",
        "30d",
        "--as",
        "ada",
        "--json",
    ];
    let made = place.run(&make).well().json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(secret.starts_with(&format!("af_{id}_")), "{made}");
    let listed = place.run(&["keys", "list", "--json"]).well();
    assert!(!listed.out.contains(secret), "{listed:?}");
    let key = &listed.json()[0];
    assert_eq!(key["name"], "billing");
    assert_eq!(key["roles"], serde_json::json!(["producer", "analyst"]));
    assert_eq!(
        (&key["per_minute"], &key["state"]),
        (&7.into(), &"in force".into())
    );
    let table = place.run(&["keys", "list"]).well().out;
    assert!(
        table.contains("producer,analyst") && table.contains(id),
        "{table}"
    );
    place.run(&["keys", "revoke", id, "--as", "ada"]).well();
    let key = place.run(&["keys", "list", "--json"]).well().json()[0].clone();
    assert_eq!(key["state"], "revoked");
    // What is refused leaves nothing behind.
    for (args, code, says) in [
        (
            &["keys", "revoke", "0000000000000000"][..],
            3,
            "there is no API key",
        ),
        (
            &[
                "keys", "create", "a b", "--tenant", "acme", "--role", "producer",
            ],
            2,
            "`NAME`",
        ),
        (
            &[
                "keys", "create", "a", "--tenant", "../x", "--role", "producer",
            ],
            2,
            "`--tenant`",
        ),
        (
            &["keys", "create", "a", "--tenant", "acme", "--role", "king"],
            2,
            "king",
        ),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    let log = place.run(&["audit", "list", "--json"]).well();
    assert!(!log.out.contains(secret), "{log:?}");
    let log = log.json();
    let entries = log.as_array().unwrap().iter();
    let actions: Vec<_> = entries
        .map(|one| one["entry"]["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["keys create", "keys revoke"]);
    assert!(place.run(&["audit", "list"]).well().out.contains("ada"));
    let verified = place.run(&["audit", "verify", "--json"]).well().json();
    assert_eq!(
        (&verified["entries"], &verified["branches"]),
        (&2.into(), &0.into())
    );
    // Somebody with write access takes the first entry away.
    let first = log[0]["key"].as_str().unwrap().to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&place.settings()).await.unwrap();
        store.documents.delete(&[first]).await.unwrap();
    });
    let ran = place.run(&["audit", "verify"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.out.contains("is missing"), "{ran:?}");
}

#[test]
fn one_damaged_entry_is_named_and_hides_no_other() {
    let place = Place::new();
    let make = |name: &str| {
        let args = [
            "keys", "create", name, "--tenant", "acme", "--role", "analyst",
        ];
        place.run(&args).well();
    };
    make("one");
    make("two");
    let log = place.run(&["audit", "list", "--json"]).well().json();
    let key = log[1]["key"].as_str().unwrap().to_owned();
    // Bytes that nothing of ours wrote, and what somebody types into the database.
    for stored in ["x'7b'", "'{'", "x''"] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let sql = format!("UPDATE objects SET body = {stored} WHERE key = '{key}'");
        let changed = runtime.block_on(async {
            let store = Store::open(&place.settings()).await.unwrap();
            let durable = agentfleet_storage::Durability::Durable;
            let changed = store
                .database
                .write(durable, move |unit| Ok(unit.tx().execute(&sql, ())?));
            changed.await.unwrap()
        });
        assert_eq!(changed, 1);
        let listed = place.run(&["audit", "list"]).well();
        assert!(listed.out.contains("keys create"), "{listed:?}");
        let mut lines = listed.out.lines();
        let damaged = lines.find(|line| line.contains(&key)).unwrap();
        assert!(damaged.contains("cannot be read"), "{damaged}");
        assert!(listed.err.contains("audit verify"), "{listed:?}");
        let log = place.run(&["audit", "list", "--json"]).well().json();
        assert_eq!(log[0]["entry"]["action"], "keys create");
        assert_eq!(log[1]["key"], *key);
        assert!(log[1]["entry"].is_null(), "{log}");
        let ran = place.run(&["audit", "verify"]);
        assert_eq!(ran.code, 7, "{ran:?}");
        assert!(
            ran.out.contains(&format!("entry `{key}` is damaged")),
            "{ran:?}"
        );
    }
    // The log goes on behind it.
    make("three");
    let verified = place.run(&["audit", "verify", "--json"]);
    assert_eq!(verified.code, 7, "{verified:?}");
    let told = verified.json();
    assert_eq!(told["entries"], 3, "{told}");
    assert_eq!(told["findings"].as_array().unwrap().len(), 1, "{told}");
}

#[test]
fn an_issuer_is_whole_or_refused_with_what_it_lacks() {
    let place = Place::new();
    let id = "https://id.example";
    for (args, says) in [
        (&["--oidc-issuer", id][..], "needs `oidc_audience`"),
        (&["--oidc-audience", "fleet"], "needs `oidc_issuer`"),
        (&["--requests-per-minute", "0"], "at least 1"),
        (
            &[
                "--oidc-issuer",
                id,
                "--oidc-audience",
                "fleet",
                "--oidc-tenant",
                "a b",
            ],
            "1 to 64 letters",
        ),
    ] {
        let ran = place.run(&[&["settings"], args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    let plain = [
        "up",
        "--oidc-issuer",
        "http://id.example",
        "--oidc-audience",
        "fleet",
    ];
    let ran = place.run(&plain);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("expected `https://`"), "{ran:?}");
}

#[test]
fn roles_and_quotas_are_config_that_says_what_is_wrong() {
    let place = Place::new();
    let put = |kind: &str, key: &str, value: &str| {
        let file = place.write("item.json", value);
        place.run(&["config", "put", kind, key, &file])
    };
    let mailer = r#"{"name": "mailer", "may": ["approval.*"], "approves": ["mail.*"]}"#;
    put("role", "mailer", mailer).well();
    let roles = place.run(&["keys", "roles", "--json"]).well().json();
    let names: Vec<_> = roles
        .as_array()
        .unwrap()
        .iter()
        .map(|role| format!("{} {}", role["name"], role["from"]).replace('"', ""))
        .collect();
    let expected = [
        "analyst shipped",
        "approver shipped",
        "mailer config",
        "operator shipped",
        "producer shipped",
    ];
    assert_eq!(names, expected);
    assert!(place.run(&["keys", "roles"]).well().out.contains("mail.*"));
    let make = [
        "keys", "create", "meg", "--tenant", "acme", "--role", "mailer",
    ];
    place.run(&make).well();
    for (kind, key, value, says) in [
        (
            "role",
            "x",
            r#"{"name": "x", "may": ["asks"]}"#,
            "did you mean `ask`?",
        ),
        (
            "role",
            "x",
            r#"{"name": "x", "approve": ["*"]}"#,
            "did you mean `approves`?",
        ),
        ("role", "a b", r#"{"name": "a b"}"#, "1 to 64 letters"),
        ("tenant", "acme", r#"{"name": "acme"}"#, "bounds nothing"),
        (
            "tenant",
            "a.b",
            r#"{"name": "a.b", "runs-per-month": 1}"#,
            "1 to 64 letters",
        ),
        (
            "tenant",
            "acme",
            r#"{"name": "acme", "cost-per-month": -1}"#,
            "cost-per-month",
        ),
    ] {
        let ran = put(kind, key, value);
        assert!(ran.code != 0 && ran.err.contains(says), "{says}: {ran:?}");
    }
    put("tenant", "*", r#"{"name": "*", "runs-per-month": 5}"#).well();
    assert!(
        place
            .run(&["usage"])
            .well()
            .out
            .contains("No tenant used anything yet")
    );
    let used = place
        .run(&["usage", "--tenant", "acme", "--json"])
        .well()
        .json();
    assert_eq!(used[0]["used"]["runs"], 0);
    assert_eq!(used[0]["quota"]["runs"], 5);
    let wrong = place.run(&["usage", "--month", "November"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("2026-11"),
        "{wrong:?}"
    );
    let claims = place.run(&["doctor", "--require-claims", "yes"]);
    assert!(
        claims.err.contains("the embedded one is the owner's alone"),
        "{claims:?}"
    );
}
