//! Documents in a real PostgreSQL server: the contract, crashes, lost replies, and servers that will not do.

use crate::crash;
use agentfleet_documents::{Created, Documents, Error, PostgresDocuments};
use agentfleet_servers::Server;
use futures::future::{join_all, try_join_all};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Ends with this process.
static SERVER: LazyLock<Server> = LazyLock::new(|| Server::postgres(""));

/// A schema of the server for one test.
fn address(schema: &str) -> String {
    format!("{}?schema={schema}", SERVER.address())
}

/// The same through something that listens elsewhere.
fn through(port: u16, schema: &str) -> String {
    let (before, _) = SERVER.address().rsplit_once(':').unwrap();
    format!("{before}:{port}/fleet?schema={schema}")
}

async fn connect(address: &str) -> Result<PostgresDocuments, Error> {
    PostgresDocuments::connect(address).await
}

mod contract {
    use super::{Arc, Documents, address, connect};

    async fn documents() -> (Arc<dyn Documents>, ()) {
        // All checks at once: the tables are made by one of them.
        (Arc::new(connect(&address("contract")).await.unwrap()), ())
    }

    documents_contract!(documents());
}

#[tokio::test]
async fn fleets_of_other_schemas_do_not_see_each_other() {
    let one = connect(&address("one")).await.unwrap();
    let other = connect(&address("other")).await.unwrap();
    one.create("k", b"1".to_vec()).await.unwrap();
    assert_eq!(other.get("k").await.unwrap(), None);
    assert_eq!(
        other.create("k", b"2".to_vec()).await.unwrap(),
        Created::New
    );
    assert_eq!(one.list("").await.unwrap(), ["k"]);
}

#[tokio::test]
async fn many_that_start_together_make_one_table() {
    let address = address("together");
    let opened = join_all((0..12).map(|_| connect(&address))).await;
    let all: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    let creates = all.iter().map(|one| one.create("k", b"x".to_vec()));
    let created = try_join_all(creates).await.unwrap();
    let new = created.iter().filter(|created| **created == Created::New);
    assert_eq!(new.count(), 1);
}

#[tokio::test]
async fn lists_and_deletes_go_beyond_one_page() {
    let documents = connect(&address("pages")).await.unwrap();
    let keys: Vec<String> = (0..2_500).map(|number| format!("a/{number:05}")).collect();
    try_join_all(keys.iter().map(|key| documents.create(key, Vec::new())))
        .await
        .unwrap();
    documents.create("b", Vec::new()).await.unwrap();
    assert_eq!(documents.list("a/").await.unwrap(), keys);
    assert_eq!(documents.delete_prefix("a/").await.unwrap(), 2_500);
    assert_eq!(documents.list("").await.unwrap(), ["b"]);
}

#[tokio::test]
async fn what_was_created_outlives_a_crash_and_a_gap_is_ridden_out() {
    let server = Server::postgres("");
    let documents = connect(server.address()).await.unwrap();
    crash::is_outlived(server, documents).await;
}

#[tokio::test]
async fn why_a_server_does_not_answer_is_told_soon() {
    let server = Server::postgres("");
    let documents = connect(server.address()).await.unwrap();
    documents.ready().await.unwrap();
    server.kill();
    // This one may meet the end of its connection.
    drop(documents.ready().await);
    let asked = timeout(Duration::from_secs(4), documents.ready()).await;
    let error = asked.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

/// Many writers of the same keys while the server dies again and again: of each key one is told that it
/// was first, and it is the one whose object is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_leave_one_winner_for_each_key_who_knows_it() {
    let mut server = Server::postgres("");
    let writers = [
        connect(server.address()).await.unwrap(),
        connect(server.address()).await.unwrap(),
    ];
    let done = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = writers
        .iter()
        .cloned()
        .enumerate()
        .map(|(name, documents)| {
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut won = Vec::new();
                for number in 0_u32.. {
                    let key = format!("{number:06}");
                    let body = format!("{name}").into_bytes();
                    won.push(documents.create(&key, body).await.unwrap() == Created::New);
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
                won
            })
        })
        .collect();
    for _ in 0..3 {
        let before = writers[0].list("").await.unwrap().len();
        while writers[0].list("").await.unwrap().len() < before + 50 {
            tokio::task::yield_now().await;
        }
        server.kill();
        server.start();
    }
    done.store(true, Ordering::Relaxed);
    let won: Vec<Vec<bool>> = join_all(tasks)
        .await
        .into_iter()
        .map(|t| t.unwrap())
        .collect();
    for (number, told) in won[0].iter().zip(&won[1]).enumerate() {
        let key = format!("{number:06}");
        let there = writers[0].get(&key).await.unwrap().expect("it was created");
        let winner: usize = std::str::from_utf8(&there).unwrap().parse().unwrap();
        assert_eq!(told, (&(winner == 0), &(winner == 1)), "{key}");
    }
}

/// Passes everything on, until it is told to lose the answers to the next statement it sees.
struct Proxy {
    port: u16,
    /// A text; the connection that carries it to the server is cut once the server has answered.
    cut: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
    /// While it is set nothing reaches the server, and no connection ends.
    hang: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(mark: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, cuts) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let hang = Arc::new(AtomicBool::new(false));
        let server = SERVER.address().rsplit_once('@').unwrap().1;
        let server = server.trim_end_matches("/fleet").to_owned();
        let proxy = Self {
            port,
            cut: Arc::clone(&cut),
            cuts: Arc::clone(&cuts),
            hang: Arc::clone(&hang),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (cut, cuts, hang) = (Arc::clone(&cut), Arc::clone(&cuts), Arc::clone(&hang));
                tokio::spawn(pass(client, server, mark, cut, cuts, hang));
            }
        });
        proxy
    }
}

async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    mark: &'static str,
    cut: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
    hang: Arc<AtomicBool>,
) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut is_marked = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(read @ 1..) = read else { return };
                if hang.load(Ordering::SeqCst) {
                    continue;
                }
                let is_there = up[..read].windows(mark.len()).any(|part| part == mark.as_bytes());
                is_marked |= is_there && cut.swap(false, Ordering::SeqCst);
                server.write_all(&up[..read]).await.unwrap();
            }
            read = server.read(&mut down) => {
                let Ok(read @ 1..) = read else { return };
                if is_marked {
                    // It is done, and nobody learns of it.
                    cuts.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                if client.write_all(&down[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_create_whose_reply_was_lost_knows_its_own_object() {
    let proxy = Proxy::start("INSERT INTO").await;
    let documents = connect(&through(proxy.port, "lost")).await.unwrap();
    let direct = connect(&address("lost")).await.unwrap();
    for round in 0..5 {
        let key = format!("k{round}");
        proxy.cut.store(true, Ordering::SeqCst);
        let created = documents.create(&key, b"same".to_vec()).await.unwrap();
        assert_eq!(created, Created::New, "{key}");
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), round + 1);
        // An equal object of another's is none of its own.
        let other = format!("o{round}");
        direct.create(&other, b"same".to_vec()).await.unwrap();
        proxy.cut.store(true, Ordering::SeqCst);
        let created = documents.create(&other, b"same".to_vec()).await.unwrap();
        assert_eq!(created, Created::Exists, "{other}");
        proxy.cuts.store(round + 1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_commit_whose_reply_was_lost_knows_its_own_record_and_has_its_texts() {
    let proxy = Proxy::start("INSERT INTO").await;
    let documents = connect(&through(proxy.port, "lost_commit")).await.unwrap();
    let direct = connect(&address("lost_commit")).await.unwrap();
    let texts = |of: &str| vec![(format!("{of}/text"), b"t".to_vec())];
    proxy.cut.store(true, Ordering::SeqCst);
    let body = b"mine".to_vec();
    let there = documents.create_with("a", body, &texts("a")).await.unwrap();
    assert_eq!((there, proxy.cuts.load(Ordering::SeqCst)), (None, 1));
    assert_eq!(documents.list("").await.unwrap(), ["a", "a/text"]);
    // Another's is adopted, and nothing is added to it.
    direct.create("b", b"another's".to_vec()).await.unwrap();
    proxy.cut.store(true, Ordering::SeqCst);
    let body = b"mine".to_vec();
    let there = documents.create_with("b", body, &texts("b")).await.unwrap();
    assert_eq!(there.as_deref(), Some(b"another's".as_slice()));
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 2);
    assert_eq!(direct.list("b").await.unwrap(), ["b"]);
}

#[tokio::test]
async fn a_beginning_whose_reply_was_lost_knows_its_own_note() {
    let proxy = Proxy::start("INSERT INTO").await;
    let documents = connect(&through(proxy.port, "lost_begin")).await.unwrap();
    let direct = connect(&address("lost_begin")).await.unwrap();
    let asked = ["bar".to_owned()];
    for (round, (note, expected)) in [("a", Created::New), ("b", Created::Exists)]
        .into_iter()
        .enumerate()
    {
        if expected == Created::Exists {
            // An equal note of another's is none of its own.
            direct.create(note, b"n".to_vec()).await.unwrap();
        }
        let debit = [(format!("{note}-debit"), b"d".to_vec())];
        proxy.cut.store(true, Ordering::SeqCst);
        let begun = documents.begin((note, b"n".to_vec()), &debit, &asked, 1);
        assert_eq!(begun.await.unwrap(), (expected, vec![None]), "{note}");
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), round + 1);
    }
    assert_eq!(direct.list("").await.unwrap(), ["a", "a-debit", "b"]);
}

#[tokio::test]
async fn tables_whose_making_was_not_answered_are_found() {
    let proxy = Proxy::start("CREATE TABLE").await;
    proxy.cut.store(true, Ordering::SeqCst);
    let documents = connect(&through(proxy.port, "unanswered")).await.unwrap();
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 1);
    documents.create("k", Vec::new()).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_named_without_the_password() {
    let wrong = SERVER.address().replace("fleetsecret", "othersecret");
    let refused = connect(&wrong).await.unwrap_err();
    assert!(matches!(&refused, Error::Denied { .. }), "{refused}");
    let nowhere = SERVER.address().trim_end_matches("fleet").to_owned() + "no_such_database";
    let unknown = connect(&nowhere).await.unwrap_err();
    assert!(matches!(&unknown, Error::NoDatabase { .. }), "{unknown}");
    assert!(unknown.to_string().contains("no_such_database"));
    let encrypted = format!("{}?sslmode=require", SERVER.address());
    let untrusted = connect(&encrypted).await.unwrap_err();
    assert!(matches!(&untrusted, Error::Untrusted { .. }), "{untrusted}");
    assert!(untrusted.to_string().contains("sslmode=disable"));
    for error in [refused, unknown, untrusted] {
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.retry().is_some(), "{error}");
    }
    let documents = connect(&address("wrong")).await.unwrap();
    let unstorable = documents.create("a\0b", Vec::new()).await.unwrap_err();
    assert!(
        matches!(&unstorable, Error::Unstorable { .. }),
        "{unstorable}"
    );
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_confirmed_is_refused() {
    let server = Server::postgres("-c full_page_writes=off");
    let lazy = format!("{}&options=-c%20synchronous_commit=off", address("lazy"));
    for (address, setting) in [
        (server.address(), "full_page_writes"),
        (&*lazy, "synchronous_commit"),
    ] {
        let says = connect(address).await.unwrap_err().to_string();
        assert!(says.contains(&format!("`{setting} = off`")), "{says}");
    }
}

#[tokio::test]
async fn a_server_that_can_do_no_commit_is_refused() {
    let alone = Server::postgres("-c synchronous_standby_names=nobody");
    let address = address("barred");
    connect(&address).await.unwrap();
    let (client, connection) = tokio_postgres::connect(SERVER.address(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let revoke = "REVOKE DELETE ON barred.objects FROM fleet";
    client.batch_execute(revoke).await.unwrap();
    let read_only = format!("{address}&options=-c%20default_transaction_read_only=on");
    for (address, says) in [
        (alone.address(), "synchronous_standby_names"),
        (&*address, "its rights (GRANT)"),
        (&*read_only, "takes no writes"),
    ] {
        let error = PostgresDocuments::look(address).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Most of what is done at once finds no connection of its own, and goes over those that are there.
#[tokio::test]
async fn a_server_with_few_connections_left_is_used_over_those() {
    let server = Server::postgres("-c max_connections=5 -c superuser_reserved_connections=3");
    let documents = connect(server.address()).await.unwrap();
    let keys: Vec<String> = (0..200).map(|number| format!("{number}")).collect();
    let creates = keys.iter().map(|key| documents.create(key, Vec::new()));
    let created = try_join_all(creates).await.unwrap();
    assert!(created.iter().all(|created| *created == Created::New));
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let address = address("other");
    connect(&address).await.unwrap();
    let (client, connection) = tokio_postgres::connect(SERVER.address(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let other = "UPDATE other.version SET version = 1";
    client.batch_execute(other).await.unwrap();
    let error = connect(&address).await.unwrap_err();
    assert!(matches!(&error, Error::OtherVersion { .. }), "{error}");
    assert_eq!(error.retry(), None);
}

/// Longest for an operation on a server that does nothing, and more than it is tried.
const BOUND: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_or_hangs_ends_in_an_error_within_a_bound() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = gone.local_addr().unwrap().port();
    drop(gone);
    for (port, says) in [
        (silent.local_addr().unwrap().port(), "did not greet within"),
        (free, "refused"),
    ] {
        let address = format!("postgres://fleet:secret@127.0.0.1:{port}/fleet");
        let error = timeout(BOUND, connect(&address))
            .await
            .unwrap()
            .unwrap_err();
        let is_refused = matches!(&error, Error::Unreachable { .. });
        assert!(is_refused == (port == free), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Its clock runs ahead while nothing else happens.
#[tokio::test]
async fn a_server_that_hangs_in_a_statement_ends_in_an_error_and_is_found_again() {
    let proxy = Proxy::start("nothing").await;
    let documents = connect(&through(proxy.port, "hangs")).await.unwrap();
    proxy.hang.store(true, Ordering::SeqCst);
    tokio::time::pause();
    let creates = (0..100).map(|number| {
        let (documents, key) = (documents.clone(), format!("{number}"));
        async move { documents.create(&key, b"x".to_vec()).await }
    });
    for ended in timeout(BOUND, join_all(creates)).await.unwrap() {
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("did not"), "{error}");
    }
    tokio::time::resume();
    proxy.hang.store(false, Ordering::SeqCst);
    documents.create("k", Vec::new()).await.unwrap();
}

/// A certificate of its own for a server on this machine, and its key.
fn certify(directory: &Path) -> (String, String) {
    let file = |name: &str| directory.join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                     -subj /CN=localhost -addext basicConstraints=critical,CA:FALSE \
                     -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = Command::new("openssl")
        .args(arguments.split_whitespace())
        .args(["-out", &certificate, "-keyout", &key])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (certificate, key)
}

#[tokio::test]
async fn a_server_with_tls_is_used_where_its_authority_is_known_and_its_name_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(directory.path());
    let options = format!("-c ssl=on -c ssl_cert_file={certificate} -c ssl_key_file={key}");
    let server = Server::postgres(&options);
    let at = |host: &str, more: &str| {
        let address = server.address().replace("@127.0.0.1", &format!("@{host}"));
        format!("{address}?sslmode=require{more}")
    };
    let known = format!("&sslrootcert={certificate}");
    for host in ["localhost", "127.0.0.1"] {
        let documents = connect(&at(host, &known)).await.unwrap();
        documents.create(host, b"x".to_vec()).await.unwrap();
    }
    let elsewhere = format!("{known}&hostaddr=127.0.0.1");
    for (host, more) in [("localhost", ""), ("other.example", &*elsewhere)] {
        let error = connect(&at(host, more)).await.unwrap_err();
        assert!(matches!(&error, Error::Untrusted { .. }), "{error}");
        assert!(error.to_string().contains("sslrootcert=FILE"), "{error}");
    }
}
