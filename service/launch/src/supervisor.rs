//! The remote supervisor: the process that the remote shell starts on a host. It connects to the coordinator and starts
//! the agent. Supervisor and agent watch each other, as coordinator and agent do on the coordinator's host: if one of
//! them is killed, the other ends all processes that are left.

use std::io::{self, Read};
use std::net::{IpAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use samite_control::{
    Answer, Challenge, Channel, Ending, HELLO_BYTES_MAX, Hello, Invitation, PROTOCOL, Side, Transcript,
    liveness,
};
use samite_os::signal::unblock_in;
use samite_os::spawn::{end_with_parent, pass_fd};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::wait::{Interest, wait};
use super::{AGENT_COMMAND, LaunchError, descendants, random};

/// A limit that no valid invitation reaches.
const INVITATION_BYTES_MAX: usize = 64 << 10;

/// Serves as the supervisor of a host until its agent has ended, and returns the agent's exit code. The invitation is
/// the first line of standard input; the rest is for rank 0.
///
/// # Errors
/// [`LaunchError`] if nothing was started, or a system call failed.
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
    descendants::kill_all().map_err(system("ending the processes that the agent has left"))?;
    Ok(Ending::from(status).exit_code())
}

/// Reads the invitation, the first line of standard input. Reads a byte at a time, because the bytes after the line are
/// for rank 0.
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
                let read = |error: serde_json::Error| bad(&error.to_string());
                let Version { protocol } = serde_json::from_slice(&line).map_err(read)?;
                if protocol != PROTOCOL {
                    return Err(bad(&format!(
                        "`samite run` speaks version {protocol} of the protocol, and the `samite` of this host {PROTOCOL}: use \
                         one release on all hosts"
                    )));
                }
                return serde_json::from_slice(&line).map_err(read);
            }
            Ok(_) => line.extend(byte),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(bad(&error.to_string())),
        }
    }
    Err(bad("the line is too long"))
}

/// The part of an invitation that all versions have.
#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

/// Connects to the launcher: to the first address where a listening process proves that it is the launcher.
///
/// The launcher closes connections that have not sent their hello when it has too many connections. So a process that
/// closes the connection may be the launcher, and the supervisor retries for a while.
fn call_back(invitation: &Invitation) -> Result<TcpStream, LaunchError> {
    let caller = std::env::var("SSH_CONNECTION").ok();
    let mut calls: Vec<_> =
        candidates(invitation, caller.as_deref()).into_iter().map(|address| (address, None)).collect();
    let mut until = None;
    loop {
        for (address, error) in calls.iter_mut().filter(|(_, error)| error.as_ref().is_none_or(is_closed)) {
            match connect(*address, invitation) {
                Ok(connection) => return Ok(connection),
                Err(why) => *error = Some(why),
            }
        }
        let until = *until.get_or_insert_with(|| Instant::now() + AGAIN_FOR);
        if Instant::now() >= until || !calls.iter().any(|(_, error)| error.as_ref().is_some_and(is_closed)) {
            let tried = calls.iter().filter_map(|(address, error)| {
                Some(format!("{address} port {}: {}", invitation.port, error.as_ref()?))
            });
            let tried = tried.collect::<Vec<_>>().join("; ");
            return Err(LaunchError::Unreachable { host: invitation.name.clone(), tried });
        }
        // Wait before the next attempt, because nothing signals when the launcher has fewer connections.
        wait(Vec::<Interest<'_, ()>>::new(), Some(AGAIN_EVERY)).map_err(LaunchError::system("waiting"))?;
    }
}

/// Returns true if the other side closed the connection before it proved its identity.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Returns the possible addresses of the launcher, each once. The address from which the remote shell was called comes
/// first, since the other addresses are the coordinator's guesses. An address that the user has given is the only
/// candidate.
fn candidates(invitation: &Invitation, ssh_connection: Option<&str>) -> Vec<IpAddr> {
    // sshd(8): the client's address and port, the server's address and port.
    let caller = ssh_connection.and_then(|text| text.split(' ').next()?.parse().ok());
    let mut addresses = invitation.addresses.clone();
    if !invitation.is_given
        && let Some(caller) = caller
    {
        addresses.retain(|&address| address != caller);
        addresses.insert(0, caller);
    }
    addresses
}

fn connect(address: IpAddr, invitation: &Invitation) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&(address, invitation.port).into(), CONNECT_TIMEOUT)?;
    liveness::bound(&connection, invitation.detection)?;
    greet(&connection, address, invitation, HANDSHAKE_TIMEOUT)?;
    Ok(connection)
}

/// Proves to the other side of a connection that this process was invited, and returns when that side has proven that
/// it sent the invitation. Reads nothing after that proof.
fn greet(connection: &TcpStream, called: IpAddr, invitation: &Invitation, time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    let Invitation { host, keys, .. } = *invitation;
    let Challenge { nonce: coordinator_nonce } = read_message(connection, until)?;
    let agent_nonce = random()?;
    let transcript = Transcript { host, coordinator: called, coordinator_nonce, agent_nonce };
    // A new connection always has room for a message of this length.
    let mut channel = Channel::new(connection.try_clone()?);
    let proof = transcript.prove(Side::Agent, &keys);
    channel.send(&Hello { host, nonce: agent_nonce, proof }).map_err(io::Error::other)?;
    let Answer { proof } = read_message(connection, until)?;
    if transcript.is_proven(Side::Coordinator, &keys, &proof) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the process there does not know the secret of this host",
        ))
    }
}

/// Reads a message, one line, until the time `until`. Reads a byte at a time, because the bytes after the line are for
/// the agent.
fn read_message<M: DeserializeOwned>(mut connection: &TcpStream, until: Instant) -> io::Result<M> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < HELLO_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if wait(vec![Interest::read((), connection)], Some(left))?.is_empty() {
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the service there does not answer"));
            }
            continue;
        }
        match connection.read(&mut byte)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            _ if byte == *b"\n" => {
                let foreign = |_| io::Error::new(io::ErrorKind::InvalidData, NOT_OURS);
                return serde_json::from_slice(&line).map_err(foreign);
            }
            _ => line.extend(byte),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, NOT_OURS))
}

const NOT_OURS: &str = "the service there is no `samite run`";

/// The longest time for connecting to one of the addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time within which the process at an address must prove that it is the launcher.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which the supervisor retries an address whose process closes the connection. The launcher also closes
/// the connection after a wrong proof, for example because addresses are translated between the hosts. In that case the
/// retries only delay the error message.
const AGAIN_FOR: Duration = Duration::from_secs(10);

/// The pause before each retry.
const AGAIN_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use samite_control::{Keys, Secret};

    fn invitation(addresses: &[&str], is_given: bool) -> Invitation {
        Invitation {
            protocol: PROTOCOL,
            host: 0,
            name: "node".to_owned(),
            keys: Keys { coordinator: Secret([1; 16]), agent: Secret([2; 16]) },
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            is_given,
            port: 7,
            directory: "/".into(),
            detection: Duration::from_secs(10),
        }
    }

    #[test]
    fn the_address_that_the_remote_shell_was_called_from_is_first() {
        let order = |is_given, ssh: Option<&str>| {
            let found = candidates(&invitation(&["10.0.0.1", "10.0.0.2"], is_given), ssh);
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        let named = ["10.0.0.1", "10.0.0.2"];
        assert_eq!(order(false, Some("10.0.0.2 5022 10.0.0.9 22")), ["10.0.0.2", "10.0.0.1"]);
        assert_eq!(order(false, Some("10.0.0.3 5022 10.0.0.9 22")), ["10.0.0.3", "10.0.0.1", "10.0.0.2"]);
        for (is_given, ssh) in [(true, Some("10.0.0.3 5022 10.0.0.9 22")), (false, Some("")), (false, None)] {
            assert_eq!(order(is_given, ssh), named);
        }
    }

    /// Returns the error of a handshake in which the other side sends these bytes and then waits.
    fn greeted(said: Vec<u8>) -> io::ErrorKind {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stranger, _) = listener.accept().unwrap();
        stranger.write_all(&said).unwrap();
        let time = Duration::from_millis(50);
        greet(&connection, [127, 0, 0, 1].into(), &invitation(&[], false), time).unwrap_err().kind()
    }

    #[test]
    fn a_launcher_without_the_secret_is_rejected() {
        let challenge = serde_json::to_vec(&Challenge { nonce: [0; 16] }).unwrap();
        let answer = |byte: u8| format!("{{\"proof\":{:?}}}\n", [byte; 32]).into_bytes();
        assert_eq!(greeted([&challenge[..], b"\n", &answer(0)].concat()), io::ErrorKind::PermissionDenied);
        for silent in [&b""[..], &challenge, &[&challenge[..], b"\n"].concat(), b"{\"non"] {
            assert_eq!(greeted(silent.to_vec()), io::ErrorKind::TimedOut);
        }
        for garbage in [&b"\n"[..], b"{}\n", b"{\"start\":{}}\n", &answer(0), &[b'7'; 2 * HELLO_BYTES_MAX]] {
            assert_eq!(greeted(garbage.to_vec()), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn an_unfinished_line_is_not_awaited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stranger, _) = listener.accept().unwrap();
        let drips = thread::spawn(move || {
            while stranger.write_all(b" ").is_ok() {
                thread::yield_now()
            }
        });
        let said: io::Result<Challenge> =
            read_message(&connection, Instant::now() + Duration::from_millis(50));
        assert!(matches!(said.unwrap_err().kind(), io::ErrorKind::InvalidData | io::ErrorKind::TimedOut));
        drop(connection);
        drips.join().unwrap();
    }
    /// Plays the launcher and proves its identity to a supervisor.
    fn let_in(connection: &TcpStream, invitation: &Invitation) {
        let mut channel = Channel::new(connection.try_clone().unwrap());
        let coordinator_nonce = [7; 16];
        channel.send(&Challenge { nonce: coordinator_nonce }).unwrap();
        let hello: Hello = read_message(connection, Instant::now() + HANDSHAKE_TIMEOUT).unwrap();
        let coordinator = connection.local_addr().unwrap().ip();
        let transcript =
            Transcript { host: hello.host, coordinator, coordinator_nonce, agent_nonce: hello.nonce };
        assert!(transcript.is_proven(Side::Agent, &invitation.keys, &hello.proof));
        channel.send(&Answer { proof: transcript.prove(Side::Coordinator, &invitation.keys) }).unwrap();
    }

    #[test]
    fn a_launcher_that_closes_the_connection_is_called_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // No process listens at the second address, so it is tried once.
        let mut invitation = invitation(&["127.0.0.1", "127.0.0.2"], true);
        invitation.port = listener.local_addr().unwrap().port();
        thread::scope(|scope| {
            let called = scope.spawn(|| call_back(&invitation));
            // The launcher closes the first connection before the challenge. It closes the second one after the
            // challenge, without reading the supervisor's hello.
            drop(listener.accept().unwrap());
            let (mut evicted, _) = listener.accept().unwrap();
            serde_json::to_writer(&mut evicted, &Challenge { nonce: [0; 16] }).unwrap();
            evicted.write_all(b"\n").unwrap();
            evicted.peek(&mut [0]).unwrap();
            drop(evicted);
            let_in(&listener.accept().unwrap().0, &invitation);
            assert!(called.join().unwrap().is_ok());
        });
    }

    #[test]
    fn a_launcher_that_has_gone_is_not_called_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut invitation = invitation(&["127.0.0.1"], true);
        invitation.port = listener.local_addr().unwrap().port();
        let connection = thread::scope(|scope| {
            let called = scope.spawn(|| call_back(&invitation));
            let (stranger, _) = listener.accept().unwrap();
            drop(listener);
            drop(stranger);
            called.join().unwrap()
        });
        let error = connection.unwrap_err().to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }
}
