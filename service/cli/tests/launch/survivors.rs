//! Exchanges with a dead or unreachable rank among others: every exchange ends, and the survivors continue together.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::pin::{Pin, pin};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use samite::{Cause, Comm, Driver, Error, Rank, Source};
use smol::LocalExecutor;
use smol::future::poll_once;

use crate::ranks::{TRANSPORTS, is_rank, job_of_test};
use crate::support::{Job, text};

/// Time for reports to reach the survivors: much more than they take, and much less than any other wait here.
const SOON: Duration = Duration::from_secs(1);

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Sends `length` bytes to the next rank of the ring, and receives as many from the previous rank.
fn around(world: &Comm, length: usize, tag: u64) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let mut from = vec![0_u8; length];
    let status = world.sendrecv(
        &vec![1_u8; length],
        Rank((rank.0 + 1) % size),
        tag,
        &mut from,
        Rank((rank.0 + size - 1) % size),
        tag,
    )?;
    assert_eq!((status.bytes, from), (length, vec![1_u8; length]));
    Ok(())
}

/// Rank 2 of a ring of three ranks is killed during an exchange in which it takes no part. Both survivors get an error
/// without a deadline, although each also exchanges with the other survivor. They continue afterwards.
#[test]
fn a_ring_that_loses_a_rank_ends_and_its_rest_goes_on() {
    let name = "survivors::a_ring_that_loses_a_rank_ends_and_its_rest_goes_on";
    if !is_rank() {
        for transport in TRANSPORTS {
            let output = job_of_test(name, &format!("-n 3 --on-failure continue {transport}")).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(stdout.matches("went on").count(), 2, "{transport}: {stdout}{stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    for (round, length) in [8, 20_000, 1 << 20].into_iter().enumerate() {
        around(comm, length, round as u64).unwrap();
    }
    if comm.rank() == 2 {
        // Ranks 0 and 1 are in the exchange in which rank 2 takes no part, or about to begin it.
        for _ in 0..2 {
            comm.recv(&mut [0_u8], Source::ANY, 8).unwrap();
        }
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    comm.send(&[1_u8], Rank(2), 8).unwrap();
    // The first message is long, since a short message would be sent before rank 2 dies, and its send would succeed.
    for (round, length) in [1 << 20, 8, 20_000, 1 << 20].into_iter().enumerate() {
        let begin = now();
        let error = around(comm, length, 9).unwrap_err();
        let is_told = match &error {
            Error::PeerFailed { rank: Rank(2), .. } => true,
            // Rank 0 learned before rank 1 that rank 2 was dead, and cancelled its send to rank 1.
            Error::Abandoned { rank: Rank(0), .. } => round == 0 && comm.rank() == 1,
            _ => false,
        };
        assert!(is_told, "{error}");
        let error = comm.recv(&mut [0_u8], Rank(2), 8).unwrap_err();
        assert!(matches!(error, Error::PeerFailed { rank: Rank(2), .. }), "{error}");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        // The two survivors exchange messages under another tag, so that none of them matches a message of the failed
        // exchange.
        let (mut from, other) = (vec![0_u8; length], Rank(1 - comm.rank().0));
        comm.sendrecv(&vec![1_u8; length], other, 10, &mut from, other, 10).unwrap();
        assert_eq!(from, vec![1_u8; length]);
    }
    println!("\nwent on");
}

/// Rank 2 is killed while the futures of the other ranks wait for it, and the program drives for these futures. They
/// end without a deadline, and the survivors continue on the same driver.
#[test]
fn futures_that_the_program_drives_end_when_a_rank_is_killed() {
    let name = "survivors::futures_that_the_program_drives_end_when_a_rank_is_killed";
    if !is_rank() {
        for transport in TRANSPORTS {
            let output = job_of_test(name, &format!("-n 3 --on-failure continue {transport}")).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(stdout.matches("went on").count(), 2, "{transport}: {stdout}{stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    around(comm, 20_000, 0).unwrap();
    if comm.rank() == 2 {
        for rank in 0..2 {
            comm.recv(&mut [0_u8], Rank(rank), 1).unwrap();
        }
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    let executor = LocalExecutor::new();
    let driving = executor.spawn(drive(comm.driver().unwrap()));
    smol::block_on(executor.run(lose_a_rank(comm)));
    assert!(!driving.is_finished());
    println!("\nwent on");
}

/// Drives until the world ends.
async fn drive(driver: Driver) -> Result<(), Error> {
    let driver = smol::Async::new(driver).unwrap();
    loop {
        driver.get_ref().drive()?;
        driver.readable().await.unwrap();
    }
}

/// A wait, which ends with its error.
type Wait<'a> = Pin<Box<dyn Future<Output = Option<Error>> + 'a>>;

/// Waits for rank 2 in each way, and lets it end. Then exchanges with the other survivor.
async fn lose_a_rank(comm: &Comm) {
    let (gone, other) = (Rank(2), Rank(1 - comm.rank().0));
    let mut round = comm.recv_init(vec![0_u8], gone, 2).unwrap();
    round.start().unwrap();
    let mut parts = comm.precv_init(vec![0_u8], 1, gone, 2).unwrap();
    parts.start().unwrap();
    let receive = comm.irecv(vec![0_u8], gone, 2).unwrap();
    let from_any = comm.irecv(vec![0_u8], Source::ANY, 2).unwrap();
    let send = comm.isend(vec![0_u8; 8 << 20], gone, 2).unwrap();
    let mut ends: Vec<(_, Wait<'_>)> = vec![
        ("receive", Box::pin(async { receive.await.err().map(Error::from) })),
        ("send", Box::pin(async { send.await.err().map(Error::from) })),
        ("probe", Box::pin(async { comm.probe_async(gone, 2).await.err() })),
        ("claim", Box::pin(async { comm.claim_async(gone, 2).await.err() })),
        ("round", Box::pin(async { round.into_request().await.err().map(Error::from) })),
        ("partitions", Box::pin(async { parts.into_request().await.err().map(Error::from) })),
    ];
    for (what, end) in &mut ends {
        assert!(poll_once(end.as_mut()).await.is_none(), "{what}");
    }
    let mut from_any = pin!(from_any.into_future());
    assert!(poll_once(from_any.as_mut()).await.is_none());
    let continues = comm.irecv(vec![0_u8], other, 3).unwrap();
    comm.isend(vec![0_u8], gone, 1).unwrap().await.unwrap();
    let begin = now();
    for (what, end) in ends {
        let error = end.await;
        assert!(matches!(error, Some(Error::PeerFailed { rank: Rank(2), .. })), "{what}: {error:?}");
    }
    let error = from_any.await.unwrap_err().error;
    assert!(matches!(error, Error::FailurePending { rank: Rank(2), .. }), "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    comm.isend(vec![5_u8], other, 3).unwrap().await.unwrap();
    assert_eq!(continues.await.unwrap().buffer, [5]);
}

/// On a host without a network, ranks that need the network cannot reach each other. Each rank gets an error, and does
/// not wait for the rank from which it wanted to receive.
#[test]
fn an_exchange_without_a_network_ends() {
    let name = "survivors::an_exchange_without_a_network_ends";
    if !is_rank() {
        for ranks in [2, 3] {
            let arguments = format!("-n {ranks} --timeout 20 --on-failure continue --transport tcp;ofi_rxm");
            let output = without_network(job_of_test(name, &arguments)).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(stdout.matches("was told").count(), ranks, "{ranks} ranks: {stdout}{stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    for length in [8, 1 << 20] {
        let begin = now();
        let error = around(world.comm(), length, 1).unwrap_err();
        // If there are three ranks, one of them may leave before this rank has tried to reach it.
        let is_told = match &error {
            // Either this rank cannot reach the other rank, or the other rank could not reach this rank and gave it up.
            Error::PeerFailed { cause: Cause::Unreachable(why) | Cause::GaveUp(why), .. } => {
                why.contains("Network is unreachable")
            }
            Error::PeerFailed { cause: Cause::Left, .. } => true,
            _ => false,
        };
        assert!(is_told, "{error}");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    }
    println!("\nwas told");
}

/// Returns the same job, in a network namespace in which no interface is up.
fn without_network(mut job: Job) -> Job {
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(job.command.get_program()).args(job.command.get_args());
    command.envs(job.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    job.command = command;
    job
}
