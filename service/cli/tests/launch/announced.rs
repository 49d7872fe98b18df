//! Messages that their receiver cannot take: the sender gets an error, and later messages arrive.

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use samite::{Comm, Error, Rank};

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};

const LENGTH: usize = 2 << 30;

fn run(name: &str) {
    for transport in TRANSPORTS {
        output_of(job_of_test(&format!("announced::{name}"), &format!("-n 2 {transport}")));
    }
}

/// Returns a field of `/proc/self/statm` in bytes. Field 0 is the size of the address space, and field 1 the size of
/// its resident part.
fn memory(field: usize) -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(field).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Checks that rank 1 holds no message with tag 1 any more. A message with tag 9 arrives behind all earlier messages.
fn assert_all_is_used_up(world: &Comm) {
    match world.rank() {
        Rank(0) => {
            world.send(&[7_u8], Rank(1), 9).unwrap();
            world.recv(&mut [0_u8], Rank(1), 9).unwrap();
        }
        _ => {
            world.recv(&mut [0_u8], Rank(0), 9).unwrap();
            assert_eq!(world.try_probe(Rank(0), 1), Ok(None));
            world.send(&[7_u8], Rank(0), 9).unwrap();
        }
    }
}

#[test]
fn what_there_is_no_memory_for_is_used_up() {
    if !is_rank() {
        return run("what_there_is_no_memory_for_is_used_up");
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    world.sendrecv(&[1_u8], Rank(1 - world.rank().0), 0, &mut [0_u8], Rank(1 - world.rank().0), 0).unwrap();
    if world.rank() == 0 {
        for _ in 0..3 {
            // Untouched pages take no memory.
            world.isend(vec![0_u8; LENGTH], Rank(1), 1).unwrap().wait().unwrap();
        }
    } else {
        let limit = Some(memory(0) + LENGTH as u64 / 2);
        setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
        let is_refused = |error: Error| matches!(error, Error::Exhausted { .. });
        assert!(is_refused(world.recv_vec::<u8>(Rank(0), 1).unwrap_err()));
        assert!(is_refused(world.claim(Rank(0), 1).unwrap().recv::<u64>().unwrap_err()));
        assert!(is_refused(world.claim(Rank(0), 1).unwrap().recv::<[u8; 16]>().unwrap_err()));
    }
    assert_all_is_used_up(&world);
}

#[test]
fn a_message_of_no_whole_elements_is_used_up() {
    if !is_rank() {
        return run("a_message_of_no_whole_elements_is_used_up");
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    // Lengths of an eager message, of a stream, and of a message by rendezvous.
    for length in [3, 100_001, 1_000_001] {
        if world.rank() == 0 {
            let data = vec![1_u8; length];
            world.send(&data, Rank(1), 1).unwrap();
            world.isend(data, Rank(1), 1).unwrap().wait().unwrap();
        } else {
            for _ in 0..2 {
                let error = world.claim(Rank(0), 1).unwrap().recv::<u32>().unwrap_err();
                assert!(
                    matches!(&error, Error::PartialElement { status, element: 4 } if status.bytes == length),
                    "{error}"
                );
            }
        }
    }
    // A claimed message that is dropped is used up too.
    match world.rank() {
        Rank(0) => world.send(&vec![1_u8; 1_000_000], Rank(1), 1).unwrap(),
        _ => drop(world.claim(Rank(0), 1).unwrap()),
    }
    assert_all_is_used_up(&world);
}

/// The sender announces a long message, and its process is stopped before it sends the bytes.
#[test]
fn memory_for_bytes_that_do_not_come_is_not_touched() {
    if !is_rank() {
        return run("memory_for_bytes_that_do_not_come_is_not_touched");
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    let mut pid = [0_i32];
    world
        .sendrecv(
            &[getpid().as_raw_pid()],
            Rank(1 - world.rank().0),
            0,
            &mut pid,
            Rank(1 - world.rank().0),
            0,
        )
        .unwrap();
    if world.rank() == 0 {
        let sent = world.isend(vec![0_u8; LENGTH], Rank(1), 1).unwrap();
        kill_process(getpid(), Signal::STOP).unwrap();
        // The receiver has abandoned the message.
        let error = sent.wait().unwrap_err().error;
        assert!(matches!(error, Error::Abandoned { rank: Rank(1), .. }), "{error}");
    } else {
        let message = world.with_timeout(PATIENCE / 200).claim(Rank(0), 1).unwrap();
        let before = memory(1);
        let error = message.recv::<[u64; 4]>().unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(memory(1) < before + LENGTH as u64 / 8, "{before} and {}", memory(1));
        kill_process(Pid::from_raw(pid[0]).unwrap(), Signal::CONT).unwrap();
    }
    assert_all_is_used_up(&world);
}
