//! The PMI protocol, over the descriptor from the launcher: PMI-1 as in Hydra, Intel's and Flux's launchers,
//! PMI-2 as in Slurm.
//!
//! Over PMI-1.1 a rank sends its commands in an order that all of these launchers accept: `init`, `get_maxes`,
//! `get_my_kvsname`, one `put`, one `barrier_in`, then a `get` before the first message to each rank, and `finalize`. A
//! launcher ends the job if a command names another key-value space than the job's. So this code asks for the name of
//! that space, and repeats it unchanged.

mod mapping;
mod wire;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use samite_os::spawn::take_inherited_fd;

pub(super) use self::wire::Wire;
use samite_control::Place;

use self::wire::Words;
use super::Refusal;
use super::key_values::{Candidate, KeyValues, KeyValuesError};

/// The environment's description of a job of a PMI launcher.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PmiJob {
    pub(crate) fd: u32,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The protocol version for this launcher.
    pub(crate) wire: Wire,
}

impl PmiJob {
    /// Greets the launcher, and asks for this rank's [`Place`]. The launcher has the time `patience` for each answer.
    ///
    /// # Errors
    /// [`Refusal::NoPmi`] and [`Refusal::Pmi`].
    pub(crate) fn join(self, patience: Duration) -> Result<Candidate, Refusal> {
        let no_pmi = Refusal::NoPmi { fd: self.fd };
        // A process can join as a rank only once: afterwards neither this process nor a child of it can join.
        let taken = i32::try_from(self.fd).ok().and_then(|fd| take_inherited_fd(fd).ok()).ok_or(no_pmi)?;
        self.join_over(taken.into(), patience).map_err(Refusal::pmi)
    }

    fn join_over(self, stream: UnixStream, patience: Duration) -> Result<Candidate, PmiError> {
        let PmiJob { rank, size, wire, .. } = self;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut pmi = Pmi {
            stream,
            inbound: Vec::new(),
            unanswered: None,
            wire,
            space: String::new(),
            value_max: VALUE_MAX_OF_PMI_2,
            rank,
        };
        let mapping = match wire {
            Wire::One => pmi.begin_1()?,
            Wire::Two => pmi.begin_2(rank, size)?,
        };
        let place = mapping.and_then(|mapping| mapping::place(&mapping, rank, size));
        // If the mapping is unknown, assume the most hosts possible, one for each rank.
        let place = place.unwrap_or(Place { host: 0, hosts: size, neighbours: size, address: None });
        Ok(Candidate { rank, size, place, values: Box::new(pmi) })
    }
}

/// The reason why communication with the launcher failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PmiError {
    /// The launcher has closed the connection.
    #[error("the launcher closed the connection; has another process of this rank joined before?")]
    Closed,
    /// There was no answer in time.
    #[error("no answer to `{0}` in time; has every process of the job come as far as `samite::init`?")]
    NoAnswer(&'static str),
    /// The launcher's answer is not PMI.
    #[error("the launcher sent `{0}`, which is not PMI")]
    Malformed(String),
    /// The launcher answered another question.
    #[error("the launcher answered `{got}` to `{command}`")]
    Unexpected {
        /// The command.
        command: &'static str,
        /// The answer.
        got: String,
    },
    /// The launcher refused the command.
    #[error("the launcher refused `{command}`: {why}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The launcher's text or code.
        why: String,
    },
    /// Environment and launcher do not agree.
    #[error(
        "the environment says rank {rank} of {size}, the launcher says otherwise: leave its variables as it sets them"
    )]
    Mismatch {
        /// The value of `PMI_RANK`.
        rank: u32,
        /// The value of `PMI_SIZE`.
        size: u32,
    },
    /// The rank has not published an entry.
    #[error(
        "rank {0} has published nothing: is every process of the job a program of this release of samite?"
    )]
    NoSuchEntry(u32),
    /// The address is too long.
    #[error(
        "{length} bytes are to be published, but the launcher's limit is {limit}: choose one transport with SAMITE_TRANSPORT"
    )]
    TooLong {
        /// The length of the text.
        length: usize,
        /// The launcher's limit.
        limit: usize,
    },
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
}

/// A connection to a launcher.
struct Pmi {
    stream: UnixStream,
    inbound: Vec<u8>,
    /// The command that was not answered in time. No further command is sent: an answer does not name its command, so a
    /// late answer would be taken for the answer to the next command.
    unanswered: Option<&'static str>,
    wire: Wire,
    /// The name of the job's key-value space, for PMI-1.
    space: String,
    value_max: usize,
    rank: u32,
}

impl Pmi {
    /// Begins a connection of PMI-1. Returns the mapping of ranks to hosts, if the launcher has it.
    fn begin_1(&mut self) -> Result<Option<String>, PmiError> {
        self.ask("init", &[("pmi_version", "1"), ("pmi_subversion", "1")], "response_to_init")?;
        let maxes = self.ask("get_maxes", &[], "maxes")?;
        self.value_max =
            maxes.get("vallen_max").and_then(|max| max.parse().ok()).unwrap_or(VALUE_MAX_OF_PMI_2);
        let name = self.ask("get_my_kvsname", &[], "my_kvsname")?;
        let space = name.get("kvsname");
        self.space = space.ok_or_else(|| unexpected("get_my_kvsname", &name))?.to_owned();
        self.get(MAPPING)
    }

    /// Begins a connection of PMI-2. Returns the mapping of ranks to hosts, if the launcher has it.
    fn begin_2(&mut self, rank: u32, size: u32) -> Result<Option<String>, PmiError> {
        // Both versions begin with a command in the notation of PMI-1, which selects the version.
        self.wire = Wire::One;
        let agreed =
            self.ask("init", &[("pmi_version", "2"), ("pmi_subversion", "0")], "response_to_init")?;
        if agreed.get("pmi_version") != Some("2") {
            return Err(unexpected("init", &agreed));
        }
        self.wire = Wire::Two;
        let words = [("pmijobid", "0"), ("pmirank", &rank.to_string()), ("threaded", "FALSE")];
        let told = self.ask("fullinit", &words, "fullinit-response")?;
        let differs = |key, ours: u32| told.get(key).is_some_and(|theirs| theirs.parse() != Ok(ours));
        if differs("rank", rank) || differs("size", size) {
            return Err(PmiError::Mismatch { rank, size });
        }
        let mapping = self.ask("info-getjobattr", &[("key", MAPPING)], "info-getjobattr-response");
        Ok(found(&mapping?))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        if value.len() >= self.value_max {
            return Err(PmiError::TooLong { length: value.len(), limit: self.value_max - 1 });
        }
        let space = self.space.clone();
        match self.wire {
            Wire::One => {
                self.ask("put", &[("kvsname", &space), ("key", key), ("value", value)], "put_result")?
            }
            Wire::Two => self.ask("kvs-put", &[("key", key), ("value", value)], "kvs-put-response")?,
        };
        Ok(())
    }

    fn fence(&mut self) -> Result<(), PmiError> {
        match self.wire {
            Wire::One => self.ask("barrier_in", &[], "barrier_out")?,
            Wire::Two => self.ask("kvs-fence", &[], "kvs-fence-response")?,
        };
        Ok(())
    }

    /// Returns the value of a key, if there is one.
    fn get(&mut self, key: &str) -> Result<Option<String>, PmiError> {
        let space = self.space.clone();
        let answer = match self.wire {
            Wire::One => self.ask("get", &[("kvsname", &space), ("key", key)], "get_result"),
            Wire::Two => self.ask("kvs-get", &[("key", key)], "kvs-get-response"),
        };
        match answer {
            Ok(answer) => Ok(found(&answer)),
            // Some launchers report a missing key as an error.
            Err(PmiError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn ask(
        &mut self,
        command: &'static str,
        words: &[(&str, &str)],
        expected: &str,
    ) -> Result<Words, PmiError> {
        if let Some(command) = self.unanswered {
            return Err(PmiError::NoAnswer(command));
        }
        self.stream.write_all(&self.wire.encode(command, words))?;
        let answer = loop {
            if let Some((answer, length)) = self.wire.decode(&self.inbound)? {
                self.inbound.drain(..length);
                break answer;
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(PmiError::Closed),
                Ok(count) => self.inbound.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        self.unanswered = Some(command);
                        return Err(PmiError::NoAnswer(command));
                    }
                    io::ErrorKind::ConnectionReset => return Err(PmiError::Closed),
                    _ => return Err(error.into()),
                },
            }
        };
        if answer.command() != expected {
            return Err(unexpected(command, &answer));
        }
        // Some launchers omit the return code of a command that succeeded.
        match answer.get("rc").unwrap_or("0") {
            "0" => Ok(answer),
            code => {
                let why = answer.get("msg").or(answer.get("errmsg")).unwrap_or(code).to_owned();
                Err(PmiError::Refused { command, why })
            }
        }
    }
}

impl KeyValues for Pmi {
    fn launcher(&self) -> &'static str {
        "PMI"
    }

    fn exchange(&mut self, entry: &str) -> Result<(), KeyValuesError> {
        self.put(&key(self.rank), entry)?;
        Ok(self.fence()?)
    }

    fn entry(&mut self, rank: u32) -> Result<String, KeyValuesError> {
        Ok(self.get(&key(rank))?.ok_or(PmiError::NoSuchEntry(rank))?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn leave(&mut self) {
        // If this command fails, the launcher is gone or ends the job. In both cases nothing is left to do.
        let _ = match self.wire {
            Wire::One => self.ask("finalize", &[], "finalize_ack"),
            Wire::Two => self.ask("finalize", &[], "finalize-response"),
        };
    }
}

/// Parses possible answers of a launcher, in either version.
#[cfg(fuzzing)]
pub(crate) fn read_pmi(bytes: &[u8]) {
    for wire in [Wire::One, Wire::Two] {
        if let Ok(Some((words, length))) = wire.decode(bytes) {
            assert!(length <= bytes.len());
            let _ = mapping::place(words.get("value").unwrap_or(words.command()), 1, 64);
        }
    }
}

/// Returns the key of a rank's entry: the version of the entries' format, and the rank.
fn key(rank: u32) -> String {
    format!("samite-1-{rank}")
}

fn found(answer: &Words) -> Option<String> {
    let is_there = answer.get("found").is_none_or(|found| found != "FALSE");
    answer.get("value").filter(|_| is_there).map(str::to_owned)
}

fn unexpected(command: &'static str, got: &Words) -> PmiError {
    PmiError::Unexpected { command, got: got.command().to_owned() }
}

/// The key of the text with the ranks of each host.
const MAPPING: &str = "PMI_process_mapping";

/// The longest value with its terminator, for launchers that have no command to ask for the limit (Slurm's
/// PMI2_MAX_VALLEN).
const VALUE_MAX_OF_PMI_2: usize = 1024;

#[cfg(test)]
mod tests;
