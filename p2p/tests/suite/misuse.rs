//! Misuse by the caller, and packets of processes that are not in the job. Misuse ends with typed errors that say what
//! to do. Neither misuse nor such packets harm other operations.

use samite_fabric::wire::{Flags, Header, Protocol};
use samite_fabric::{
    Access, Failure, Memory, OpId, PeerId, Port, PortError, Post, Region, Remote, Sink, SplitMix64,
};
use samite_p2p::{Config, Error, Pattern, Status, Time, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, bytes, exact, killed};

const NOBODY: Error = Error::InvalidRank { rank: WorldRank(2), size: 2 };

fn pair<M: Medium>(medium: M) -> Job<M> {
    Job::new(medium, 2, &Config::default())
}

fn assert_unharmed<M: Medium>(mut job: Job<M>) {
    for len in [3, 200_000] {
        let recv = job.recv(1, Pattern::any(0), len);
        let send = job.send(0, 1, 5, &bytes(9, len));
        assert!(job.wait(recv).message() == bytes(9, len));
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn send_to_nobody<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        for (rank, len) in [(2, 1), (2, 200_000), (u32::MAX, 0)] {
            let send = job.try_send(0, rank, 0, 5, &bytes(1, len), whose, NEVER).map(|_| ());
            assert_eq!(send, Err(Error::InvalidRank { rank: WorldRank(rank), size: 2 }));
        }
    }
    assert_unharmed(job);
}

pub(crate) fn receive_from_nobody<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let recv = job.try_recv(0, exact(2, 5), 10, whose, NEVER).map(|_| ());
        assert_eq!(recv, Err(NOBODY));
    }
    assert_unharmed(job);
}

pub(crate) fn probe_of_nobody<M: Medium>(medium: M) {
    let mut job = pair(medium);
    assert_eq!(job.engine(0).probe(&exact(2, 5)), Err(NOBODY));
    assert_eq!(job.engine(0).claim(&exact(2, 5)).map(|_| ()), Err(NOBODY));
    assert_unharmed(job);
}

pub(crate) fn memory_comes_back_from_a_refusal<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let memory = || Memory::new(vec![1u32, 2, 3]);
    let (error, back) = job.engine(0).isend(Time::ZERO, WorldRank(2), 0, 5, memory(), NEVER).unwrap_err();
    assert_eq!((error, back.into_vec::<u32>().unwrap()), (NOBODY, vec![1, 2, 3]));
    let (error, back) = job.engine(0).irecv(Time::ZERO, exact(2, 5), memory(), NEVER).unwrap_err();
    assert_eq!((error, back.into_vec::<u32>().unwrap()), (NOBODY, vec![1, 2, 3]));
    job.kill(1);
    let (error, back) = job.engine(0).isend(Time::ZERO, WorldRank(1), 0, 5, memory(), NEVER).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: WorldRank(1), .. }));
    assert_eq!(back.into_vec::<u32>().unwrap(), [1, 2, 3]);
}

pub(crate) fn introduce_no_peer<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let address = job.engine(1).port().address();
    assert_eq!(job.engine(0).introduce(WorldRank(2), 7, address), Err(NOBODY));
    assert_unharmed(job);
}

pub(crate) fn fail_no_peer<M: Medium>(medium: M) {
    let mut job = pair(medium);
    assert_eq!(job.engine(0).peer_failed(WorldRank(2), None, killed()), Err(NOBODY));
    assert_eq!(job.engine(0).peer_left(WorldRank(2), Some(1)), Err(NOBODY));
    assert_unharmed(job);
}

/// A process that knows the address but not the secret sends packets to rank 1.
pub(crate) fn strange_packets_are_counted<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let mut stranger = job.medium.open(2);
    let path = stranger.resolve(&job.engine(1).port().address()).unwrap();
    let hello = Header::new(Protocol::Control, 0, Flags::empty());
    let mut forged = Header::new(Protocol::P2p, 0, Flags::empty());
    (forged.incarnation, forged.sequence) = (8.into(), 3.into());
    let bytes_of = |header: &Header| zerocopy::IntoBytes::as_bytes(header).to_vec();
    let packets = [
        Vec::new(),
        vec![0xff; 500],
        bytes_of(&hello),
        [bytes_of(&hello), vec![0; 24]].concat(),
        bytes_of(&forged),
        [bytes_of(&forged), vec![1; 100]].concat(),
    ];
    for packet in &packets {
        job.poll_until(|job| {
            let posted = stranger.send(path, packet, &[]).expect("the packet is legal for the port");
            let done = posted == samite_fabric::Post::Done;
            stranger.poll(&mut Deaf).unwrap();
            job.poll();
            done
        });
    }
    job.poll_until(|job| {
        stranger.poll(&mut Deaf).unwrap();
        job.engine(1).counters().rejected.total() == packets.len() as u64
    });
    assert_eq!(job.engine(1).counters().failed_peers, 0);
    assert_unharmed(job);
}

struct Deaf;

impl samite_fabric::Sink for Deaf {
    fn packet(&mut self, _: &[u8]) {}
    fn completed(&mut self, _: samite_fabric::OpId, _: Result<(), samite_fabric::Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: samite_fabric::PeerId) {}
}

pub(crate) fn errors_name_the_misuse<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let error = job.try_send(0, 2, 0, 5, b"x", Owned, NEVER).map(|_| ()).unwrap_err();
    assert_eq!(error, Error::InvalidRank { rank: WorldRank(2), size: 2 });
    let recv = job.recv(1, exact(0, 5), 2);
    let send = job.send(0, 1, 5, b"long");
    let status = Status { source: WorldRank(0), tag: 5, bytes: 4 };
    assert_eq!(job.wait(recv).error(), Error::Truncated { status, room: 2 });
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}

/// The results of the operations of a process that is no rank.
#[derive(Default)]
struct Ends(Vec<Result<(), Failure>>);

impl Sink for Ends {
    fn packet(&mut self, _: &[u8]) {}
    fn completed(&mut self, _: OpId, result: Result<(), Failure>) {
        self.0.push(result);
    }
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

/// A process that is no rank of the job has a port of the same kind. It tries keys that it has guessed, and keys that
/// it was given for other memory or at another time.
pub(crate) fn forged_keys_open_nothing<M: Medium>(medium: M) {
    const LEN: usize = 4096;
    let mut job = pair(medium);
    // A message that waits in its sender's memory.
    let waiting = job.send(0, 1, 5, &bytes(1, 200_000));
    job.settle();
    let path = job.engine(0).peer_id(WorldRank(1)).expect("they have met");
    let caps = job.caps().clone();
    let memory = |byte| match caps.get.is_some() {
        true => {
            let region = Region::shared(LEN).expect("memory");
            region.copy_in(0, &[byte; LEN]).expect("the whole region");
            region
        }
        false => Region::new(Memory::new(vec![byte; LEN])),
    };
    let regions = [1, 2, 3].map(memory);
    let accesses = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_READ | Access::REMOTE_WRITE];
    let port = job.engine(0).port_mut();
    let [read, write, ended] =
        [0, 1, 2].map(|each| port.register(path, &regions[each], accesses[each]).expect("its own memory"));
    port.deregister(ended);
    let address = port.address();

    let mut rng = SplitMix64::new(6);
    let mut forged: Vec<Remote> = [1, 1 << 31, 1 << 32, 1 << 63, u64::MAX]
        .into_iter()
        .flat_map(|change| [read, write].map(|real| Remote { key: real.key ^ change, ..real.remote(0) }))
        .collect();
    forged.extend([0, 1, u64::MAX, rng.next_u64(), rng.next_u64()].map(|key| Remote { key, address: 0 }));
    forged.extend([ended.remote(0), read.remote(LEN - 63), write.remote(LEN - 63)]);
    forged.extend(
        [read, write]
            .map(|real| Remote { address: real.remote(0).address.wrapping_sub(64), ..real.remote(0) }),
    );
    let puts = forged.iter().copied().chain([read.remote(0)]).map(|place| (true, place));
    let gets = forged.iter().copied().chain([write.remote(0)]).map(|place| (false, place));

    let mut stranger = job.medium.open(2);
    let own = Region::new(Memory::new(vec![0x5a; 64]));
    for (puts, place) in puts.chain(gets).collect::<Vec<_>>() {
        // After a refusal the path to the rank may be gone, so it is resolved again.
        let to = stranger.resolve(&address).expect("an address of its kind");
        let here =
            stranger.register(to, &own, Access::LOCAL_READ | Access::LOCAL_WRITE).expect("its own memory");
        let mut ends = Ends::default();
        let mut posted = Ok(Post::Again);
        job.poll_until(|_| {
            if posted == Ok(Post::Again) {
                posted = match puts {
                    true => stranger.put(to, here.local(0, 64), place, OpId(1)),
                    false => stranger.get(to, here.local(0, 64), place, OpId(1)),
                };
            }
            stranger.poll(&mut ends).expect("the port works");
            posted.is_err() || !ends.0.is_empty()
        });
        match &posted {
            Err(PortError::Unsupported { .. }) => {
                assert!(!(if puts { caps.put } else { caps.get }).is_some(), "{posted:?}");
            }
            // The port refuses the operation itself, or it has lost the path after an earlier refusal.
            Err(PortError::OutOfBounds { .. } | PortError::PeerGone(_)) => {}
            _ => assert!(ends.0[0].is_err(), "{place:?}: {posted:?} {:?}", ends.0),
        }
        stranger.deregister(here);
    }
    drop(stranger);

    for (region, byte) in regions.iter().zip([1, 2, 3]) {
        let mut bytes = vec![0; LEN];
        region.copy_out(0, &mut bytes).expect("the whole region");
        assert!(bytes.iter().all(|&found| found == byte), "unharmed");
    }
    let port = job.engine(0).port_mut();
    port.deregister(read);
    port.deregister(write);
    let recv = job.recv(1, exact(0, 5), 200_000);
    assert!(job.wait(recv).message() == bytes(1, 200_000));
    assert!(job.wait(waiting).result.is_ok());
    assert_unharmed(job);
}
