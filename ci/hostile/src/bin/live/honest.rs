//! The attacked ranks, and one rank that attacks its launcher.

use std::error::Error;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use samite::{Comm, Done, Rank, Source};
use samite_fabric::SplitMix64;
use samite_os::spawn::take_inherited_fd;

use crate::Outcome;

/// Takes part until the file `stop` exists. Ranks 0 and 1 check each other's messages. Other ranks try to communicate
/// and ignore errors, since the attack writes their memory.
pub(crate) fn rank(stop: &Path) -> Outcome {
    let world = samite::init()?;
    let comm = world.comm();
    match comm.rank() {
        me @ (Rank(0) | Rank(1)) => pair(comm, me.0, stop)?,
        me => others(comm, me.0, stop),
    }
    if comm.rank() == 0 {
        println!("done");
    }
    Ok(())
}

fn pair(world: &Comm, me: u32, stop: &Path) -> Outcome {
    let hears = std::env::var_os("HOSTILE_HEARS").is_some();
    let mut was_told = false;
    let mut told = Instant::now();
    for round in 0_u64.. {
        let len = [4, 5_000, 40_000][(round % 3) as usize];
        let is_last = me == 0 && stop.exists();
        let message: Vec<u64> =
            std::iter::once(u64::from(is_last)).chain((1..len).map(|at| round ^ at)).collect();
        let mut answer = message.clone();
        if me == 0 {
            world.send(&message, Rank(1), TAG)?;
            world.recv(&mut answer, Rank(1), TAG)?;
        } else {
            world.recv(&mut answer, Rank(0), TAG)?;
            world.send(&answer, Rank(0), TAG)?;
        }
        if answer[1..] != message[1..] {
            return Err(format!("harm: round {round} came changed").into());
        }
        if me == 0 && told.elapsed() > TELL_EVERY {
            told = Instant::now();
            println!("round {}", round + 1);
        }
        if me == 1 && world.size() > 2 && round % 16 == 0 {
            // Rank 2 may be in any state by now.
            let _ = world.with_timeout(Duration::from_millis(20)).send(&message[..4], Rank(2), TAG);
        }
        if hears && !was_told && me == 0 && round % 16 == 0 {
            was_told = has_failed(world, 2);
            if was_told {
                println!("2 failed");
            }
        }
        if answer[0] != 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends to `rank`, and returns true if the error says that `rank` has failed.
fn has_failed(world: &Comm, rank: u32) -> bool {
    let sent = world.with_timeout(Duration::from_millis(20)).send(&[1_u64; 4], Rank(rank), TAG);
    let name = format!("rank {rank}");
    sent.is_err_and(|error| error.to_string().contains(&name) && !error.to_string().contains("time"))
}

fn others(world: &Comm, me: u32, stop: &Path) {
    let world = world.with_timeout(Duration::from_millis(100));
    while !stop.exists() {
        if me ^ 1 < world.size() {
            let _ = world.send(&[7_u64; 6_000], Rank(me ^ 1), TAG);
        }
        while let Ok(Done { buffer: message, .. }) = world.recv_vec::<u64>(Source::ANY, TAG) {
            drop(message);
        }
    }
}

/// Takes this rank's connection to its agent, and misuses the connection in a way that depends on the process id.
/// Always ends with an error, so that the rank is restarted and misuses the connection in another way.
pub(crate) fn rude(stop: &Path) -> Outcome {
    if stop.exists() {
        return Ok(());
    }
    let control = std::env::var("SAMITE_CONTROL")?;
    let number = control.strip_prefix("fd:").ok_or("no descriptor")?.parse()?;
    let ticket = take_inherited_fd(number)?;
    let mut packet = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&ticket, &mut [IoSliceMut::new(&mut packet)], &mut rights, RecvFlags::empty())?;
    let connection = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let mut agent = UnixStream::from(connection.ok_or("no connection")?);
    agent.set_write_timeout(Some(Duration::from_millis(500)))?;
    let mut random = SplitMix64::new(std::process::id().into());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(300) {
        // If the agent closes the connection, this rank exits and is restarted.
        match std::process::id() % 8 {
            0 => agent.write_all(&[b'\n'; 4096])?,
            1 => agent.write_all(&[b'x'; 4096])?,
            2 => agent.write_all(b"{\"request\":{\"rank\":1}}\n{\"request\":{\"rank\":4294967295}}\n")?,
            3 => agent.write_all(b"{\"publish\":{\"address\":[1,2,3]}}\n")?,
            4 => agent.write_all(&(0..4096).map(|_| random.next_u64() as u8).collect::<Vec<_>>())?,
            5 => {
                // The incarnation is a guess, and rank 4294967295 does not exist.
                agent.write_all(b"{\"gave_up\":{\"rank\":0,\"incarnation\":7,\"why\":\"\"}}\n")?;
                agent.write_all(b"{\"gave_up\":{\"rank\":4294967295,\"incarnation\":7,\"why\":\"\"}}\n")?;
            }
            6 => agent.write_all(b"{\"peers\":[]}\n\"leave\"\n\"panicked\"\n{\"figures\":{}}\n")?,
            _ => {
                agent.write_all(b"{\"publish\":{\"addr")?;
                agent.set_read_timeout(Some(Duration::from_millis(100)))?;
                let _ = agent.read(&mut packet);
            }
        }
    }
    Err::<(), Box<dyn Error>>("so far".into())
}

const TAG: u64 = 5;
const TELL_EVERY: Duration = Duration::from_millis(100);
