//! Matching without MPI: a dispatcher that pairs remote calls with the workers that wait for them.
//!
//! A call carries the service (the context), the client (the source), and the method with its priority (the tag). A
//! worker waits for calls of one service: for all calls, for the calls of one client, or for one method at any
//! priority. Calls without a waiting worker stay in a queue of limited memory.

use samite_matching::{Arrival, Config, Envelope, Matcher, Pattern, Posting, Purged};

/// The payload of a queued call: its arguments.
#[derive(Debug, PartialEq)]
struct Call {
    arguments: String,
}

/// A waiting worker.
#[derive(Debug, PartialEq)]
struct Worker {
    name: &'static str,
}

struct Dispatcher {
    matcher: Matcher<Worker, Call>,
    log: Vec<String>,
}

const STORAGE: u32 = 1;

/// The mask of the method, which is the lower half of the tag. The upper half is the priority.
const METHOD: u64 = 0xffff_ffff;
const READ: u64 = 1;
const WRITE: u64 = 2;

fn call(client: u32, method: u64, priority: u64) -> Envelope {
    Envelope::new(STORAGE, client, priority << 32 | method)
}

/// Returns a pattern for calls of a method by any client, at any priority.
fn calls_of(method: u64) -> Pattern {
    Pattern::exact(STORAGE, 0, method).any_source().masked(METHOD)
}

impl Dispatcher {
    /// Handles a call: gives it to a waiting worker, queues it, or rejects it.
    fn arrive(&mut self, envelope: Envelope, arguments: &str) {
        let call = || Call { arguments: arguments.to_owned() };
        match self.matcher.arrive(envelope, call) {
            Arrival::Matched(worker) => self.log.push(format!("{} runs {arguments}", worker.name)),
            Arrival::Queued(_) => self.log.push(format!("{arguments} waits")),
            Arrival::Refused => self.log.push(format!("{arguments} is to be sent again")),
        }
    }

    /// Registers a free worker.
    fn wait(&mut self, name: &'static str, pattern: Pattern) {
        match self.matcher.post(pattern, Worker { name }) {
            Posting::Matched { unexpected: call, posted: worker, .. } => {
                self.log.push(format!("{} runs {}", worker.name, call.arguments));
            }
            Posting::Queued(_) => self.log.push(format!("{name} waits")),
            Posting::Refused(worker) => self.log.push(format!("{} is turned away", worker.name)),
        }
    }

    /// Removes a client: its calls are dropped, and workers that waited only for it become free.
    fn disconnect(&mut self, client: u32) {
        let log = &mut self.log;
        self.matcher.purge_source(client, |purged| match purged {
            Purged::Posted(_, worker) => log.push(format!("{} is free again", worker.name)),
            Purged::Unexpected(_, call) => log.push(format!("{} is dropped", call.arguments)),
        });
    }
}

fn main() {
    let config = Config { bytes_max: Some(64 << 10), ..Config::default() };
    let mut dispatcher = Dispatcher { matcher: Matcher::new(&config), log: Vec::new() };

    dispatcher.wait("reader", calls_of(READ));
    dispatcher.arrive(call(7, WRITE, 0), "write a");
    dispatcher.arrive(call(9, READ, 3), "read b");
    dispatcher.arrive(call(9, WRITE, 1), "write c");
    dispatcher.wait("writer", calls_of(WRITE));
    dispatcher.wait("servant of 7", Pattern::exact(STORAGE, 7, 0).any_tag());
    dispatcher.disconnect(9);
    dispatcher.disconnect(7);

    let expected = [
        "reader waits",
        "write a waits",
        "reader runs read b",
        "write c waits",
        "writer runs write a",
        "servant of 7 waits",
        "write c is dropped",
        "servant of 7 is free again",
    ];
    assert_eq!(dispatcher.log, expected);
    assert_eq!(dispatcher.matcher.memory().in_use(), 0);
    show(&dispatcher.log);
}

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn show(log: &[String]) {
    for line in log {
        println!("{line}");
    }
}
