//! The attacks: unauthenticated clients at sockets, another user's attempts to open things, garbage written to memory.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use samite_fabric::SplitMix64;

use crate::job::processes;
use crate::{Outcome, port, read_to_string};

/// The styles of unauthenticated clients.
pub(crate) const STYLES: [&str; 7] =
    ["newlines", "ones", "endless-line", "slow", "lengths", "crowd", "random"];

/// Attacks the listeners at `addresses` until this process is killed, or until the process that started it ends.
pub(crate) fn stranger(style: &str, addresses: &[&str]) -> Outcome {
    thread::scope(|scope| {
        for (number, address) in (0..).zip(addresses) {
            thread::Builder::new().spawn_scoped(scope, move || {
                let mut random = SplitMix64::new(number);
                loop {
                    // The connection may be refused or closed at any time; the attack goes on.
                    let _ = visit(style, address, &mut random);
                    thread::sleep(Duration::from_millis(1));
                }
            })?;
        }
        // Standard input is closed when the parent process ends. Then this process ends too.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    })
}

fn visit(style: &str, address: &str, random: &mut SplitMix64) -> std::io::Result<()> {
    match style {
        "newlines" => flood(address, &[b'\n'; 65536]),
        "ones" => flood(address, &[0xff; 65536]),
        "endless-line" => flood(address, &[b'x'; 65536]),
        "slow" => {
            let mut connection = connect(address)?;
            for byte in b"{\"hello\":{\"host\":0,\"token\":[1,2,3" {
                connection.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(10));
            }
            // Half a message was sent. Send nothing more until the other side closes the connection.
            connection.read(&mut [0]).map(drop)
        }
        "lengths" => {
            for length in [0_u64, 1, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX] {
                let mut connection = connect(address)?;
                connection.write_all(&[length.to_le_bytes(), length.to_be_bytes()].concat())?;
                connection.write_all(&[1; 1000])?;
            }
            Ok(())
        }
        "crowd" => {
            let crowd: Vec<_> = (0..300).map_while(|_| connect(address).ok()).collect();
            thread::sleep(Duration::from_millis(20));
            drop(crowd);
            Ok(())
        }
        _ => {
            let len = 1 + random.below(5000) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
            connect(address)?.write_all(&bytes)
        }
    }
}

fn flood(address: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut connection = connect(address)?;
    loop {
        connection.write_all(bytes)?;
    }
}

fn connect(address: &str) -> std::io::Result<File> {
    let socket: OwnedFd = match port(address) {
        Some(address) => {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.set_write_timeout(Some(Duration::from_secs(2)))?;
            stream.into()
        }
        None => {
            let stream = UnixStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.set_write_timeout(Some(Duration::from_secs(2)))?;
            stream.into()
        }
    };
    Ok(socket.into())
}

/// Tries to open the files and descriptors of processes, and sockets by their names.
pub(crate) fn spy(targets: &[&str]) -> Outcome {
    let mut opened = Vec::new();
    let mut tried = 0;
    let mut attempt = |path: String| {
        tried += 1;
        if OpenOptions::new().read(true).open(&path).is_ok()
            || OpenOptions::new().write(true).open(&path).is_ok()
        {
            opened.push(path);
        }
    };
    for target in targets {
        if target.parse::<u32>().is_err() {
            if UnixStream::connect(target).is_ok() {
                return Err(format!("{target} lets another user in").into());
            }
            continue;
        }
        for file in ["mem", "environ", "maps"] {
            attempt(format!("/proc/{target}/{file}"));
        }
        // The attacker may not list the descriptors, so it guesses their numbers.
        (0..64).for_each(|fd| attempt(format!("/proc/{target}/fd/{fd}")));
    }
    match opened.is_empty() {
        true => {
            println!("hostile: another user could open none of {tried} files of the jobs");
            Ok(())
        }
        false => Err(format!("another user can open {opened:?}").into()),
    }
}

/// Writes arbitrary bytes into the memory in which rank `rank` of a job receives. `mark` marks the processes of the
/// job. Returns the number of writes.
pub(crate) fn write_mailboxes(mark: &str, rank: u32, seed: &mut u64) -> Result<usize, Box<dyn Error>> {
    let needle = format!("SAMITE_RANK={rank}");
    let is_of_rank =
        |pid: &i32| read_to_string(&format!("/proc/{pid}/environ")).split('\0').any(|text| text == needle);
    let mut written = 0;
    for pid in processes(mark).into_iter().filter(is_of_rank) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            if !link.to_string_lossy().starts_with("/memfd:") {
                continue;
            }
            let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else { continue };
            // The file must be sealed against shrinking, which protects its owner from SIGBUS.
            if file.set_len(0).is_ok() {
                return Err(format!("harm: {} could be truncated", link.display()).into());
            }
            let size = file.metadata()?.len();
            for _ in 0..64 {
                *seed += 1;
                let mut random = SplitMix64::new(*seed);
                let len = 1 + random.below(256) as usize;
                // Write to the head of the file, which has states and positions, more often than to the rings.
                let range = if random.below(2) == 0 { size.min(4096) } else { size };
                let bytes: Vec<u8> = match random.below(3) {
                    0 => vec![0xff; len],
                    _ => (0..len).map(|_| random.next_u64() as u8).collect(),
                };
                // The write stays within the file. It fails if the file is sealed against writing.
                let at = random.below(range.saturating_sub(256).max(1));
                written += usize::from(file.write_all_at(&bytes, at).is_ok());
            }
        }
    }
    Ok(written)
}
