//! PMIx, through the launcher's client library. A rank publishes its entry as its value of one key. The fence that all
//! ranks complete collects no values: a server fetches an entry from the entry's host at the first request for it.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use samite_control::Place;
use samite_os::pmi::{Client, Fact, PmixError};

use super::Refusal;
use super::key_values::{Candidate, KeyValues, KeyValuesError};

/// The environment's description of a job of a launcher with a PMIx server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PmixJob {
    pub(crate) rank: u32,
}

impl PmixJob {
    /// Connects to the server, and asks for this rank's [`Place`]. The server has the time `patience` for each answer.
    ///
    /// # Errors
    /// [`Refusal::JoinedBefore`], [`Refusal::Pmix`] and [`Refusal::PmixRank`].
    pub(crate) fn join(self, patience: Duration) -> Result<Candidate, Refusal> {
        /// True once this process has joined. A process has only one connection to its server, so a second rank in this
        /// process would share the connection of the first rank.
        static JOINED: AtomicBool = AtomicBool::new(false);
        if JOINED.swap(true, Ordering::Relaxed) {
            return Err(Refusal::JoinedBefore);
        }
        let client = connect(patience).map_err(|error| {
            // After a time-out the connecting thread still waits, and a late answer makes this process a client. A
            // second attempt would share that client, so it is refused. After any other error it is allowed.
            JOINED.store(matches!(error, PmixError::NoAnswer(_)), Ordering::Relaxed);
            Refusal::pmix(error)
        })?;
        let (rank, size) = (client.rank(), client.fact(Fact::JobSize).map_err(Refusal::pmix)?);
        if rank != self.rank || rank >= size {
            return Err(Refusal::PmixRank { variable: self.rank, rank, size });
        }
        // If the number of hosts is unknown, assume the most possible, one for each rank.
        let hosts = client.fact(Fact::Hosts).unwrap_or(size);
        let place = Place {
            host: client.fact(Fact::Host).unwrap_or(0),
            hosts,
            neighbours: client.fact(Fact::LocalSize).unwrap_or(size),
            address: None,
        };
        let values = Box::new(Pmix { client: Some(client), patience });
        Ok(Candidate { rank, size, place, values })
    }
}

/// Connects to the server. A separate thread makes the library's call, because that call has no deadline.
fn connect(patience: Duration) -> Result<Client, PmixError> {
    let (tell, told) = mpsc::channel();
    let thread = thread::Builder::new().name("samite-pmix".to_owned()).spawn(move || {
        let _ = tell.send(Client::connect());
    });
    thread.map_err(|error| PmixError::Library(format!("no thread for it: {error}")))?;
    told.recv_timeout(patience).unwrap_or(Err(PmixError::NoAnswer("PMIx_Init")))
}

struct Pmix {
    /// `None` when this rank has left.
    client: Option<Client>,
    patience: Duration,
}

impl Pmix {
    fn client(&self) -> Result<&Client, KeyValuesError> {
        Ok(self.client.as_ref().ok_or("this rank has left")?)
    }
}

impl KeyValues for Pmix {
    fn launcher(&self) -> &'static str {
        "PMIx"
    }

    fn exchange(&mut self, entry: &str) -> Result<(), KeyValuesError> {
        Ok(self.client()?.publish(KEY, entry.as_bytes(), self.patience)?)
    }

    fn entry(&mut self, rank: u32) -> Result<String, KeyValuesError> {
        match self.client()?.fetch(rank, KEY, self.patience) {
            Ok(entry) => Ok(String::from_utf8(entry)?),
            Err(PmixError::NotFound(_)) => Err(format!(
                "rank {rank} has published nothing: is every process of the job a program of this release of samite?"
            )
            .into()),
            Err(error) => Err(error.into()),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn leave(&mut self) {
        if let Some(client) = self.client.take() {
            client.leave();
        }
    }
}

/// The key of a rank's entry; the number is the version of the entries' format.
const KEY: &CStr = c"samite-1";
