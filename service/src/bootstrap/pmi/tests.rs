//! Tests with a launcher of our own, which imitates recorded answers of Hydra and Slurm.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use samite_control::Secret;
use samite_fabric::Address;
use samite_os::process::{Place, Process};

use super::super::entry::Entry;
use super::super::key_values::KeyValuesDirectory;
use super::*;
use crate::runtime::{Directory, Notice};

/// The launcher's side of a job: the stored values, and the number of each command.
struct Launcher {
    wire: Wire,
    size: u32,
    fence: Barrier,
    values: Mutex<HashMap<String, String>>,
    commands: Mutex<BTreeMap<String, u32>>,
}

const SPACE: &str = "kvs_77_0";

impl Launcher {
    fn new(wire: Wire, size: u32) -> Arc<Launcher> {
        let values = HashMap::from([(MAPPING.to_owned(), format!("(vector,(0,2,{}))", size.div_ceil(2)))]);
        let fence = Barrier::new(size as usize);
        Arc::new(Launcher { wire, size, fence, values: Mutex::new(values), commands: Mutex::default() })
    }

    /// Serves one process until it has finalized, or is gone.
    fn serve(&self, rank: u32, mut stream: UnixStream) {
        let (mut wire, mut inbound) = (Wire::One, Vec::new());
        loop {
            let Some((asked, length)) = wire.decode(&inbound).unwrap() else {
                let mut chunk = [0; 100];
                match stream.read(&mut chunk) {
                    Ok(count @ 1..) => inbound.extend_from_slice(&chunk[..count]),
                    _ => return,
                }
                continue;
            };
            inbound.drain(..length);
            *self.commands.lock().unwrap().entry(asked.command().to_owned()).or_default() += 1;
            let answer = self.answer(rank, &asked);
            stream.write_all(&answer).unwrap();
            match asked.command() {
                "finalize" => return,
                "init" => wire = self.wire,
                _ => {}
            }
        }
    }

    fn answer(&self, rank: u32, asked: &Words) -> Vec<u8> {
        let word = |key| asked.get(key).unwrap_or_else(|| panic!("{asked:?} has no {key}"));
        let value = || self.values.lock().unwrap().get(word("key")).cloned();
        let (rank, size) = (rank.to_string(), self.size.to_string());
        let encode = |command, words: &[(&str, &str)]| self.wire.encode(command, words);
        if asked.get("kvsname").is_some_and(|name| name != SPACE) {
            panic!("a launcher ends the job for the name of another space: {asked:?}");
        }
        match (asked.command(), self.wire) {
            ("init", _) => {
                let version = word("pmi_version");
                Wire::One.encode("response_to_init", &[("pmi_version", version), ("rc", "0")])
            }
            ("get_maxes", Wire::One) => encode("maxes", &[("keylen_max", "64"), ("vallen_max", "1024")]),
            ("get_my_kvsname", Wire::One) => encode("my_kvsname", &[("kvsname", SPACE)]),
            ("put", Wire::One) | ("kvs-put", Wire::Two) => {
                self.values.lock().unwrap().insert(word("key").to_owned(), word("value").to_owned());
                let answer = if self.wire == Wire::One { "put_result" } else { "kvs-put-response" };
                encode(answer, &[("rc", "0")])
            }
            ("barrier_in", Wire::One) => {
                self.fence.wait();
                encode("barrier_out", &[("tag", "0")])
            }
            ("kvs-fence", Wire::Two) => {
                self.fence.wait();
                encode("kvs-fence-response", &[("rc", "0")])
            }
            ("get", Wire::One) => match value() {
                Some(value) => encode("get_result", &[("rc", "0"), ("msg", "success"), ("value", &value)]),
                None => encode("get_result", &[("rc", "-1"), ("msg", "not_found"), ("value", "unknown")]),
            },
            ("kvs-get", Wire::Two) | ("info-getjobattr", Wire::Two) => {
                let answer = format!("{}-response", asked.command());
                match value() {
                    Some(value) => encode(&answer, &[("rc", "0"), ("found", "TRUE"), ("value", &value)]),
                    None => encode(&answer, &[("rc", "0"), ("found", "FALSE")]),
                }
            }
            ("fullinit", Wire::Two) => {
                assert!(word("pmijobid").parse::<i32>().is_ok() && word("threaded") == "FALSE");
                encode("fullinit-response", &[("rc", "0"), ("rank", &rank), ("size", &size)])
            }
            ("finalize", Wire::One) => encode("finalize_ack", &[]),
            ("finalize", Wire::Two) => encode("finalize-response", &[("rc", "0")]),
            _ => panic!("no launcher knows {asked:?}"),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` as each rank of a job. Each rank is a thread. Returns the number of each command that the launcher got.
fn job(
    wire: Wire,
    size: u32,
    body: impl Fn(u32, Secret, KeyValuesDirectory) + Sync,
) -> BTreeMap<String, u32> {
    let launcher = Launcher::new(wire, size);
    thread::scope(|scope| {
        for rank in 0..size {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (launcher, body) = (&launcher, &body);
            scope.spawn(move || launcher.serve(rank, theirs));
            scope.spawn(move || {
                let candidate = PmiJob { fd: 0, rank, size, wire }.join_over(ours, PATIENCE).unwrap();
                assert_eq!(candidate.place.hosts, 2.min(size));
                let (secret, directory) = candidate.join(&address_of(rank)).unwrap();
                body(rank, secret, directory);
            });
        }
    });
    Arc::into_inner(launcher).unwrap().commands.into_inner().unwrap()
}

/// Runs `body` as the only rank of a job. `body` gets the launcher, the launcher's end of the connection, the job's
/// secret, and the directory.
fn alone(body: impl FnOnce(&Launcher, &UnixStream, Secret, KeyValuesDirectory)) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let launcher = Launcher::new(Wire::One, 1);
    thread::scope(|scope| {
        let held = theirs.try_clone().unwrap();
        scope.spawn(|| launcher.serve(0, theirs));
        let candidate = PmiJob { fd: 0, rank: 0, size: 1, wire: Wire::One }.join_over(ours, PATIENCE);
        let (secret, directory) = candidate.unwrap().join(&address_of(0)).unwrap();
        body(&launcher, &held, secret, directory);
    });
}

fn address_of(rank: u32) -> Address {
    Address(vec![rank as u8; 200])
}

/// Returns the next notice.
fn next(directory: &mut KeyValuesDirectory) -> Notice {
    loop {
        if let Some(notice) = directory.poll() {
            return notice;
        }
        let descriptor = directory.descriptor().unwrap();
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience)).unwrap() > 0);
    }
}

fn find(directory: &mut KeyValuesDirectory, secret: Secret, wanted: u32) {
    directory.request_address(wanted);
    match next(directory) {
        Notice::Address { rank, incarnation, address } => {
            assert_eq!((rank, &address), (wanted, &address_of(wanted)));
            assert_eq!(incarnation, secret.first_incarnation(wanted));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_ranks_find_each_other_and_share_a_secret() {
    for wire in [Wire::One, Wire::Two] {
        let secrets = Mutex::new(Vec::new());
        job(wire, 5, |_, secret, mut directory| {
            (0..5).for_each(|wanted| find(&mut directory, secret, wanted));
            assert!(directory.poll().is_none());
            directory.leave();
            secrets.lock().unwrap().push(secret);
        });
        let secrets = secrets.into_inner().unwrap();
        assert!(secrets.iter().all(|&secret| secret == secrets[0] && secret != Secret([0; 16])));
    }
}

/// The ranks communicate as in the example `hello`: all ranks send to rank 0, which grants credit to each.
#[test]
fn a_start_costs_each_rank_the_same_few_messages() {
    const SIZE: u32 = 64;
    let mut counted = String::new();
    for wire in [Wire::One, Wire::Two] {
        let commands = job(wire, SIZE, |rank, secret, mut directory| {
            match rank {
                0 => (1..SIZE).for_each(|wanted| find(&mut directory, secret, wanted)),
                _ => find(&mut directory, secret, 0),
            }
            directory.leave();
        });
        let total: u32 = commands.values().sum();
        writeln!(counted, "{wire:?}: {total} messages of {SIZE} ranks: {commands:?}").unwrap();
    }
    insta::assert_snapshot!(counted);
}

#[test]
fn a_launcher_that_goes_condemns() {
    alone(|_, held, _, mut directory| {
        assert!(directory.poll().is_none());
        held.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(matches!(directory.poll(), Some(Notice::Condemned { .. })));
        assert!(directory.poll().is_none());
        directory.request_address(0);
        assert!(matches!(directory.poll(), Some(Notice::Failed { rank: 0, .. })));
        directory.leave();
    });
}

#[test]
fn the_end_of_a_process_of_this_host_is_reported() {
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    alone(|launcher, _, _, mut directory| {
        let process = Process::of(child.id()).unwrap();
        let entry = Entry {
            size: 1,
            secret: None,
            process: Some((Place::current().unwrap(), process)),
            address: vec![7],
        };
        launcher.values.lock().unwrap().insert(key(1), entry.to_string());
        directory.request_address(1);
        assert!(matches!(next(&mut directory), Notice::Address { rank: 1, .. }));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(next(&mut directory), Notice::Failed { rank: 1, .. }));
        // A second request for the address of the ended rank also returns that it has ended.
        directory.request_address(1);
        assert!(matches!(next(&mut directory), Notice::Failed { rank: 1, .. }));
        assert!(directory.poll().is_none());
        directory.leave();
    });
}

/// Checks that no call waits for a slow launcher.
#[test]
fn a_slow_launcher_holds_nothing_up() {
    alone(|launcher, _, secret, mut directory| {
        let busy = launcher.values.lock().unwrap();
        directory.request_address(0);
        assert!(directory.poll().is_none());
        drop(busy);
        match next(&mut directory) {
            Notice::Address { incarnation, .. } => assert_eq!(incarnation, secret.first_incarnation(0)),
            other => panic!("{other:?}"),
        }
        directory.leave();
    });
}

/// Returns the error of rank 1 of 2 with a launcher that sends these answers.
fn said(wire: Wire, answers: &str) -> String {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(answers.as_bytes()).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let address = Address(vec![0; if answers.contains("vallen_max=100") { 100 } else { 10 }]);
    let candidate = PmiJob { fd: 0, rank: 1, size: 2, wire }.join_over(ours, PATIENCE);
    match candidate.map_err(Refusal::pmi).and_then(|candidate| candidate.join(&address)) {
        Ok(_) => "joined".to_owned(),
        // The message begins with the length of an entry. The length depends on this process's id, so it is removed.
        Err(Refusal::Exchange { source, .. }) if source.to_string().ends_with("SAMITE_TRANSPORT") => {
            let said = source.to_string();
            said.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned()
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_error_says_what_to_do() {
    let begun = "cmd=response_to_init rc=0\ncmd=maxes\ncmd=my_kvsname kvsname=k\ncmd=get_result rc=-1\n";
    let met = "cmd=put_result\ncmd=barrier_out\ncmd=get_result value=";
    let mut messages = String::new();
    for (wire, answers) in [
        (Wire::One, String::new()),
        (Wire::One, "cmd=response_to_init rc=-1 msg=version_mismatch\n".into()),
        (Wire::One, "cmd=barrier_out\n".into()),
        (Wire::One, "HTTP/1.1 400 Bad Request\n".into()),
        (Wire::One, "cmd=response_to_init rc=0\ncmd=maxes\ncmd=my_kvsname\n".into()),
        (Wire::One, begun.replace("maxes", "maxes vallen_max=100")),
        (Wire::One, format!("{begun}cmd=put_result rc=-1 msg=duplicate_key\n")),
        (Wire::One, begun.to_owned()),
        (Wire::One, format!("{begun}{}\n", met.replace("value=", "rc=-1 value=unknown"))),
        (Wire::One, format!("{begun}{met}OFI:10.0.0.1\n")),
        (Wire::One, format!("{begun}{met}2.-.-.-.-.-.00\n")),
        (Wire::One, format!("{begun}{met}3.0.-.-.-.-.00\n")),
        (Wire::One, format!("{begun}{met}2.0.-.-.-.-.00\n")),
        (Wire::Two, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".into()),
        (Wire::Two, "cmd=response_to_init rc=0 pmi_version=2\nwrong".into()),
        (Wire::Two, "cmd=response_to_init rc=0 pmi_version=2\nwrong!".into()),
        (
            Wire::Two,
            "cmd=response_to_init rc=0 pmi_version=2\n    40cmd=fullinit-response;rc=0;rank=1;size=3;".into(),
        ),
    ] {
        writeln!(messages, "{}\n    {}", answers.trim_end().replace('\n', "\n  "), said(wire, &answers))
            .unwrap();
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn a_launcher_that_does_not_answer_is_given_up() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let job = PmiJob { fd: 0, rank: 0, size: 1, wire: Wire::One };
    let error = job.join_over(ours, Duration::from_millis(10)).err().expect("nobody answers");
    assert!(matches!(error, PmiError::NoAnswer("init")), "{error}");
}

/// The launcher answers after the time limit. The next command must not take that answer for its own.
#[test]
fn after_a_missing_answer_nothing_is_asked_any_more() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut pmi = Pmi {
        stream: ours,
        inbound: Vec::new(),
        unanswered: None,
        wire: Wire::One,
        space: SPACE.to_owned(),
        value_max: VALUE_MAX_OF_PMI_2,
        rank: 0,
    };
    pmi.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    assert!(matches!(pmi.get("of 1"), Err(PmiError::NoAnswer("get"))));
    (&theirs).write_all(b"cmd=get_result rc=0 value=1\n").unwrap();
    assert!(matches!(pmi.get("of 2"), Err(PmiError::NoAnswer("get"))));
}
