//! The bakery: figures are computed, changes last, and each tenant has its own.

use crate::place::{Running, tools_are_endpoints};
use agentfleet_examples::{BUSINESS, Service, reset};
use serde_json::{Value, json};

async fn start() -> Running {
    Running::start(BUSINESS).await
}

#[tokio::test]
async fn its_28_tools_are_endpoints_with_the_same_arguments() {
    assert_eq!(tools_are_endpoints(BUSINESS).await, 28);
}

#[tokio::test]
async fn the_drop_of_this_week_is_found_with_its_causes() {
    let bakery = start().await;
    let trends = bakery.get("/analytics/traffic").await;
    let change = &trends["changes"][0];
    assert_eq!(change["is"], "drop", "{trends}");
    assert_eq!(change["to"], trends["to"], "{trends}");
    assert!(
        change["change_percent"].as_f64().unwrap() < -20.0,
        "{trends}"
    );
    let causes = &trends["newest_change"];
    let strongest = &causes["by_post"][0];
    assert_eq!(strongest["name"], "Sourdough starter in seven days");
    assert!(
        strongest["difference"].as_f64().unwrap() < 0.0,
        "{strongest}"
    );
    assert_eq!(causes["by_source"][0]["name"], "search");
    assert_eq!(causes["posts_published_in_it"], 0);
    assert!(
        causes["posts_published_in_the_four_weeks_before"]
            .as_i64()
            .unwrap()
            >= 2
    );
    // The weeks add up to the days that they are made of.
    let daily = bakery.get("/analytics/traffic?granularity=daily").await;
    let sum = |rows: &Value, skip: usize| -> i64 {
        let rows = rows.as_array().unwrap().iter().rev().skip(skip);
        rows.take(7).map(|row| row["views"].as_i64().unwrap()).sum()
    };
    assert_eq!(sum(&daily["series"], 0), change["views"].as_i64().unwrap());
    let overview = bakery.get("/analytics/blog").await;
    assert_eq!(overview["all"]["views"], change["views"]);
    let before = sum(&daily["series"], 7);
    assert_eq!(overview["all"]["views_before"].as_i64().unwrap(), before);
    // The post itself: its search traffic fell, and the rest did not fall as much.
    let post = bakery
        .get("/analytics/posts/post-1?from=2000-01-01&to=2000-01-02")
        .await;
    assert_eq!(post["daily"], json!([]));
    let from = change["from"].as_str().unwrap();
    let post = bakery
        .get(&format!("/analytics/posts/post-1?from={from}"))
        .await;
    assert_eq!(post["daily"].as_array().unwrap().len(), 7);
    let source = |name: &str| {
        let sources = post["by_source"].as_array().unwrap();
        sources.iter().find(|one| one["source"] == name).unwrap()["change_percent"]
            .as_f64()
            .unwrap()
    };
    assert!(
        source("search") < -60.0 && source("direct") > -15.0,
        "{post}"
    );
}

#[tokio::test]
async fn kinds_of_content_and_all_services_are_compared() {
    let bakery = start().await;
    let compared = bakery.get("/analytics/comparison").await;
    let groups = compared["groups"].as_array().unwrap();
    assert_eq!(groups[0]["name"], "recipe", "{compared}");
    assert_eq!(groups.last().unwrap()["times_the_weakest"], 1.0);
    let recipes = &groups[0];
    let per_post = recipes["views"].as_f64().unwrap() / recipes["posts"].as_f64().unwrap();
    assert!((recipes["views_per_post"].as_f64().unwrap() - per_post).abs() < 1.0);
    let chat = bakery.get("/analytics/chat").await;
    let topics = chat["by_topic"].as_array().unwrap();
    let all: i64 = topics
        .iter()
        .map(|topic| topic["conversations"].as_i64().unwrap())
        .sum();
    assert_eq!(chat["all"]["conversations"].as_i64().unwrap(), all);
    let delivery = topics
        .iter()
        .find(|topic| topic["name"] == "delivery")
        .unwrap();
    assert_eq!(delivery["resolved_percent"], 0.0, "{chat}");
    let everything = bakery.get("/analytics/all").await;
    assert_eq!(everything["chat"], chat["all"]);
    for (service, figure) in [
        ("blog", "views"),
        ("content", "impressions"),
        ("leads", "leads"),
    ] {
        assert!(
            everything[service][figure].as_i64().unwrap() > 0,
            "{everything}"
        );
    }
    let engagement = bakery.get("/content/engagement?platform=instagram").await;
    assert_eq!(engagement["by_platform"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn posts_are_written_scheduled_changed_and_deleted_for_good() {
    let bakery = start().await;
    let draft =
        json!({"title": "Brioche", "category": "recipes", "kind": "recipe", "tags": ["sweet"]});
    let made = bakery.well("POST", "/blog/posts", draft).await;
    assert_eq!(
        (&made["status"], &made["id"]),
        (&json!("draft"), &json!("post-17"))
    );
    let path = "/blog/posts/post-17";
    bakery
        .well("PATCH", path, json!({"content": "Butter."}))
        .await;
    let at = json!({"publish_at": "2199-05-01T08:00"});
    bakery
        .well("POST", "/blog/posts/post-17/schedule", at)
        .await;
    let post = bakery.get(path).await;
    for (field, value) in [
        ("title", "Brioche"),
        ("content", "Butter."),
        ("status", "scheduled"),
        ("publish_at", "2199-05-01T08:00"),
    ] {
        assert_eq!(post[field], value, "{post}");
    }
    assert_eq!(post["tags"], json!(["sweet"]));
    let listed = bakery
        .get("/blog/posts?status=scheduled&category=recipes")
        .await;
    assert_eq!(
        (&listed["total"], &listed["posts"][0]["id"]),
        (&json!(2), &json!("post-17"))
    );
    let page = bakery.get("/blog/posts?limit=3&offset=2").await;
    assert_eq!(
        (page["posts"].as_array().unwrap().len(), &page["total"]),
        (3, &json!(17))
    );
    let many =
        json!({"post_ids": ["post-14", "post-15"], "category": "winter", "status": "published"});
    let changed = bakery.well("POST", "/blog/bulk", many).await;
    assert_eq!(changed["changed"].as_array().unwrap().len(), 2);
    assert_eq!(
        bakery.get("/blog/posts/post-15").await["status"],
        "published"
    );
    // All or none: the second is not there, so the first stays as it is.
    let many = json!({"post_ids": ["post-1", "post-99"], "category": "lost"});
    bakery
        .refuses(
            ("POST", "/blog/bulk"),
            many,
            404,
            "there is no post `post-99`",
        )
        .await;
    assert_eq!(
        bakery.get("/blog/posts/post-1").await["category"],
        "recipes"
    );
    let many = json!({"post_ids": ["post-1", "post-17"], "status": "scheduled"});
    bakery
        .refuses(
            ("POST", "/blog/bulk"),
            many,
            409,
            "`post-1` has no moment in the future",
        )
        .await;
    let gone = bakery
        .well("DELETE", "/blog/posts/post-1", Value::Null)
        .await;
    assert_eq!(gone["title"], "Sourdough starter in seven days");
    bakery
        .refuses(
            ("GET", "/blog/posts/post-1"),
            Value::Null,
            404,
            "there is no post `post-1`",
        )
        .await;
    let figures = bakery.get("/blog/analytics?limit=50").await;
    assert!(!figures.to_string().contains("Sourdough"), "{figures}");
    // A restart keeps all of it, a reset puts all of it back.
    let folder = bakery.stopped().await;
    let file = folder.path().join("data.sqlite");
    drop(Service::open(BUSINESS, &file).unwrap());
    reset(BUSINESS, &file).unwrap();
}

#[tokio::test]
async fn social_posts_go_to_connected_platforms_within_their_length() {
    let bakery = start().await;
    let post = json!({"platform": "X", "text": "Open on Sunday", "publish_at": "2199-05-01T08:00", "post_id": "post-2"});
    let made = bakery.well("POST", "/content/schedule", post).await;
    let id = made["id"].as_str().unwrap();
    let path = format!("/content/schedule/{id}");
    let long = json!({"text": "x".repeat(281)});
    bakery
        .refuses(
            ("PATCH", &path),
            long,
            400,
            "`text` has 281 characters, and x takes 280",
        )
        .await;
    bakery
        .well("PATCH", &path, json!({"text": "Open on Sunday from 7"}))
        .await;
    let listed = bakery.get("/content/schedule?platform=x").await;
    assert!(listed.to_string().contains("from 7"), "{listed}");
    assert_eq!(
        bakery.well("DELETE", &path, Value::Null).await["status"],
        "cancelled"
    );
    bakery
        .refuses(("DELETE", &path), Value::Null, 409, "is cancelled already")
        .await;
    let post = json!({"platform": "linkedin", "text": "Hello", "publish_at": "2199-05-01"});
    let says = "`platform` must be one that is connected (facebook, instagram, x)";
    bakery
        .refuses(("POST", "/content/schedule"), post, 400, says)
        .await;
    let platforms = bakery.get("/content/platforms").await;
    assert_eq!(platforms["platforms"][0]["is_connected"], true);
}

#[tokio::test]
async fn the_chatbot_is_set_up_and_its_customers_stay_private() {
    let bakery = start().await;
    let changed = bakery
        .well("PATCH", "/chat/config", json!({"temperature": 0.9}))
        .await;
    assert_eq!(
        (
            &changed["before"]["temperature"],
            &changed["now"]["temperature"]
        ),
        (&json!(0.4), &json!(0.9))
    );
    let added = json!({"kind": "qa", "title": "Parking", "question": "Is there parking?", "answer": "Yes."});
    let added = bakery.well("POST", "/chat/knowledge", added).await;
    assert_eq!(added["id"], "knowledge-5");
    let known = bakery.get("/chat/knowledge?kind=qa").await;
    assert_eq!(known["documents"].as_array().unwrap().len(), 3);
    bakery
        .well("DELETE", "/chat/knowledge/knowledge-5", Value::Null)
        .await;
    bakery
        .refuses(
            ("DELETE", "/chat/knowledge/knowledge-5"),
            Value::Null,
            404,
            "no knowledge `knowledge-5`",
        )
        .await;
    let talks = bakery
        .get("/chat/conversations?resolved=false&limit=50")
        .await;
    assert!(!talks.to_string().contains("Nová"), "{talks}");
    let talks = talks["conversations"].as_array().unwrap();
    assert!(!talks.is_empty() && talks.iter().all(|one| one["is_resolved"] == false));
    assert_eq!(
        bakery.get("/chat/unanswered").await["questions"][0]["asked"],
        14
    );
    assert_eq!(
        bakery.get("/chat/leads?status=new").await["leads"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_named() {
    let bakery = start().await;
    for (method, path, body, status, says) in [
        (
            "GET",
            "/blog/posts?status=gone",
            Value::Null,
            400,
            "`status` must be one of draft, published",
        ),
        (
            "GET",
            "/blog/posts?limit=51",
            Value::Null,
            400,
            "`limit` must be a number from 1 to 50",
        ),
        (
            "GET",
            "/blog/posts?colour=red",
            Value::Null,
            400,
            "`colour` is not known here (known: status",
        ),
        (
            "GET",
            "/blog/posts?from=someday",
            Value::Null,
            400,
            "`from` must be a day such as",
        ),
        (
            "GET",
            "/analytics/blog?from=2001-01-01",
            Value::Null,
            400,
            "`from` must be 1 to 366 days before",
        ),
        (
            "GET",
            "/blog/analytics?post_id=post-99",
            Value::Null,
            404,
            "there is no post `post-99`",
        ),
        (
            "POST",
            "/blog/posts",
            json!({"content": "x"}),
            400,
            "`title` is needed",
        ),
        (
            "POST",
            "/blog/posts",
            json!({"title": ["x"]}),
            400,
            "`title` must be a text",
        ),
        (
            "POST",
            "/blog/posts",
            json!({"title": "x", "tags": "x"}),
            400,
            "`tags` must be a list",
        ),
        (
            "POST",
            "/blog/posts",
            json!([]),
            400,
            "must be a JSON object",
        ),
        (
            "PATCH",
            "/blog/posts/post-1",
            json!({}),
            400,
            "nothing would change",
        ),
        (
            "POST",
            "/blog/posts/post-1/schedule",
            json!({"publish_at": "2199-01-01"}),
            409,
            "is published already",
        ),
        (
            "POST",
            "/blog/posts/post-14/schedule",
            json!({"publish_at": "2001-01-01"}),
            400,
            "must be in the future",
        ),
        (
            "PATCH",
            "/chat/config",
            json!({"temperature": 2}),
            400,
            "from 0 to 1",
        ),
        (
            "POST",
            "/chat/knowledge",
            json!({"kind": "url", "title": "x"}),
            400,
            "`url` is needed",
        ),
        (
            "GET",
            "/nowhere",
            Value::Null,
            404,
            "there is no such endpoint",
        ),
    ] {
        bakery.refuses((method, path), body, status, says).await;
    }
    let (status, _) = bakery
        .call("GET", "/", &Value::Null, &[("host", "evil.example")])
        .await;
    assert_eq!(status, 200);
    let (status, _) = bakery
        .call(
            "GET",
            "/blog/posts",
            &Value::Null,
            &[("host", "evil.example")],
        )
        .await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_tenants_never_meet() {
    let bakery = start().await;
    let post = json!({"title": "Once"});
    let headers = [("idempotency-key", "k-1")];
    let first = bakery.call("POST", "/blog/posts", &post, &headers).await;
    let again = bakery.call("POST", "/blog/posts", &post, &headers).await;
    assert_eq!(first, again);
    assert_eq!(bakery.get("/blog/posts").await["total"], 17);
    let other = bakery
        .call("POST", "/blog/posts", &json!({"title": "Twice"}), &headers)
        .await;
    assert_eq!(other.0, 422, "{other:?}");
    // A refusal is not kept: what was wrong may be put right.
    let headers = [("idempotency-key", "k-2")];
    assert_eq!(
        bakery
            .call("POST", "/blog/posts", &json!({}), &headers)
            .await
            .0,
        400
    );
    assert_eq!(
        bakery.call("POST", "/blog/posts", &post, &headers).await.0,
        200
    );
    // Another tenant has a bakery of its own, and cannot reach the first one's posts by their ids.
    let acme = [("x-tenant", "acme"), ("idempotency-key", "k-1")];
    let (_, listed) = bakery.call("GET", "/blog/posts", &Value::Null, &acme).await;
    assert_eq!(listed["total"], 16);
    let (status, _) = bakery
        .call("DELETE", "/blog/posts/post-1", &Value::Null, &acme)
        .await;
    assert_eq!(status, 404);
    let own = listed["posts"][0]["id"].as_str().unwrap().to_owned();
    let (status, _) = bakery
        .call("DELETE", &format!("/blog/posts/{own}"), &Value::Null, &acme)
        .await;
    assert_eq!(status, 200);
    assert_eq!(bakery.get("/blog/posts").await["total"], 18);
    // A reset while it runs counts at once, for all of them.
    reset(BUSINESS, &bakery.file()).unwrap();
    assert_eq!(bakery.get("/blog/posts").await["total"], 16);
    assert_eq!(
        bakery.get("/blog/posts/post-1").await["status"],
        "published"
    );
}
