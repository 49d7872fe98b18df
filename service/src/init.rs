//! Joining a job: from the environment variables of this process to its `World`.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use samite_control::printable::one_line;
use samite_control::{
    Connection, ControlError, Ending, Figures, PeerStats, Place, Secret, Ticket, environment,
};
use samite_fabric::{Address, Port, PortError};
use samite_p2p::{Identity, WorldRank};

use crate::bootstrap::{BootstrapError, Candidate, Detected, Met, Refusal};
use crate::error::TransportError;
use crate::lanes::{self, Addresses, Lane, Lanes};
use crate::runtime::{Directory, Notice, Runtime};
use crate::stack::engine;
use crate::transport::{self, Transport};
use crate::world::World;
use crate::{SettingError, Settings};

/// Joins the job for which this process was started. Without a launcher the process is a job of one rank.
///
/// Call it once. The process leaves the job when the world is dropped.
///
/// # Errors
/// [`InitError`] if the environment is malformed, if this process cannot join its job, for example because the launcher
/// is not supported, if the transport does not open, or if this rank's address cannot be published. Each error names a
/// fix.
pub fn init() -> Result<World, InitError> {
    Settings::from_environment()?.init()
}

impl Settings {
    /// Joins the job as [`init`] does, with these settings.
    ///
    /// # Errors
    /// Returns the errors of [`init`].
    pub fn init(self) -> Result<World, InitError> {
        join(self.0)
    }
}

fn join(settings: samite_control::Settings) -> Result<World, InitError> {
    match Detected::from_variables(&environment)? {
        Detected::Alone => {
            let identity =
                Identity { rank: WorldRank(0), size: 1, incarnation: first_incarnation(0), secret: [0; 16] };
            let transports = open(&settings, &Place::ALONE, 1)?;
            let address = Some(address(&transports));
            world(transports, identity, settings, Box::new(Alone { address }), &Place::ALONE)
        }
        Detected::Invited(invitation) => {
            let (ticket, mut connection) = invitation.accept()?;
            let Ticket { rank, size, incarnation, secret, place, .. } = ticket;
            let transports = open(&settings, &place, size)?;
            connection.publish(&address(&transports).0).map_err(not_published)?;
            let identity = Identity { rank: WorldRank(rank), size, incarnation, secret: secret.0 };
            world(transports, identity, settings, Box::new(Member(Some(connection))), &place)
        }
        Detected::Pmi(job) => {
            let candidate = job.join(settings.join_timeout)?;
            meet(settings, candidate)
        }
        Detected::Rendezvous(rendezvous) => {
            // Set the environment here: rank 0 may start a thread for the rendezvous next, and the environment cannot
            // be changed safely beside other threads.
            #[cfg(feature = "ofi")]
            samite_fabric::ofi::settle_environment(settings.transport());
            let Met { ticket, mut guest } = rendezvous.join(settings.detection, settings.join_timeout)?;
            let Ticket { rank, size, incarnation, secret, place, .. } = ticket;
            let transports = open(&settings, &place, size)?;
            guest.publish(&address(&transports)).map_err(not_published)?;
            let identity = Identity { rank: WorldRank(rank), size, incarnation, secret: secret.0 };
            world(transports, identity, settings, Box::new(guest), &place)
        }
        Detected::Pmix(job) => {
            // Set the environment here: the launcher's library starts a thread, and the environment cannot be changed
            // safely beside other threads.
            #[cfg(feature = "ofi")]
            samite_fabric::ofi::settle_environment(settings.transport());
            let candidate = job.join(settings.join_timeout)?;
            meet(settings, candidate)
        }
    }
}

/// Joins through a launcher's key-value space.
fn meet(settings: samite_control::Settings, candidate: Candidate) -> Result<World, InitError> {
    let Candidate { rank, size, .. } = candidate;
    let place = candidate.place.clone();
    let transports = open(&settings, &place, size)?;
    let (secret, directory) = candidate.join(&address(&transports))?;
    let incarnation = secret.first_incarnation(rank);
    let identity = Identity { rank: WorldRank(rank), size, incarnation, secret: secret.0 };
    world(transports, identity, settings, Box::new(directory), &place)
}

/// The reason why this process cannot become a rank. `Debug` prints the same text as `Display`, because a `main` that
/// returns an error prints its `Debug` text.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// A parameter has an invalid value.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// This process cannot join its job.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// This process's address cannot be published.
    #[error(transparent)]
    Control(Box<dyn std::error::Error + Send + Sync>),
    /// The transport does not open.
    #[error(
        "the transport {} does not open: {source}",
        name.as_ref().map_or_else(|| "of this host".to_owned(), |name| format!("`{name}`, which SAMITE_TRANSPORT or --transport asks for,"))
    )]
    Transport {
        /// The transport's name, if one was selected.
        name: Option<String>,
        /// The transport's error.
        source: TransportError,
    },
}

impl From<Refusal> for InitError {
    fn from(refusal: Refusal) -> Self {
        Self::Bootstrap(refusal.into())
    }
}

impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Opens the transport of each lane.
fn open(settings: &samite_control::Settings, place: &Place, size: u32) -> Result<Vec<Transport>, InitError> {
    let open = |_| transport::open(settings, place, size);
    let transports = (0..settings.lanes).map(open).collect::<Result<_, _>>();
    transports.map_err(|error| not_opened(settings.transport.clone(), error))
}

/// Returns the version of libfabric, if a transport uses libfabric.
fn libfabric() -> Option<String> {
    #[cfg(feature = "ofi")]
    return samite_fabric::ofi::survey::library_if_loaded().map(|library| library.version);
    #[cfg(not(feature = "ofi"))]
    None
}

/// Returns the address that a rank with these transports publishes.
fn address(transports: &[Transport]) -> Address {
    Addresses::encode(transports.iter().map(Port::address))
}

fn not_opened(name: Option<String>, error: PortError) -> InitError {
    InitError::Transport { name, source: TransportError(error) }
}

fn not_published(error: ControlError) -> InitError {
    InitError::Control(error.into())
}

/// Creates the engines, the runtimes and the world of a rank.
fn world(
    transports: Vec<Transport>,
    identity: Identity,
    mut settings: samite_control::Settings,
    directory: Box<dyn Directory>,
    place: &Place,
) -> Result<World, InitError> {
    let of = transports.len();
    settings.remove_foreign_tunings(libfabric().as_deref());
    let directories = lanes::share(directory, of).map_err(|error| {
        let (call, hint) =
            ("epoll_create", "allow this process more open files (ulimit -n), or set fewer lanes");
        let (code, text) = (error.raw_os_error().unwrap_or(0), error.to_string());
        not_opened(None, PortError::Provider { call, code, text, hint: hint.into() })
    })?;
    let runtimes =
        transports.into_iter().zip(directories).enumerate().map(|(number, (transport, directory))| {
            let engine =
                engine(transport, identity.clone(), lanes::engine_config(&settings.engine, settings.lanes));
            Runtime::new(engine, directory, &identity, place, Lane { number, of }, &settings).map(Arc::new)
        });
    let runtimes = runtimes.collect::<Result<_, _>>();
    Ok(World::new(Lanes::new(runtimes.map_err(|error| not_opened(settings.transport, error))?)))
}

/// Returns the first incarnation of a rank without a launcher, and thus without a secret.
pub(crate) fn first_incarnation(rank: u32) -> u32 {
    Secret([0; 16]).first_incarnation(rank)
}

/// The directory of a job with one rank, which is asked only for the address of that rank.
struct Alone {
    address: Option<Address>,
}

impl Directory for Alone {
    fn request_address(&mut self, _rank: u32) {}

    fn poll(&mut self) -> Option<Notice> {
        let address = self.address.take()?;
        Some(Notice::Address { rank: 0, incarnation: first_incarnation(0), address })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn leave(&mut self) {}

    fn panicked(&mut self) {}
}

impl From<samite_control::Notice> for Notice {
    fn from(notice: samite_control::Notice) -> Notice {
        match notice {
            samite_control::Notice::Address { rank, address, incarnation } => {
                Notice::Address { rank, incarnation, address: Address(address) }
            }
            samite_control::Notice::Died { rank, incarnation, ending: Ending::Left, .. } => {
                Notice::Left { rank, incarnation }
            }
            samite_control::Notice::Died { rank, incarnation, ending, returns } => {
                Notice::Failed { rank, incarnation, how: format!("it {ending}"), returns }
            }
            samite_control::Notice::Stopped { rank, incarnation, is_stopped } => {
                Notice::Stopped { rank, incarnation, is_stopped }
            }
            samite_control::Notice::GaveUp { rank, incarnation, verdict_on, why } => {
                // The text comes from another rank, so control characters in it are escaped.
                Notice::GaveUp { rank, incarnation, verdict_on, why: one_line(&why).into_owned() }
            }
            samite_control::Notice::Asked { at_end } => Notice::Asked { at_end },
            samite_control::Notice::Condemned { why } => Notice::Condemned { why },
            samite_control::Notice::LauncherGone => {
                let why = "the launcher's agent on this host, which watches over it, is gone".to_owned();
                Notice::Condemned { why }
            }
        }
    }
}

/// A rank's connection to its launcher's agent, which reports on the other ranks. `None` once this rank has left or was
/// given up.
struct Member(Option<Connection>);

impl Directory for Member {
    fn request_address(&mut self, rank: u32) {
        if let Some(connection) = &mut self.0 {
            // If the request fails, the next poll reports the error.
            let _ = connection.request_address(rank);
        }
    }

    fn poll(&mut self) -> Option<Notice> {
        let notice = match self.0.as_mut()?.poll() {
            Ok(notice) => notice?.into(),
            Err(error) => Notice::Condemned { why: error.to_string() },
        };
        if let Notice::Condemned { .. } = notice {
            self.0 = None;
        }
        Some(notice)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    fn tell(&mut self, figures: Figures, peers: &[PeerStats]) {
        if let Some(connection) = &mut self.0 {
            // If this report fails, the next poll reports the error.
            let _ = connection.tell(figures, peers);
        }
    }

    fn give_up(&mut self, rank: u32, incarnation: u32, why: String) {
        if let Some(connection) = &mut self.0 {
            // If this report fails, the next poll reports the error.
            let _ = connection.give_up(rank, incarnation, why);
        }
    }

    fn tells_ends(&self) -> bool {
        true
    }

    fn leave(&mut self) {
        if let Some(connection) = self.0.take() {
            // If the message cannot be sent, the agent sees only the closed connection, and treats it like a dropped
            // `World`.
            let _ = connection.leave();
        }
    }

    fn close(&mut self) {
        if let Some(connection) = self.0.take() {
            // If the message cannot be sent, the agent sees only the closed connection, and treats that like this
            // message.
            let _ = connection.close();
        }
    }

    fn panicked(&mut self) {
        if let Some(connection) = self.0.take() {
            // As in `leave`, a message that cannot be sent needs no further action.
            let _ = connection.panicked();
        }
    }
}
