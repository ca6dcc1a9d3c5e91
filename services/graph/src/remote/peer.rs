//! Speaking to a server of our own: batches as they are, because it keeps a log of them itself.

use super::Remote;
use super::fault::RemoteFault;
use super::http::Body;
use super::options::shown;
use crate::error::Error;
use crate::serve::{OWN, Reply, Request};
use crate::{Batch, EraseBy, Erased};

impl Remote {
    pub(super) async fn insert_at_peer(&self, batches: Vec<Batch>) -> Result<(), Error> {
        batches.iter().try_for_each(crate::validate)?;
        if batches.is_empty() {
            return Ok(());
        }
        match self.order(&Request::Insert(batches)).await? {
            Reply::Inserted { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(super) async fn erase_at_peer(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        match self.order(&Request::Erase(by)).await? {
            Reply::Erased(erased) => Ok(erased),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(super) async fn batches_of_peer(&self) -> Result<u64, Error> {
        match self.order(&Request::Count).await? {
            Reply::Counted { batches } => Ok(batches),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn order(&self, request: &Request) -> Result<Reply, Error> {
        let body = serde_json::to_vec(request).map_err(Error::engine)?;
        let reply = self
            .http
            .post(&self.update_url, Body::plain(OWN, body))
            .await?;
        Ok(serde_json::from_slice(&reply).map_err(|error| self.failed(error.to_string()))?)
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        self.failed(format!("it answered another request: {reply:?}"))
            .into()
    }

    fn failed(&self, reason: String) -> RemoteFault {
        RemoteFault::Failed {
            url: shown(&self.update_url),
            status: 200,
            reason,
        }
    }
}
