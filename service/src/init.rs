//! Becoming a rank: from the environment to a world.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use samite_fabric::{Address, Port, PortError};
use samite_p2p::{Config, Engine, Identity};

use crate::Comm;
use crate::bootstrap::{self, BootstrapError, Connection, ControlError, Job, Launch};
use crate::control::Ending;
use crate::runtime::{Bounds, Directory, Notice, Runtime};
use crate::transport::{self, Transport};
use crate::world::{CONTEXT, World};

/// Joins the job that this process was started for. Without a launcher the process is a job of one rank.
///
/// To be called once. The job is left when the world is dropped.
///
/// # Errors
/// [`InitError`]: the environment makes no sense, another launcher is at work, or the transport does not
/// open. Each says what to do.
pub fn init() -> Result<World, InitError> {
    match Launch::detect(&environment)? {
        Launch::Alone { transport } => {
            let identity = Identity { rank: 0, size: 1, incarnation: 1, secret: [0; 16] };
            let transport = open(transport)?;
            let address = transport.address();
            Ok(world(transport, identity, Box::new(Alone { address: Some(address) })))
        }
        Launch::Invited(invitation) => {
            let Job { rank, size, incarnation, secret, transport, mut connection, .. } =
                invitation.accept()?;
            let transport = open(transport)?;
            connection.publish(&transport.address().0)?;
            let identity = Identity { rank, size, incarnation, secret: secret.0 };
            Ok(world(transport, identity, Box::new(Member::new(rank, size, connection))))
        }
    }
}

/// Why this process cannot become a rank. Its `Debug` is its message too, since that is what a `main` that
/// returns it shows.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// It cannot join its job.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Its address cannot be told to the others.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The transport does not open.
    #[error(
        "the transport {} does not open: {source}",
        name.as_ref().map_or_else(|| "of this host".to_owned(), |name| format!("`{name}` that SAMITE_TRANSPORT asks for"))
    )]
    Transport {
        /// Its name, if one was asked for.
        name: Option<String>,
        /// What the port says.
        source: PortError,
    },
}

impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn open(name: Option<String>) -> Result<Transport, InitError> {
    transport::open(name.as_deref()).map_err(|source| InitError::Transport { name, source })
}

fn world(transport: Transport, identity: Identity, directory: Box<dyn Directory>) -> World {
    let engine = Engine::new(transport, identity.clone(), Config::default());
    // A job is one host for now.
    let runtime = Arc::new(Runtime::new(engine, directory, &identity, identity.size));
    World::new(Comm { runtime, context: CONTEXT, bounds: Bounds::default() })
}

#[expect(clippy::disallowed_methods, reason = "here the environment is read, and handed on as a function")]
fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// The only rank of a job: all it ever asks for is its own address.
struct Alone {
    address: Option<Address>,
}

impl Directory for Alone {
    fn request_address(&mut self, _rank: u32) {}

    fn poll(&mut self) -> Option<Notice> {
        let address = self.address.take()?;
        Some(Notice::Address { rank: 0, incarnation: 1, address })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn leave(&mut self) {}

    fn panicked(&mut self) {}
}

/// A rank of a job, as its launcher's agent tells it of the others.
struct Member {
    rank: u32,
    /// Closed when this rank has left, or the connection has failed.
    connection: Option<Connection>,
    /// When the connection has failed: the ranks of which that is still to be told, and how.
    lost: std::ops::Range<u32>,
    how_lost: String,
    size: u32,
}

impl Member {
    fn new(rank: u32, size: u32, connection: Connection) -> Member {
        Member { rank, connection: Some(connection), lost: 0..0, how_lost: String::new(), size }
    }

    /// Nothing more will be heard of any rank: no operation may wait for that.
    fn lose_all(&mut self, how: String) {
        self.connection = None;
        self.lost = 0..self.size;
        self.how_lost = how;
    }
}

impl Directory for Member {
    fn request_address(&mut self, rank: u32) {
        let asked = self.connection.as_mut().map(|connection| connection.request_address(rank));
        if let Some(Err(error)) = asked {
            self.lose_all(error.to_string());
        }
    }

    fn poll(&mut self) -> Option<Notice> {
        if let Some(connection) = &mut self.connection {
            match connection.poll() {
                Ok(None) => return None,
                Ok(Some(bootstrap::Notice::Address { rank, address, incarnation })) => {
                    return Some(Notice::Address { rank, incarnation, address: Address(address) });
                }
                Ok(Some(bootstrap::Notice::Died { rank, ending: Ending::Left })) => {
                    return Some(Notice::Left { rank });
                }
                Ok(Some(bootstrap::Notice::Died { rank, ending })) => {
                    return Some(Notice::Failed { rank, how: format!("it {ending}") });
                }
                Ok(Some(bootstrap::Notice::LauncherGone)) => {
                    self.lose_all("the launcher, which watches over it, is gone".to_owned());
                }
                Err(error) => self.lose_all(error.to_string()),
            }
        }
        let rank = self.lost.find(|&rank| rank != self.rank)?;
        Some(Notice::Failed { rank, how: self.how_lost.clone() })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            // If it fails, the agent sees that the connection has closed, and tells the others the same.
            let _ = connection.leave();
        }
    }

    fn panicked(&mut self) {
        if let Some(connection) = self.connection.take() {
            // As above.
            let _ = connection.panicked();
        }
    }
}
