use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Barrier, Mutex};
use std::thread;

use samite_control::{Place, Secret};
use samite_fabric::Address;

use super::*;
use crate::runtime::{Directory, Notice};

const DETECTION: Duration = Duration::from_secs(10);

/// A time limit that a test reaches only if it would wait forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns an address that no other test uses: its host part contains the id of this process and the number of the
/// test.
fn address_of_test(test: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{}.{}:7000", 100 + test, high, low)
}

fn rank(address: &str, rank: u32, size: u32) -> Rendezvous {
    Rendezvous { address: address.to_owned(), rank, size }
}

fn next(guest: &mut Guest) -> Notice {
    loop {
        if let Some(notice) = guest.poll() {
            return notice;
        }
        let descriptor = guest.descriptor().expect("it has not left");
        let watched = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        assert_eq!(poll(&mut [watched], Some(&timespec(PATIENCE))).unwrap(), 1, "no notice came");
    }
}

fn where_is(guest: &mut Guest, wanted: u32) -> Address {
    guest.request_address(wanted);
    loop {
        match next(guest) {
            Notice::Address { rank, address, .. } => {
                assert_eq!(rank, wanted);
                return address;
            }
            // In `meet` no rank leaves before all ranks have all addresses. An early notice would do no harm.
            Notice::Left { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Lets each rank request the address of every other rank, then leave. Returns the secrets that the ranks got.
fn meet(address: &str, size: u32) -> Vec<Secret> {
    let (secrets, done) = (Mutex::new(Vec::new()), Barrier::new(size as usize));
    thread::scope(|scope| {
        for number in 0..size {
            let (secrets, done) = (&secrets, &done);
            scope.spawn(move || {
                let Met { ticket, mut guest } =
                    rank(address, number, size).join(DETECTION, PATIENCE).unwrap();
                assert_eq!((ticket.rank, ticket.size), (number, size));
                assert_eq!(ticket.place, Place { host: 0, hosts: 1, neighbours: size, address: None });
                guest.publish(&Address(vec![number as u8; 300])).unwrap();
                for other in 0..size {
                    assert_eq!(where_is(&mut guest, other), Address(vec![other as u8; 300]));
                }
                done.wait();
                secrets.lock().unwrap().push(ticket.secret);
                guest.leave();
            });
        }
    });
    secrets.into_inner().unwrap()
}

#[test]
fn ranks_meet_where_rank_0_listens() {
    let address = address_of_test(0);
    let secrets = meet(&address, 5);
    assert!(secrets.len() == 5 && secrets.iter().all(|secret| *secret == secrets[0]));
    // The address is free again, and the next job has its own secret.
    assert_ne!(meet(&address, 2)[0], secrets[0]);
}

#[test]
fn ranks_meet_where_another_process_listens() {
    let server = Server::open("127.0.0.1:0", 3, false, DETECTION, PATIENCE).unwrap();
    let address = server.address().unwrap().to_string();
    thread::scope(|scope| {
        let served = scope.spawn(|| server.run(None));
        assert_eq!(meet(&address, 3).len(), 3);
        assert_eq!(served.join().unwrap().unwrap(), [] as [u32; 0]);
    });
}

#[test]
fn ranks_that_end_without_a_goodbye_have_failed() {
    let address = address_of_test(1);
    let gone = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let met = rank(&address, 1, 3).join(DETECTION, PATIENCE).unwrap();
            gone.wait();
            drop(met);
        });
        scope.spawn(|| {
            let mut guest = rank(&address, 2, 3).join(DETECTION, PATIENCE).unwrap().guest;
            guest.panicked();
        });
        let Met { ticket, mut guest } = rank(&address, 0, 3).join(DETECTION, PATIENCE).unwrap();
        let mut heard = HashSet::new();
        gone.wait();
        while heard.len() < 2 {
            match next(&mut guest) {
                Notice::Failed { rank, incarnation, how, returns: false } => {
                    assert_eq!(incarnation, ticket.secret.first_incarnation(rank));
                    heard.insert((rank, how));
                }
                other => panic!("{other:?}"),
            }
        }
        let expected = [(1, "it ended without a word"), (2, "it panicked")];
        assert_eq!(heard, expected.map(|(rank, how)| (rank, how.to_owned())).into());
        guest.leave();
    });
}

/// Starts a server that sends `text` to its first client, and closes the connection. Returns the server's address.
fn place_that_says(text: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    #[expect(clippy::disallowed_methods, reason = "a place is another process")]
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut channel = Channel::new(stream.try_clone().unwrap());
        // Closing with unread bytes would discard the answer.
        while !matches!(channel.receive::<Join>(), Ok(Incoming::Message(_))) {
            thread::yield_now();
        }
        stream.write_all(&text).unwrap();
    });
    address
}

#[test]
fn the_job_goes_on_without_its_place() {
    for is_hosted in [true, false] {
        let ticket = Ticket {
            protocol: PROTOCOL,
            job: JobId(1),
            secret: Secret([1; 16]),
            rank: 1,
            size: 3,
            incarnation: 7,
            place: Place::ALONE,
        };
        let mut welcome = serde_json::to_vec(&Reception::Welcome { ticket, is_hosted }).unwrap();
        welcome.push(b'\n');
        let address = place_that_says(welcome);
        let mut guest = rank(&address, 1, 3).join(DETECTION, PATIENCE).unwrap().guest;
        if is_hosted {
            assert!(matches!(next(&mut guest), Notice::Failed { rank: 0, .. }));
        } else {
            while guest.descriptor().is_some() {
                assert!(guest.poll().is_none());
            }
        }
        guest.request_address(2);
        assert!(matches!(guest.poll(), Some(Notice::Failed { rank: 2, .. })));
        assert!(guest.poll().is_none());
        guest.leave();
    }
}

/// Checks that an attempt to join ends at its time limit if the address drops connections: the queue of its listener is
/// full, and no process accepts from it.
#[test]
fn who_is_not_let_in_does_not_wait_longer_than_asked_for() {
    let family = rustix::net::AddressFamily::INET;
    let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let address = TcpListener::from(socket.try_clone().unwrap()).local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(20)) {
        queue.push(stream);
    }
    let begin = now();
    let met = rank(&address.to_string(), 1, 2).join(DETECTION, Duration::from_millis(100));
    assert!(matches!(met.err().unwrap(), Refusal::NoRendezvous { .. }));
    assert!(now() - begin < CONNECT_WITHIN / 2);
}

#[test]
fn every_error_says_what_to_do() {
    let messages = Mutex::new(String::new());
    let note = |what: &str, why: &str| writeln!(messages.lock().unwrap(), "{what}\n    {why}").unwrap();
    let say = |what: &str, met: Result<Met, Refusal>, address: &str| {
        note(what, &met.err().expect(what).to_string().replace(address, "HOST:PORT"));
    };
    let short = Duration::from_millis(20);
    let nowhere = address_of_test(2);
    say("nobody listens", rank(&nowhere, 1, 2).join(DETECTION, short), &nowhere);
    say("no such host", rank("no such host:1", 1, 2).join(DETECTION, short), "no such host:1");

    let web = place_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    say("another service", rank(&web, 1, 2).join(DETECTION, Duration::ZERO), &web);
    let mute = place_that_says(Vec::new());
    say("one that closes", rank(&mute, 0, 2).join(DETECTION, Duration::ZERO), &mute);

    let server = Server::open("127.0.0.1:0", 2, false, DETECTION, Duration::from_millis(200)).unwrap();
    let address = server.address().unwrap().to_string();
    thread::scope(|scope| {
        let served = scope.spawn(|| server.run(None));
        say("another size", rank(&address, 1, 3).join(DETECTION, PATIENCE), &address);
        say("no such rank", rank(&address, 2, 2).join(DETECTION, PATIENCE), &address);
        let mut old = Channel::new(TcpStream::connect(&address).unwrap());
        old.send(&Join { protocol: 1, rank: 0, size: 2, host: String::new() }).unwrap();
        let Reception::Refused { why } = answer(&mut old, now() + PATIENCE).unwrap() else { panic!() };
        note("another release", &why);

        let mut first = Channel::new(TcpStream::connect(&address).unwrap());
        first.send(&Join { protocol: PROTOCOL, rank: 1, size: 2, host: String::new() }).unwrap();
        let mut second = Channel::new(TcpStream::connect(&address).unwrap());
        second.send(&Join { protocol: PROTOCOL, rank: 1, size: 2, host: String::new() }).unwrap();
        let Reception::Refused { why } = answer(&mut second, now() + PATIENCE).unwrap() else { panic!() };
        note("the same rank twice", &why);
        let Reception::Refused { why } = answer(&mut first, now() + PATIENCE).unwrap() else { panic!() };
        note("others who do not come", &why);
        let error = served.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::TimedOut, why));
    });
    insta::assert_snapshot!(messages.into_inner().unwrap());
}
