//! `memory-*`: what outlives a run, and whose it is.

use crate::place::{Place, tool};
use agentfleet_tools::Memories;

impl Place {
    async fn memory(&self, doing: &str, arguments: &[(&str, &str)]) -> String {
        let kind = format!("memory-{doing}");
        self.call(&tool(&kind), "c", arguments).await.content
    }
}

#[tokio::test]
async fn what_is_remembered_is_found_replaced_and_forgotten() {
    let mut place = Place::new().await;
    place.user = "ada".into();
    let nothing = "Nothing is remembered as `tone`.";
    assert_eq!(place.memory("get", &[("name", "tone")]).await, nothing);
    for (now, value) in [(1, "formal"), (2, "friendly")] {
        place.now = now;
        let set = [("name", "tone"), ("value", value)];
        assert_eq!(place.memory("set", &set).await, "`tone` is remembered.");
    }
    assert_eq!(place.memory("get", &[("name", "tone")]).await, "friendly");
    assert_eq!(place.memory("list", &[]).await, "tone: friendly");
    let set = [
        ("name", "brand"),
        ("value", "Rye & Co"),
        ("for", "everyone"),
        ("days", "1"),
    ];
    place.memory("set", &set).await;
    assert_eq!(
        place.memory("list", &[("for", "everyone")]).await,
        "brand: Rye & Co"
    );
    place.now += 24 * 60 * 60 * 1_000;
    assert_eq!(
        place.memory("list", &[("for", "everyone")]).await,
        "Nothing is remembered."
    );
    assert_eq!(
        place.memory("delete", &[("name", "tone")]).await,
        "`tone` is forgotten."
    );
    assert_eq!(place.memory("list", &[]).await, "Nothing is remembered.");
}

#[tokio::test]
async fn nobody_sees_what_is_remembered_for_another() {
    let mut place = Place::new().await;
    let whose = [
        ("acme", "ada"),
        ("acme", "ben"),
        ("", "ada"),
        ("bolt", "ada"),
        ("acme/", "ada"),
    ];
    for (tenant, user) in whose {
        (place.tenant, place.user) = (tenant.into(), user.into());
        let value = format!("of {user} at {tenant}");
        place
            .memory("set", &[("name", "n"), ("value", &value)])
            .await;
        place
            .memory(
                "set",
                &[
                    ("name", "all"),
                    ("value", &format!("of {tenant}")),
                    ("for", "everyone"),
                ],
            )
            .await;
    }
    for (tenant, user) in whose {
        (place.tenant, place.user) = (tenant.into(), user.into());
        let own = format!("n: of {user} at {tenant}");
        assert_eq!(place.memory("list", &[]).await, own.trim_end());
        let shared = place.memory("list", &[("for", "everyone")]).await;
        assert_eq!(shared, format!("all: of {tenant}").trim_end());
    }
}

#[tokio::test]
async fn what_is_too_much_is_refused() {
    let mut place = Place::new().await;
    place.user = "ada".into();
    let long = "x".repeat(4_001);
    let name = "n".repeat(101);
    for (arguments, expected) in [
        (
            &[("name", name.as_str()), ("value", "v")][..],
            "`name` must have 1 to 100 bytes",
        ),
        (
            &[("name", "n"), ("value", &long)],
            "`value` has 4001 bytes, the limit is 4000",
        ),
        (
            &[("name", "n"), ("value", "v"), ("days", "4000")],
            "`days` must be at most 3650",
        ),
        (
            &[("name", "n"), ("value", "v"), ("for", "ben")],
            "`for` must be `me` or `everyone`",
        ),
    ] {
        let said = place.memory("set", arguments).await;
        assert!(said.starts_with(expected), "{said}");
    }
    for n in 0..200 {
        let name = format!("n{n}");
        place
            .memory("set", &[("name", &name), ("value", "v")])
            .await;
    }
    let said = place
        .memory("set", &[("name", "one more"), ("value", "v")])
        .await;
    assert!(said.starts_with("200 names are remembered"), "{said}");
    assert_eq!(
        place.memory("set", &[("name", "n7"), ("value", "w")]).await,
        "`n7` is remembered."
    );
    let of = Memories {
        documents: &*place.documents,
        tenant: "",
        user: "ada",
    };
    assert_eq!(of.all(0).await.unwrap().len(), 200);
    assert!(of.forget_all().await.unwrap() >= 200);
    assert_eq!(of.all(0).await.unwrap(), []);
}
