//! The agent of another host accepts a plan only from the launcher that invited it. The tests play false launchers.

#![expect(clippy::disallowed_methods, reason = "a false launcher is another process")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::flood::{invitation, shell_that_asks};
use crate::ranks::PATIENCE;
use crate::support::{Job, Scratch};

/// The behaviour of a false launcher.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trick {
    /// Sends a plan at once.
    Commands,
    /// Follows the protocol as far as possible without a secret, and sends a plan.
    Pretends,
    /// Relays the messages between agent and launcher.
    Relays,
    /// Closes the connection in the middle of a message.
    HangsUp,
}

const HOST: &str = "127.0.0.1";

/// Runs a job of one rank whose agent connects to a false launcher at its first address. With `ssh`, SSH_CONNECTION
/// contains that address; otherwise the invitation does. Returns the bytes that the false launcher got from both sides.
fn with_false_launcher(name: &str, trick: Trick, ssh: bool) -> (Vec<u8>, Vec<u8>) {
    let scratch = Scratch::new(name);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let false_one = Ipv4Addr::new(127, 95, high, low);
    // The coordinator listens at 127.0.0.1 only, so that the false launcher can use the same port at its own address.
    let mut job = Job::new("-n 1 --address 127.0.0.1 --hosts 127.0.0.1 --ssh");
    job.command.arg(shell_that_asks(&scratch, &[HOST])).args(["--", "echo", "done"]);
    if ssh {
        job.command.env("SSH_CONNECTION", format!("{false_one} 5022 127.0.0.1 22"));
    }
    let job = job.start();
    let mut invitation = invitation(&scratch, HOST);
    let coordinator = SocketAddr::from((Ipv4Addr::LOCALHOST, invitation["port"].as_u64().unwrap() as u16));
    let listener = TcpListener::bind((false_one, coordinator.port())).unwrap();
    invitation["is_given"] = json!(false);
    if !ssh {
        invitation["addresses"] = json!([false_one, Ipv4Addr::LOCALHOST]);
    }
    let marker = scratch.0.join("obeyed");
    let plan = plan(marker.to_str().unwrap());
    let (said, heard) = channel();
    thread::spawn(move || {
        let (stranger, _) = listener.accept().unwrap();
        drop(listener);
        said.send(play(trick, stranger, coordinator, &plan)).unwrap();
    });
    std::fs::write(scratch.0.join(format!("go-{HOST}")), format!("{invitation}\n")).unwrap();
    let said = heard.recv_timeout(PATIENCE).expect("the false launcher was called");
    assert_eq!(job.finish(), (Some(0), "done\n".to_owned(), String::new()));
    assert!(!marker.exists(), "the false launcher was obeyed");
    // Neither secret was sent, as a JSON list of numbers or as raw bytes.
    let mut secrets = Vec::new();
    find_secrets(&invitation, &mut secrets);
    assert!(!secrets.is_empty());
    for secret in secrets {
        let bytes: Vec<u8> = secret.iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
        for form in [serde_json::to_vec(&secret).unwrap(), bytes] {
            assert!(!said.0.windows(form.len()).any(|window| window == form), "a secret was told");
        }
    }
    said
}

/// Finds the lists of numbers in a value. In an invitation these are the secrets.
fn find_secrets(value: &Value, found: &mut Vec<Vec<Value>>) {
    match value {
        Value::Array(list) if list.first().is_some_and(Value::is_number) => found.push(list.clone()),
        Value::Object(fields) => fields.values().for_each(|value| find_secrets(value, found)),
        _ => {}
    }
}

/// Returns a plan that starts a process which creates the file `marker`.
fn plan(marker: &str) -> Vec<u8> {
    let words = |word: &str| json!({ "Unix": word.as_bytes() });
    let plan = json!({ "start": {
        "job": "0000000000000001", "secret": vec![0; 16], "size": 1, "ranks": { "start": 0, "end": 1 }, "host": 0,
        "hosts": 1, "detection": { "secs": 10, "nanos": 0 }, "restarts": 0, "bind": "none", "transport": null,
        "env": [], "prefix": false, "stats": false,
        "program": words("/bin/sh"), "args": [words("-c"), words(&format!("touch {marker}"))],
    } });
    format!("{plan}\n").into_bytes()
}

/// Plays the false launcher. Returns the bytes from the agent and from the launcher.
fn play(trick: Trick, mut agent: TcpStream, coordinator: SocketAddr, plan: &[u8]) -> (Vec<u8>, Vec<u8>) {
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut by_agent, mut by_coordinator) = (Vec::new(), Vec::new());
    match trick {
        Trick::Commands => agent.write_all(plan).unwrap(),
        Trick::Pretends => {
            writeln!(agent, "{}", json!({ "nonce": vec![0; 16] })).unwrap();
            BufReader::new(&agent).read_until(b'\n', &mut by_agent).unwrap();
            writeln!(agent, "{}", json!({ "proof": vec![0; 32] })).unwrap();
            agent.write_all(plan).unwrap();
        }
        Trick::Relays => {
            let launcher = TcpStream::connect(coordinator).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| by_coordinator = pass_on(&launcher, &agent));
                by_agent = pass_on(&agent, &launcher);
            });
        }
        Trick::HangsUp => {
            agent.write_all(b"{\"nonce\":[0,").unwrap();
            agent.shutdown(Shutdown::Write).unwrap();
        }
    }
    // The read ends when the agent, or a process that it has started, closes the connection.
    let _ = agent.read_to_end(&mut by_agent);
    (by_agent, by_coordinator)
}

fn pass_on(mut from: &TcpStream, mut to: &TcpStream) -> Vec<u8> {
    from.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        all.extend_from_slice(&chunk[..count]);
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    all
}

#[test]
fn a_false_launcher_is_not_obeyed() {
    with_false_launcher("trust-commands", Trick::Commands, false);
}

#[test]
fn a_false_launcher_that_speaks_the_protocol_is_not_obeyed_and_learns_no_secret() {
    let (by_agent, _) = with_false_launcher("trust-pretends", Trick::Pretends, false);
    // The false launcher got a proof, but this proof is valid for its own connection only.
    assert!(String::from_utf8(by_agent).unwrap().contains("\"proof\""));
}

#[test]
fn a_false_launcher_cannot_take_the_agents_place() {
    let (by_agent, by_coordinator) = with_false_launcher("trust-relays", Trick::Relays, false);
    let [by_agent, by_coordinator] = [by_agent, by_coordinator].map(|text| String::from_utf8(text).unwrap());
    assert!(by_agent.contains("\"proof\""), "{by_agent}");
    assert!(by_coordinator.contains("\"nonce\"") && !by_coordinator.contains("start"), "{by_coordinator}");
}

#[test]
fn the_address_of_the_remote_shells_caller_is_called_first() {
    with_false_launcher("trust-ssh", Trick::HangsUp, true);
}

#[test]
fn an_invitation_of_another_version_is_refused() {
    let scratch = Scratch::new("trust-version");
    let mut job = Job::new("-n 1 --hosts 127.0.0.1 --ssh");
    job.command.arg(shell_that_asks(&scratch, &[HOST])).args(["--", "true"]);
    let job = job.start();
    let mut invitation = invitation(&scratch, HOST);
    invitation["protocol"] = json!(1);
    std::fs::write(scratch.0.join(format!("go-{HOST}")), format!("{invitation}\n")).unwrap();
    let (code, _, stderr) = job.finish();
    assert_eq!(code, Some(1));
    assert!(stderr.contains("`samite run` speaks version 1 of the protocol"), "{stderr}");
    assert!(stderr.contains("use one release on all hosts"), "{stderr}");
}
