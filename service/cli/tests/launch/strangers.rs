//! Unauthenticated clients at the listening ports of a job's processes.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::hosts;
use crate::support::{Job, Scratch, text};

/// Runs a job whose remote shell first runs the command `stranger`, with the launcher's port in `$port`.
fn met_by(name: &str, stranger: &str) -> (Option<i32>, Vec<String>, String) {
    let scratch = Scratch::new(name);
    let script = format!(
        "read -r line; port=$(echo \"$line\" | sed 's/.*\"port\":\\([0-9]*\\).*/\\1/'); {stranger}; \
        shift; (echo \"$line\"; cat) | exec \"$@\""
    );
    let path = scratch.script("shell", &format!("#!/bin/bash\n{script}\n"));
    let mut job = Job::new("-n 2 --hosts 127.0.0.1,127.0.0.2 --ssh");
    job.command.arg(&path).args(["--", "sh", "-c", "echo $SAMITE_RANK"]);
    let (code, stdout, stderr) = job.start().finish();
    let mut lines: Vec<_> = stdout.lines().map(str::to_owned).collect();
    lines.sort();
    (code, lines, stderr)
}

#[test]
fn who_does_not_know_the_secret_is_turned_away() {
    let ended = met_by(
        "token",
        "exec 3<>/dev/tcp/127.0.0.1/$port; \
         zeros=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0; read -r challenge <&3; \
         echo \"{\\\"host\\\":0,\\\"nonce\\\":[$zeros],\\\"proof\\\":[$zeros,$zeros]}\" >&3; \
         read -r answer <&3 && echo admitted",
    );
    assert_eq!(ended, (Some(0), vec!["0".to_owned(), "1".to_owned()], String::new()));
}

#[test]
fn garbage_at_the_launchers_listener_is_rejected() {
    // Send half a message, no message, a message for another host, a message without end, and noise; and open many
    // connections without sending a byte.
    let ended = met_by(
        "rubbish",
        "zeros=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0; say() { exec {fd}<>/dev/tcp/127.0.0.1/$port && printf \"$1\" >&$fd; }; \
         for round in 1 2 3; do \
             say '{\"host\":0,\"non'; say '{}\\n'; say '\\n\\n'; say 'GET / HTTP/1.1\\r\\n\\r\\n'; \
             say \"{\\\"host\\\":4294967295,\\\"nonce\\\":[$zeros],\\\"proof\\\":[$zeros,$zeros]}\\n\"; \
             say '{\"host\":0,\"nonce\":[],\"proof\":[]}\\n'; \
             say ''; (trap '' PIPE; head -c 1000000 /dev/zero >&$fd; true) 2>/dev/null; \
             say ''; (trap '' PIPE; head -c 1000000 /dev/urandom >&$fd; true) 2>/dev/null; \
         done; for idle in $(seq 100); do say ''; done",
    );
    assert_eq!(ended, (Some(0), vec!["0".to_owned(), "1".to_owned()], String::new()));
}

#[test]
fn garbage_at_the_ports_of_ranks_disturbs_no_rank() {
    let scratch = Scratch::new("ports");
    let ring = Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples/ring");
    let mut job = Job::new("-n 4 --transport tcp;ofi_rxm --hosts 127.0.0.1,127.0.0.2 --ssh");
    // Each rank starts when it has read a line, or its input has ended. The 15,000 rounds take some seconds, in which
    // each client connects more than once.
    let script = format!("echo ready; read line; exec {} 15000", ring.display());
    job.command.arg(hosts::shell(&scratch)).args(["--", "sh", "-c", &script]);
    let mut job = job.start();
    job.lines(4);
    // The coordinator closes its listener soon after the last agent has connected. The agent may have started its ranks
    // before that. Only rank 0 has input and waits for it, so the ports of the other ranks may already be open.
    let is_closed = (0..10_000).any(|_| listeners(job.coordinator_pid()).is_empty());
    assert!(is_closed, "the launcher no longer listens");
    drop(job.coordinator.stdin.take());

    let mut let_in = [0, 0];
    let mut open = Vec::new();
    while job.coordinator.try_wait().unwrap().is_none() {
        for listener in job.pids().into_iter().flat_map(listeners) {
            for (bytes, count) in [&[0xff; 3000][..], b"GET / HTTP/1.1\r\n\r\n"].into_iter().zip(&mut let_in)
            {
                // The job may have ended.
                let Ok(mut stranger) = TcpStream::connect_timeout(&listener, Duration::from_secs(1)) else {
                    continue;
                };
                *count += usize::from(stranger.write_all(bytes).is_ok());
                open.truncate(20);
                open.insert(0, stranger);
            }
        }
    }
    let (code, stdout, stderr) = job.finish();
    assert!(stdout.ends_with(" verified\n") && code == Some(0), "{stdout}{stderr}");
    assert!(let_in.iter().all(|&count| count > 4), "{let_in:?}");
}

/// Returns the addresses at which a process listens, as this host reaches them.
pub(crate) fn listeners(pid: Pid) -> Vec<SocketAddr> {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    // The process may have ended meanwhile.
    let Ok(files) = fs::read_dir(format!("{process}/fd")) else { return Vec::new() };
    let sockets: Vec<String> = files
        .filter_map(|file| Some(fs::read_link(file.ok()?.path()).ok()?.to_str()?.to_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| fs::read(format!("{process}/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| text(table).lines());
    lines
        .filter_map(|line| {
            // proc_pid_net(5): number, local address, remote address, state, …, inode.
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, state, inode) = (words[1], words[3], words.get(9)?);
            let listens = state == LISTEN && sockets.iter().any(|socket| socket == inode);
            let port = u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()?;
            listens.then_some((Ipv4Addr::LOCALHOST, port).into())
        })
        .collect()
}

/// The state of a listening socket.
const LISTEN: &str = "0A";
