//! The guard: what the remote shell starts on a host. It calls back, starts the agent, and is to it on its
//! host what the front is at home: whichever of the two is killed, the other leaves no process behind.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use samite_fabric::os::signal::unblock_in;
use samite_fabric::os::spawn::{end_with_parent, pass_fd};

use super::{AGENT_COMMAND, LaunchError, descendants};
use crate::control::{Channel, Ending, FromAgent, Invitation, liveness};

/// More than any invitation has.
const INVITATION_BYTES_MAX: usize = 64 << 10;

/// Serves as the guard of a host until its agent has ended, and returns its exit code. The invitation is the
/// first line of standard input; what follows is for rank 0.
///
/// # Errors
/// [`LaunchError`]: nothing was started, or the system refused something.
pub fn serve() -> Result<u8, LaunchError> {
    let invitation = read_invitation()?;
    let system = LaunchError::system;
    std::env::set_current_dir(&invitation.directory).map_err(|source| LaunchError::Directory {
        directory: invitation.directory.display().to_string(),
        host: invitation.name.clone(),
        source,
    })?;
    let connection = call_back(&invitation)?;
    descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;

    let mut command = Command::new("/proc/self/exe");
    let fd = pass_fd(&mut command, connection.into());
    command.arg0("samite").arg(AGENT_COMMAND).arg(fd.to_string());
    unblock_in(end_with_parent(&mut command, Signal::TERM));
    let mut agent = command.spawn().map_err(system("starting the agent"))?;
    drop(command);
    let status = agent.wait().map_err(system("waiting for the agent"))?;
    descendants::kill_all().map_err(system("ending what the agent has left"))?;
    Ok(Ending::from(status).exit_code())
}

/// Reads a byte at a time: what comes after the line is not ours.
fn read_invitation() -> Result<Invitation, LaunchError> {
    let bad = |why: &str| LaunchError::System {
        doing: "reading an invitation from standard input (`samite run --hosts` starts this)",
        source: io::Error::new(io::ErrorKind::InvalidData, why),
    };
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= INVITATION_BYTES_MAX {
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) => return Err(bad("it ends before a whole line")),
            Ok(_) if byte == *b"\n" => {
                return serde_json::from_slice(&line).map_err(|error| bad(&error.to_string()));
            }
            Ok(_) => line.extend(byte),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(bad(&error.to_string())),
        }
    }
    Err(bad("the line is too long"))
}

/// Connects to the launcher, and says who this is.
fn call_back(invitation: &Invitation) -> Result<TcpStream, LaunchError> {
    // Where we were called from, as sshd(8) tells it: the one address that cannot be wrong.
    let caller = std::env::var("SSH_CONNECTION").ok().and_then(|text| text.split(' ').next()?.parse().ok());
    let mut tried = Vec::new();
    for address in invitation.addresses.iter().copied().chain(caller) {
        match connect(address, invitation) {
            Ok(connection) => return Ok(connection),
            Err(error) => tried.push(format!("{address} port {}: {error}", invitation.port)),
        }
    }
    Err(LaunchError::Unreachable { host: invitation.name.clone(), tried: tried.join("; ") })
}

fn connect(address: IpAddr, invitation: &Invitation) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&(address, invitation.port).into(), CONNECT_TIMEOUT)?;
    liveness::bound(&connection, invitation.detection)?;
    // A message of this length always has room in a new connection.
    let mut channel = Channel::new(connection.try_clone()?);
    let hello = FromAgent::Hello { host: invitation.host, token: invitation.token };
    channel.send(&hello).map_err(io::Error::other)?;
    Ok(connection)
}

/// For one address among several.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
