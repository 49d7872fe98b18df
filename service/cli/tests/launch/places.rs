//! False directories and sockets at the places where `samite ps` and `samite top` look for jobs.

use std::fs::{self, DirBuilder, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::getuid;
use serde_json::json;

use crate::support::{Job, Scratch, text};

/// Returns this user's private directory in which `samite` looks for jobs.
fn place(scratch: &Scratch) -> PathBuf {
    let path = scratch.0.join("samite");
    DirBuilder::new().mode(0o700).create(&path).unwrap();
    path
}

/// Starts a listener that imitates a job and answers every connection until the value is dropped.
fn pretend(place: &Path, answer: impl Fn(UnixStream) + Send + 'static) -> Sender<()> {
    let path = place.join(format!("{NAME}.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let (end, ended) = channel();
    let answering = move || {
        for connection in listener.incoming() {
            if matches!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
                return;
            }
            answer(connection.unwrap());
        }
    };
    thread::Builder::new().spawn(answering).unwrap();
    end
}

const NAME: &str = "00000000000000ab";

/// Returns the answer of a job in which every text contains control sequences for terminals.
fn answer() -> String {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}\r\nsamite: a line of another";
    let figures = json!({
        "age_ns": 1, "sent": 1, "bytes_sent": 1, "received": 1, "bytes_received": 1, "operations": 1, "unexpected": 1,
        "unexpected_messages": 1, "unexpected_max": 1, "requests": 1, "queued": 1, "waited_ns": 1,
        "awaits": { "is_send": true, "peer": 1, "tag": 1, "bytes": 1, "age_ns": 1, "awaited": evil }
    });
    let rank = |rank: u32, ending: serde_json::Value| {
        json!({
            "rank": rank, "host": evil, "incarnation": 1, "is_stopped": false, "ending": ending, "figures": figures,
            "is_answer": true, "figures_age_ms": 1
        })
    };
    let lost = json!({ "lost": { "host": evil, "how": evil } });
    let ranks = [rank(0, json!(null)), rank(1, lost)];
    json!({ "job": NAME, "pid": 1, "program": evil, "transport": evil, "age_ms": 1, "ranks": ranks })
        .to_string()
        + "\n"
}

fn answering(place: &Path) -> Sender<()> {
    pretend(place, |mut connection| drop(connection.write_all(answer().as_bytes())))
}

fn samite(arguments: &str, scratch: &Scratch) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
    command.args(arguments.split_whitespace()).env("XDG_RUNTIME_DIR", &scratch.0).output().unwrap()
}

#[test]
fn text_of_a_job_does_nothing_to_the_terminal() {
    let scratch = Scratch::new("escapes");
    let _job = answering(&place(&scratch));
    for command in [
        "ps",
        "ps --json",
        &format!("top {NAME} --once --interval 0.01"),
        &format!("top {NAME} --once --json"),
    ] {
        let output = samite(command, &scratch);
        assert!(output.status.success(), "{output:?}");
        let told = text(&output.stdout);
        assert!(told.contains("u{1b}") && told.contains("u{202e}"), "{command}: {told}");
        let acts = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
        assert_eq!(told.chars().find(acts), None, "{command}: {told}");
        assert!(!told.contains("\nsamite: a line"), "{command}: {told}");
    }
}

#[test]
fn unknown_answers_are_quoted_without_effect() {
    let scratch = Scratch::new("foreign");
    let line = answer().replace(&json!("lost").to_string(), "\"\\u001b[2J\"");
    let _job = pretend(&place(&scratch), move |mut connection| drop(connection.write_all(line.as_bytes())));
    let output = samite("ps", &scratch);
    let told = text(&output.stderr);
    assert!(told.contains("unknown variant `\\u{1b}[2J`"), "{told}");
    assert!(!told.contains('\u{1b}'));
}

/// Checks that `ps` does not list the false job and says why it does not use the directory, and that `top` fails.
fn is_refused(scratch: &Scratch, why: &str) {
    let output = samite("ps", scratch);
    assert!(!text(&output.stdout).contains(NAME), "{output:?}");
    assert!(text(&output.stderr).contains(why), "{output:?}");
    let output = samite(&format!("top {NAME} --once"), scratch);
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_directory_that_others_may_use_is_not_looked_in() {
    let scratch = Scratch::new("mode");
    let place = place(&scratch);
    let _job = answering(&place);
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    is_refused(&scratch, "its mode is 0777");
    // A job that starts now does not use this directory either, and says so. It runs as usual.
    let mut job = Job::shell("-n 1", "true");
    job.command.env("XDG_RUNTIME_DIR", &scratch.0);
    assert!(job.output().status.success());
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    assert!(text(&samite("ps", &scratch).stdout).contains(NAME));
}

#[test]
fn a_directory_of_another_user_is_not_looked_in_and_nothing_there_is_removed() {
    let scratch = Scratch::new("owner");
    let place = place(&scratch);
    // This socket is stale. In a directory that is trusted, it would be removed.
    let stale = place.join("00000000000000cd.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let _job = answering(&place);
    if getuid().is_root() {
        chown(&place, Some(65534), Some(65534)).unwrap();
        is_refused(&scratch, "it belongs to user 65534");
    } else {
        // Only root can give the directory to another user, but any user can let the group use it.
        fs::set_permissions(&place, Permissions::from_mode(0o770)).unwrap();
        is_refused(&scratch, "its mode is 0770");
    }
    assert!(stale.exists());
}

#[test]
fn a_link_to_a_directory_is_not_followed() {
    let scratch = Scratch::new("link");
    let place = place(&scratch);
    let _job = answering(&place);
    let elsewhere = scratch.0.join("elsewhere");
    fs::rename(&place, &elsewhere).unwrap();
    symlink(&elsewhere, &place).unwrap();
    is_refused(&scratch, "a link");
}

#[test]
fn a_link_to_a_socket_is_not_followed() {
    let scratch = Scratch::new("socket-link");
    let place = place(&scratch);
    let _job = answering(&place);
    let (name, elsewhere) = (place.join(format!("{NAME}.sock")), scratch.0.join("elsewhere"));
    fs::rename(&name, &elsewhere).unwrap();
    symlink(&elsewhere, &name).unwrap();
    is_refused(&scratch, "");
}

#[test]
fn a_socket_that_others_may_use_is_not_connected_to() {
    let scratch = Scratch::new("socket-mode");
    let place = place(&scratch);
    let _job = answering(&place);
    fs::set_permissions(place.join(format!("{NAME}.sock")), Permissions::from_mode(0o666)).unwrap();
    is_refused(&scratch, "");
}

#[test]
fn an_answer_without_end_is_given_up() {
    let scratch = Scratch::new("endless");
    let chunk = vec![b'x'; 1 << 20];
    let _job = pretend(&place(&scratch), move |mut connection| while connection.write_all(&chunk).is_ok() {});
    let output = samite("ps", &scratch);
    assert!(text(&output.stderr).contains("answers more than"), "{output:?}");
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_given_up() {
    let scratch = Scratch::new("slow");
    let _job = pretend(&place(&scratch), |mut connection| {
        let (_keep, tick) = channel::<()>();
        while connection.write_all(b"x").is_ok() {
            let _ = tick.recv_timeout(Duration::from_millis(50));
        }
    });
    let output = samite("ps", &scratch);
    assert!(text(&output.stderr).contains("does not answer"), "{output:?}");
}
