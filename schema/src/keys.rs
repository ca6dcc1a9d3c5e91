//! Keys of the records in the documents store, in one place: the protocol is written in terms of
//! them.
//!
//! No key lies below another, as `a/b` lies below `a`: stores that keep objects as files cannot have
//! both.

use crate::Millis;
use crate::id::{ApprovalId, ConversationId, Digest, SessionId};
use crate::names;

/// Every session lies below.
pub const SESSIONS: &str = "sessions/";

/// Everything that the steps of a session left behind lies below.
pub fn session(session: &SessionId) -> String {
    format!("{SESSIONS}{session}/")
}

/// The session that a key, or a prefix of keys, lies below.
pub fn session_of(key: &str) -> Option<SessionId> {
    let (session, _) = key.strip_prefix(SESSIONS)?.split_once('/')?;
    Some(SessionId::from(session))
}

/// The marks of archived sessions lie below.
pub const ARCHIVED: &str = "archived/";

/// Present once a session was archived: it says where what it left behind lies.
pub fn archived(session: &SessionId) -> String {
    format!("{ARCHIVED}{session}")
}

/// What a caller asked for, as a door took it in: one request for each session.
pub fn accepted(session: &SessionId) -> String {
    format!("sessions/{session}/accepted")
}

/// Written after the request was published.
pub fn accepted_published(session: &SessionId) -> String {
    format!("sessions/{session}/accepted-published")
}

/// The exchanges of a conversation of a tenant lie below, the newest first.
pub fn exchanges(tenant: &str, conversation: &ConversationId) -> String {
    let name = if tenant.is_empty() {
        Digest::of(conversation.as_str().as_bytes())
    } else {
        Digest::of(format!("{tenant}\0{conversation}").as_bytes())
    };
    format!("conversations/{:.32}/", name.as_str())
}

/// What a conversation was asked at an instant, to be worked by a session.
pub fn exchange(
    tenant: &str,
    conversation: &ConversationId,
    asked_at: Millis,
    session: &SessionId,
) -> String {
    let before_the_end = LAST_INSTANT - asked_at.clamp(0, LAST_INSTANT);
    let folder = exchanges(tenant, conversation);
    format!("{folder}{before_the_end:015}-{session}")
}

/// By which the processes of a fleet know that they sign with the same secret; it does not tell the secret.
pub const FLEET_SECRET: &str = "fleet/secret";

/// Present where workers require claims.
pub const FLEET_CLAIMS: &str = "fleet/claims";

/// What tenants used lies below.
pub const USAGE: &str = "usage/";

/// What a tenant used in a month lies below, the oldest first. A name that doors would not take is hashed.
pub fn used(tenant: &str, month: &str) -> String {
    if names::is_tenant(tenant) {
        return format!("{USAGE}{tenant}/{month}/");
    }
    let tenant = Digest::of(tenant.as_bytes());
    format!("{USAGE}~{:.32}/{month}/", tenant.as_str())
}

/// Tenant and month of such a key.
pub fn used_of(key: &str) -> Option<(&str, &str)> {
    let mut parts = key.strip_prefix(USAGE)?.split('/');
    Some((parts.next()?, parts.next()?))
}

/// What a step used that was committed at an instant. It names no session: what is counted stays when a run is
/// erased.
pub fn used_at(tenant: &str, month: &str, at: Millis, session: &SessionId, step: u32) -> String {
    let id = Digest::of(format!("{session}/{step}").as_bytes());
    let folder = used(tenant, month);
    format!(
        "{folder}{:015}-{:.16}",
        at.clamp(0, LAST_INSTANT),
        id.as_str()
    )
}

/// What somebody of a tenant had remembered lies below. `user` is empty for what all of the tenant share.
pub fn memories(tenant: &str, user: &str) -> String {
    let part = |name: &str| format!("{:.32}", Digest::of(name.as_bytes()).as_str());
    format!("memories/{}/{}/", part(tenant), part(user))
}

/// What was remembered under a name lies below, the newest first.
pub fn memory(tenant: &str, user: &str, name: &str) -> String {
    let name = Digest::of(name.as_bytes());
    format!("{}{:.32}/", memories(tenant, user), name.as_str())
}

/// What was remembered under a name at an instant; `id` tells writers of one instant apart.
pub fn memory_at(tenant: &str, user: &str, name: &str, at: Millis, id: &str) -> String {
    let before_the_end = LAST_INSTANT - at.clamp(0, LAST_INSTANT);
    let folder = memory(tenant, user, name);
    format!(
        "{folder}{before_the_end:015}-{:.32}",
        Digest::of(id.as_bytes()).as_str()
    )
}

/// The API keys lie below.
pub const API_KEYS: &str = "api-keys/";

/// An API key, by its id, which is no secret.
pub fn api_key(id: &str) -> String {
    format!("{API_KEYS}{id}")
}

/// Present once an API key was revoked: a record is never changed, so this one stands beside it.
pub fn api_key_revoked(id: &str) -> String {
    format!("{API_KEYS}{id}/revoked")
}

/// What was refused, changed or answered, and by whom, lies below; the oldest first.
pub const AUDIT: &str = "audit/";

/// An entry of the audit log; `id` tells entries of one instant apart.
pub fn audit_entry(at: Millis, id: &str) -> String {
    format!("{AUDIT}{:015}-{id}", at.clamp(0, LAST_INSTANT))
}

/// Instant and id of a key made by [`audit_entry`].
pub fn audit_entry_of(key: &str) -> Option<(Millis, &str)> {
    let (at, id) = key.strip_prefix(AUDIT)?.split_once('-')?;
    Some((at.parse().ok()?, id))
}

/// Present once a run of a conversation ended with an answer.
pub fn answered(session: &SessionId) -> String {
    format!("sessions/{session}/answered")
}

/// No instant of a key is after it, which is as wide as all.
const LAST_INSTANT: Millis = 999_999_999_999_999;

/// Instant and session of a key made by [`exchange`].
pub fn exchange_of(key: &str) -> Option<(Millis, SessionId)> {
    let (_, name) = key.strip_prefix("conversations/")?.split_once('/')?;
    let (before_the_end, session) = name.split_once('-')?;
    let before_the_end: Millis = before_the_end.parse().ok()?;
    Some((LAST_INSTANT - before_the_end, SessionId::from(session)))
}

/// Every step of a session lies below.
pub fn steps(session: &SessionId) -> String {
    format!("sessions/{session}/steps/")
}

/// `sessions/{session}/steps/{n}/`: everything one step left behind.
pub fn step(session: &SessionId, step: u32) -> String {
    format!("{}{step}/", steps(session))
}

/// The commit point of a step.
pub fn outcome(session: &SessionId, step_number: u32) -> String {
    format!("{}outcome", step(session, step_number))
}

/// Session and number of the step that a key made by [`outcome`] is of.
pub fn step_of(key: &str) -> Option<(SessionId, u32)> {
    let rest = key.strip_prefix("sessions/")?.strip_suffix("/outcome")?;
    let (session, step) = rest.rsplit_once("/steps/")?;
    Some((SessionId::from(session), step.parse().ok()?))
}

/// Number of the step that a key below [`steps`] belongs to.
pub fn step_number(key: &str) -> Option<u32> {
    let (_, rest) = key.split_once("/steps/")?;
    rest.split_once('/')?.0.parse().ok()
}

/// Written after everything of the step was published.
pub fn published(session: &SessionId, step_number: u32) -> String {
    format!("{}published", step(session, step_number))
}

/// One try at a step, before its work begins.
pub fn attempt(session: &SessionId, step_number: u32, attempt: u32) -> String {
    format!("{}attempts/{attempt}", step(session, step_number))
}

/// Every side-effecting call of a step lies below.
pub fn calls(session: &SessionId, step_number: u32) -> String {
    format!("{}calls/", step(session, step_number))
}

/// What attempts at a step debited lies below.
pub fn debits(session: &SessionId, step_number: u32) -> String {
    format!("{}debits/", step(session, step_number))
}

/// The debit at a place of the step's account, from 1.
pub fn debit(session: &SessionId, step_number: u32, place: u32) -> String {
    format!("{}{place}", debits(session, step_number))
}

/// The place of a key made by [`debit`].
pub fn debit_place(key: &str) -> Option<u32> {
    key.rsplit_once("/debits/")?.1.parse().ok()
}

/// Written when an attempt gave up by itself, so that the next need not wait for its lease.
pub fn attempt_over(session: &SessionId, step_number: u32, number: u32) -> String {
    format!("{}-over", attempt(session, step_number, number))
}

/// Written instead when a part of the fleet was away: such an attempt does not count.
pub fn attempt_put_off(session: &SessionId, step_number: u32, number: u32) -> String {
    format!("{}-off", attempt(session, step_number, number))
}

/// Written while an attempt is at work for longer than it said before, the first with `times` 1.
pub fn attempt_kept(session: &SessionId, step_number: u32, number: u32, times: u32) -> String {
    format!("{}-kept-{times}", attempt(session, step_number, number))
}

/// What a key says of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptNote {
    /// [`attempt`]
    Begun,
    /// [`attempt_over`]
    Over,
    /// [`attempt_put_off`]
    PutOff,
    /// [`attempt_kept`], with how often.
    Kept(u32),
}

/// Number of the attempt that a key tells of, and what it says.
pub fn attempt_note(key: &str) -> Option<(u32, AttemptNote)> {
    let (_, name) = key.rsplit_once("/attempts/")?;
    let (number, note) = name.split_once('-').unwrap_or((name, ""));
    let note = match note {
        "" => AttemptNote::Begun,
        "over" => AttemptNote::Over,
        "off" => AttemptNote::PutOff,
        note => AttemptNote::Kept(note.strip_prefix("kept-")?.parse().ok()?),
    };
    Some((number.parse().ok()?, note))
}

/// What a side-effecting call is about to do.
pub fn intent(session: &SessionId, step_number: u32, call: u32) -> String {
    format!("{}{call}/intent", calls(session, step_number))
}

/// What a side-effecting call came to.
pub fn result(session: &SessionId, step_number: u32, call: u32) -> String {
    format!("{}{call}/result", calls(session, step_number))
}

/// Which of the two records of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    /// [`intent`]
    Intent,
    /// [`result`]
    Result,
}

/// Number and part of the call that a key made by [`intent`] or [`result`] is of.
pub fn call_part(key: &str) -> Option<(u32, CallPart)> {
    let (number, part) = key.rsplit_once("/calls/")?.1.split_once('/')?;
    let part = match part {
        "intent" => CallPart::Intent,
        "result" => CallPart::Result,
        _ => return None,
    };
    Some((number.parse().ok()?, part))
}

/// The fan-out committed at a step, as the aggregator reads it.
pub fn fan_out(session: &SessionId, step_number: u32) -> String {
    format!("{}fanout", step(session, step_number))
}

/// The verdict on the fan-out committed at a step.
pub fn fan_in(session: &SessionId, step_number: u32) -> String {
    format!("{}fanin", step(session, step_number))
}

/// Written after the verdict's synthesis request was published.
pub fn fan_in_published(session: &SessionId, step_number: u32) -> String {
    format!("{}fanin-published", step(session, step_number))
}

/// The wait for a person committed at a step, with what goes on after the answer.
pub fn pause(session: &SessionId, step_number: u32) -> String {
    format!("{}pause", step(session, step_number))
}

/// Every wait for a person that may still be open lies below.
pub const APPROVALS: &str = "approvals/";

/// The open waits of a tree lie below.
pub fn approvals_of(root: &SessionId) -> String {
    format!("{APPROVALS}{root}/")
}

/// Says where a wait for a person lies. Deleted once it was answered or ended, so that a list of them
/// is as long as there are open ones.
pub fn approval(root: &SessionId, id: &ApprovalId) -> String {
    format!("{}{id}", approvals_of(root))
}

/// The approval that a key made by [`approval`] is about.
pub fn approval_id(key: &str) -> Option<ApprovalId> {
    let (_, id) = key.strip_prefix(APPROVALS)?.rsplit_once('/')?;
    Some(ApprovalId::from(id))
}

/// Present once the tree of `root` may start nothing new.
pub fn closed(root: &SessionId) -> String {
    format!("trees/{root}/closed")
}

/// Where it is remembered that nobody knows what became of such a call in a tree.
pub fn unknown_call(
    root: &SessionId,
    tool: &str,
    arguments: &std::collections::BTreeMap<String, String>,
) -> String {
    // Names and texts: writing them as JSON cannot fail.
    let call = serde_json::to_vec(&(tool, arguments)).unwrap_or_default();
    format!("trees/{root}/unknown/{}", Digest::of(&call))
}

/// Present once a session was erased. By that of a root late messages of its tree are dropped; those of
/// its subagents let people be told.
pub fn tombstone(session: &SessionId) -> String {
    format!("trees/{session}/tombstone")
}

/// Every version of the config lies below, where it is kept among the documents.
pub const CONFIG: &str = "config/";

/// The config at a version. The number has a fixed width, so that keys sort as versions do.
pub fn config(version: u64) -> String {
    format!("{CONFIG}{version:012}")
}

/// The version of a key made by [`config`].
pub fn config_version(key: &str) -> Option<u64> {
    key.strip_prefix(CONFIG)?.parse().ok()
}

/// A text in the librarian, by its URI.
pub fn document(uri: &str) -> String {
    format!("documents/{uri}")
}

/// A message that people must look at.
pub fn parked(id: &str) -> String {
    format!("parked/{id}")
}

/// An entry of the log of what was loaded, from 1 without gaps: what the shared library is.
pub fn library_log(position: u64) -> String {
    format!("library/log/{position:012}")
}

/// Every loaded version of a document lies below, where documents are shared.
pub const LIBRARY_VERSIONS: &str = "library/versions/";

/// What was loaded into a collection since it was last cleared, at the entry `epoch` of the log.
pub fn library_epoch(collection: &str, epoch: u64) -> String {
    let name = library_folder(collection);
    format!("{LIBRARY_VERSIONS}{name}/{epoch:012}/")
}

/// A folder name for a collection, which may be called anything.
pub fn library_folder(collection: &str) -> String {
    Digest::of(collection.as_bytes()).as_str()[..32].to_owned()
}

/// The parts of a loaded version of a document lie below.
pub fn library_version(collection: &str, epoch: u64, version: &str) -> String {
    format!("{}{version}/", library_epoch(collection, epoch))
}

/// A part of a loaded version, from 0. The last one says what the document is.
pub fn library_part(collection: &str, epoch: u64, version: &str, part: u32) -> String {
    format!("{}{part:06}", library_version(collection, epoch, version))
}

/// Written before the first statement of a version goes to the graph.
pub fn library_begun(collection: &str, epoch: u64, version: &str) -> String {
    format!("{}begun", library_version(collection, epoch, version))
}
