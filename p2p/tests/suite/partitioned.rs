//! Partitioned communication: cuts, orders, rounds, and everything that can end them.

use samite_fabric::SplitMix64;
use samite_fabric::layout::Signature;
use samite_fabric::mem::Partitioned;
use samite_p2p::{Awaited, Cause, Config, Error, Fate, Group, Operation, PartitionedId, Time, WorldRank};

use crate::job::{Done, INCARNATION, Job, Medium, NEVER, Op, bytes, exact, killed};

/// One side of a pair, with its memory.
struct Side {
    rank: usize,
    id: PartitionedId,
    memory: Partitioned,
}

fn pair<M: Medium>(medium: M) -> Job<M> {
    Job::new(medium, 2, &Config::default())
}

fn memory(len: usize, partitions: usize) -> Partitioned {
    Partitioned::new(vec![0xee_u8; len], partitions).expect("equal partitions")
}

fn try_send_init<M: Medium>(
    job: &mut Job<M>,
    tag: u64,
    len: usize,
    partitions: usize,
) -> Result<Side, Error> {
    let now = job.now();
    let id = job.engine(0).psend_init(now, WorldRank(1), 0, tag, len, partitions, Signature::BYTES)?;
    Ok(Side { rank: 0, id, memory: memory(len, partitions) })
}

fn send_init<M: Medium>(job: &mut Job<M>, tag: u64, len: usize, partitions: usize) -> Side {
    try_send_init(job, tag, len, partitions).unwrap()
}

fn recv_init<M: Medium>(job: &mut Job<M>, tag: u64, len: usize, partitions: usize) -> Side {
    let now = job.now();
    let id = job.engine(1).precv_init(now, WorldRank(0), 0, tag, len, None).unwrap();
    Side { rank: 1, id, memory: memory(len, partitions) }
}

impl Side {
    fn try_start<M: Medium>(&mut self, job: &mut Job<M>, deadline: Time) -> Result<Op, Error> {
        assert!(self.memory.begin(), "the round before has left nothing");
        let now = job.now();
        let engine = job.engine(self.rank);
        let request = match self.rank {
            0 => engine.start_psend(now, self.id, self.memory.marked(), deadline)?,
            _ => {
                let all = self.memory.take(0..self.memory.partitions()).expect("none is taken");
                engine.start_precv(now, self.id, all, deadline)?
            }
        };
        Ok(Op::of(self.rank, request))
    }

    fn start<M: Medium>(&mut self, job: &mut Job<M>) -> Op {
        self.try_start(job, NEVER).unwrap()
    }

    /// Writes a partition's part of the message, and marks it.
    fn ready<M: Medium>(&self, job: &mut Job<M>, part: usize, message: &[u8]) {
        let part_len = message.len() / self.memory.partitions();
        let mut writer = self.memory.take(part..part + 1).expect("it is not taken");
        let bytes = writer.as_mut_slice::<u8>().unwrap();
        bytes.copy_from_slice(&message[part * part_len..(part + 1) * part_len]);
        writer.mark_all();
        job.engine(self.rank).harvest();
    }

    fn ready_all<M: Medium>(&self, job: &mut Job<M>, message: &[u8]) {
        (0..self.memory.partitions()).for_each(|part| self.ready(job, part, message));
    }

    fn contents(&mut self) -> &[u8] {
        self.memory.as_mut_slice::<u8>().expect("the round has left nothing")
    }

    fn free<M: Medium>(self, job: &mut Job<M>) {
        let now = job.now();
        job.engine(self.rank).free_partitioned(now, self.id);
    }
}

/// Frees both sides, and checks that nothing is left.
fn assert_unharmed<M: Medium>(mut job: Job<M>, sides: impl IntoIterator<Item = Side>) {
    for side in sides {
        side.free(&mut job);
    }
    let (mut send, mut recv) = (send_init(&mut job, 77, 30_000, 3), recv_init(&mut job, 77, 30_000, 2));
    let (sent, received) = (send.start(&mut job), recv.start(&mut job));
    let message = bytes(5, 30_000);
    send.ready_all(&mut job, &message);
    assert!(job.wait(received).result.is_ok() && job.wait(sent).result.is_ok());
    assert!(recv.contents() == message);
    send.free(&mut job);
    recv.free(&mut job);
    job.assert_at_rest();
    assert!(job.usages().iter().all(|usage| usage.partitioned == 0));
}

/// Exchanges rounds of a message that is cut into a given number of partitions on each side. The sender marks its
/// partitions in a random order.
fn rounds<M: Medium>(medium: M, len: usize, cuts: (usize, usize), sender_first: bool) {
    let mut job = pair(medium);
    let mut random = SplitMix64::new(len as u64);
    let (mut send, mut recv) = if sender_first {
        let send = send_init(&mut job, 5, len, cuts.0);
        job.settle();
        (send, recv_init(&mut job, 5, len, cuts.1))
    } else {
        let recv = recv_init(&mut job, 5, len, cuts.1);
        (send_init(&mut job, 5, len, cuts.0), recv)
    };
    for round in 0..4 {
        let message = bytes(round, len);
        let mut order: Vec<_> = (0..cuts.0).collect();
        (1..order.len()).for_each(|index| order.swap(index, random.below(index as u64 + 1) as usize));
        let sent = send.start(&mut job);
        let receives_late = round == 1;
        let mut received = None;
        if !receives_late {
            received = Some(recv.start(&mut job));
        }
        let half = order.len() / 2;
        for &part in &order[..half] {
            send.ready(&mut job, part, &message);
            job.poll();
        }
        if round == 2 {
            // Only the marked partitions arrive.
            let (theirs, ours) = (len / cuts.0, len / cuts.1);
            let is_marked = |at: usize| order[..half].contains(&(at / theirs.max(1)));
            let marked: Vec<_> =
                (0..cuts.1).map(|part| len > 0 && (part * ours..(part + 1) * ours).all(is_marked)).collect();
            job.settle();
            assert!(!job.is_over(&sent));
            let arrived: Vec<_> = (0..cuts.1).map(|part| recv.memory.are_marked(part..part + 1)).collect();
            assert_eq!(arrived, marked);
            for part in (0..cuts.1).filter(|part| marked[*part]) {
                let bytes = recv.memory.read::<u8>(part..part + 1).unwrap();
                assert!(bytes == &message[part * ours..(part + 1) * ours]);
            }
        }
        for &part in &order[half..] {
            send.ready(&mut job, part, &message);
        }
        let received = received.unwrap_or_else(|| recv.start(&mut job));
        let status = job.wait(received).result.unwrap();
        assert_eq!((status.source, status.tag, status.bytes), (WorldRank(0), 5, len));
        assert_eq!(job.wait(sent).result.unwrap().source, WorldRank(1));
        assert!(recv.contents() == message && send.contents() == message);
    }
    assert_unharmed(job, [send, recv]);
}

pub(crate) fn one_partition<M: Medium>(medium: M) {
    rounds(medium, 100_000, (1, 1), true);
}

pub(crate) fn equal_cuts<M: Medium>(medium: M) {
    rounds(medium, 96_000, (16, 16), false);
}

pub(crate) fn a_finer_sender<M: Medium>(medium: M) {
    rounds(medium, 30_000, (300, 4), true);
}

pub(crate) fn a_finer_receiver<M: Medium>(medium: M) {
    rounds(medium, 30_000, (4, 300), false);
}

pub(crate) fn cuts_without_a_common_divisor<M: Medium>(medium: M) {
    rounds(medium, 7 * 9 * 1000, (7, 9), true);
}

pub(crate) fn bytes_of_one<M: Medium>(medium: M) {
    rounds(medium, 130, (130, 65), true);
}

pub(crate) fn long_partitions<M: Medium>(medium: M) {
    rounds(medium, 2 << 20, (4, 2), false);
}

pub(crate) fn partitions_without_bytes<M: Medium>(medium: M) {
    rounds(medium, 0, (3, 2), true);
}

pub(crate) fn pairs_meet_in_order_and_no_message<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let message = job.send(0, 1, 5, b"a message");
    let mut sends = [5, 6, 5].map(|tag| send_init(&mut job, tag, 100, 2));
    job.settle();
    let mut recvs = [6, 5, 5].map(|tag| recv_init(&mut job, tag, 100, 1));
    let receive = job.recv(1, exact(0, 5), 100);
    assert_eq!(job.wait(receive).message(), b"a message");
    assert!(job.wait(message).result.is_ok());
    let sent = sends.each_mut().map(|send| send.start(&mut job));
    let received = recvs.each_mut().map(|recv| recv.start(&mut job));
    for (seed, send) in sends.iter().enumerate() {
        send.ready_all(&mut job, &bytes(seed, 100));
    }
    sent.into_iter().chain(received).for_each(|op| assert!(job.wait(op).result.is_ok()));
    let got = recvs.each_mut().map(|recv| recv.contents().to_vec());
    assert!(got == [bytes(1, 100), bytes(0, 100), bytes(2, 100)]);
    assert_unharmed(job, sends.into_iter().chain(recvs));
}

pub(crate) fn different_lengths_end_both<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for sender_first in [true, false] {
        let mut recv = (!sender_first).then(|| recv_init(&mut job, 5, 90, 3));
        let mut send = send_init(&mut job, 5, 100, 2);
        let sent = send.start(&mut job);
        send.ready_all(&mut job, &bytes(1, 100));
        job.settle();
        let mut recv = recv.take().unwrap_or_else(|| recv_init(&mut job, 5, 90, 3));
        let received = recv.try_start(&mut job, NEVER).map(|op| job.wait(op).error());
        let ours = Error::LengthsDiffer { rank: WorldRank(0), ours: 90, theirs: 100 };
        assert_eq!(received.unwrap_or_else(|error| error), ours);
        assert_eq!(
            job.wait(sent).error(),
            Error::LengthsDiffer { rank: WorldRank(1), ours: 100, theirs: 90 }
        );
        assert!(recv.contents() == [0xee; 90], "nothing is half received");
        assert_eq!(recv.try_start(&mut job, NEVER).unwrap_err(), ours);
        send.free(&mut job);
        recv.free(&mut job);
    }
    assert_unharmed(job, []);
}

/// The moment at which something ends a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Before the other half exists.
    Alone,
    /// Before the other side begins the round.
    Met,
    /// While one of the two partitions is marked.
    Halfway,
}

const STAGES: [Stage; 3] = [Stage::Alone, Stage::Met, Stage::Halfway];

/// A pair of which one side has begun a round, with the operations of the round.
struct Begun {
    send: Option<Side>,
    recv: Option<Side>,
    sent: Option<Op>,
    received: Option<Op>,
}

/// Begins a round and continues it to the given stage. The side `on` has begun the round in every stage.
fn begin<M: Medium>(job: &mut Job<M>, stage: Stage, on: usize) -> Begun {
    let mut send = (on == 0 || stage != Stage::Alone).then(|| send_init(job, 5, 100, 2));
    let mut recv = (on == 1 || stage != Stage::Alone).then(|| recv_init(job, 5, 100, 2));
    let starts = |rank| on == rank || stage == Stage::Halfway;
    let sent = send.as_mut().filter(|_| starts(0)).map(|send| send.start(job));
    let received = recv.as_mut().filter(|_| starts(1)).map(|recv| recv.start(job));
    if let (Some(send), true) = (&send, sent.is_some()) {
        send.ready(job, 1, &bytes(1, 100));
    }
    job.settle();
    Begun { send, recv, sent, received }
}

/// Checks that, after one side of a pair has ended, the other side ends too: in its present round, or in its
/// next round.
fn other_side_ends<M: Medium>(job: &mut Job<M>, stage: Stage, side: &mut Option<Side>, op: Option<Op>) {
    let Some(side) = side else { return };
    job.settle();
    let by = 1 - side.rank as u32;
    let abandoned = Error::Abandoned { rank: WorldRank(by), fate: Fate::NotDelivered };
    match op {
        Some(op) => assert_eq!(job.wait(op).error(), abandoned, "{stage:?}"),
        None => assert_eq!(side.try_start(job, NEVER).unwrap_err(), abandoned, "{stage:?}"),
    }
    if stage == Stage::Halfway && side.rank == 1 {
        assert!(side.memory.read::<u8>(1..2).unwrap() == &bytes(1, 100)[50..], "the arrived half stays");
        assert!(!side.memory.are_marked(0..1));
    }
    assert_eq!(side.try_start(job, NEVER).unwrap_err(), abandoned);
}

/// Initializes the other half of a pair after the first half has ended and the peers have learned of that end.
fn met_too_late<M: Medium>(job: &mut Job<M>, on: usize) -> Side {
    job.settle();
    if on == 0 { recv_init(job, 5, 100, 2) } else { send_init(job, 5, 100, 2) }
}

/// Ends a round on one side in each stage.
fn ended_by<M: Medium>(medium: M, on: usize, mut end: impl FnMut(&mut Job<M>, Op, Stage) -> Error) {
    let mut job = pair(medium);
    for stage in STAGES {
        let Begun { mut send, mut recv, mut sent, mut received } = begin(&mut job, stage, on);
        let op = if on == 0 { sent.take() } else { received.take() };
        let error = end(&mut job, op.expect("this side began"), stage);
        let (own, other, op) =
            if on == 0 { (&mut send, &mut recv, received) } else { (&mut recv, &mut send, sent) };
        assert_eq!(own.as_mut().unwrap().try_start(&mut job, NEVER).unwrap_err(), error);
        if stage == Stage::Alone {
            *other = Some(met_too_late(&mut job, on));
        }
        other_side_ends(&mut job, stage, other, op);
        for side in [send, recv].into_iter().flatten() {
            side.free(&mut job);
        }
        job.settle();
    }
    assert_unharmed(job, []);
}

fn timed_out<M: Medium>(job: &mut Job<M>, op: Op, awaited: Awaited, operation: Operation) -> Error {
    job.hurry(&op);
    let error = job.wait(op).error();
    let Error::TimedOut { fate: Fate::NotDelivered, report } = &error else { panic!("{error:?}") };
    assert_eq!((report.operation, report.awaited, report.bytes), (operation, awaited, 100));
    assert_eq!((report.tag, report.mask), (5, !0));
    error
}

pub(crate) fn deadline_of_a_sender<M: Medium>(medium: M) {
    ended_by(medium, 0, |job, op, stage| {
        let awaited = if stage == Stage::Halfway { Awaited::Marks } else { Awaited::Match };
        timed_out(job, op, awaited, Operation::Send)
    });
}

pub(crate) fn deadline_of_a_receiver<M: Medium>(medium: M) {
    ended_by(medium, 1, |job, op, stage| {
        let awaited = if stage == Stage::Alone { Awaited::Message } else { Awaited::Bytes };
        timed_out(job, op, awaited, Operation::Receive)
    });
}

fn cancelled<M: Medium>(job: &mut Job<M>, op: Op) -> Error {
    job.cancel(&op);
    let error = job.wait(op).error();
    assert_eq!(error, Error::Cancelled { fate: Fate::NotDelivered });
    error
}

pub(crate) fn cancel_of_a_sender<M: Medium>(medium: M) {
    ended_by(medium, 0, |job, op, _| cancelled(job, op));
}

pub(crate) fn cancel_of_a_receiver<M: Medium>(medium: M) {
    ended_by(medium, 1, |job, op, _| cancelled(job, op));
}

pub(crate) fn a_side_dropped_in_a_round<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for (stage, on) in STAGES.into_iter().flat_map(|stage| [(stage, 0), (stage, 1)]) {
        let Begun { mut send, mut recv, mut sent, mut received } = begin(&mut job, stage, on);
        let (own, own_op) = if on == 0 { (&mut send, &mut sent) } else { (&mut recv, &mut received) };
        job.forget(own_op.take().unwrap());
        let mut own = own.take().unwrap();
        assert!(!own.contents().is_empty(), "its memory is free at once");
        own.free(&mut job);
        let (other, op) = if on == 0 { (&mut recv, received) } else { (&mut send, sent) };
        if stage == Stage::Alone {
            *other = Some(met_too_late(&mut job, on));
        }
        other_side_ends(&mut job, stage, other, op);
        if let Some(other) = other.take() {
            other.free(&mut job);
        }
        job.settle();
    }
    assert_unharmed(job, []);
}

/// Drops halves before they are paired with a half of the other rank, with or without time for that rank to learn of
/// the drop. A dropped half still counts in the order of pairing: it is paired with one half of the other rank, so the
/// halves after these two are paired with each other.
pub(crate) fn a_withdrawn_initialization_keeps_its_place<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for (settles, on) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let mut own = Vec::new();
        for _ in 0..4 {
            own.push(if on == 0 { send_init(&mut job, 5, 100, 2) } else { recv_init(&mut job, 5, 100, 2) });
        }
        let last = own.pop();
        // The second half is dropped first, then the first half, then the third half.
        for index in [1, 0, 0] {
            if settles {
                job.settle();
            }
            own.remove(index).free(&mut job);
        }
        if settles {
            job.settle();
        }
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push(if on == 0 {
                recv_init(&mut job, 5, 100, 2)
            } else {
                send_init(&mut job, 5, 100, 2)
            });
        }
        let other = others.pop();
        for mut other in others {
            job.settle();
            let abandoned = Error::Abandoned { rank: WorldRank(on), fate: Fate::NotDelivered };
            assert_eq!(other.try_start(&mut job, NEVER).unwrap_err(), abandoned);
            other.free(&mut job);
        }
        let (mut send, mut recv) =
            if on == 0 { (last.unwrap(), other.unwrap()) } else { (other.unwrap(), last.unwrap()) };
        let (sent, received) = (send.start(&mut job), recv.start(&mut job));
        send.ready_all(&mut job, &bytes(2, 100));
        assert!(job.wait(received).result.is_ok() && job.wait(sent).result.is_ok());
        assert!(recv.contents() == bytes(2, 100));
        send.free(&mut job);
        recv.free(&mut job);
    }
    assert_unharmed(job, []);
}

pub(crate) fn a_last_round_outlives_its_sender_half<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let (mut send, mut recv) = (send_init(&mut job, 5, 200_000, 2), recv_init(&mut job, 5, 200_000, 5));
    let (sent, received) = (send.start(&mut job), recv.start(&mut job));
    send.ready_all(&mut job, &bytes(2, 200_000));
    assert!(job.wait(sent).result.is_ok());
    send.free(&mut job);
    assert!(job.wait(received).result.is_ok());
    assert!(recv.contents() == bytes(2, 200_000));
    assert_unharmed(job, [recv]);
}

/// Ends the other rank in each stage of a round.
fn the_other_ends<M: Medium>(mut open: impl FnMut() -> M, end: impl Fn(&mut Job<M>, u32), cause: &Cause) {
    for (stage, on) in STAGES.into_iter().flat_map(|stage| [(stage, 0), (stage, 1)]) {
        let mut job = pair(open());
        let Begun { mut send, mut recv, mut sent, mut received } = begin(&mut job, stage, on);
        let other = 1 - on as u32;
        end(&mut job, other);
        let (own, op) = if on == 0 { (&mut send, &mut sent) } else { (&mut recv, &mut received) };
        let Done { result, .. } = job.wait(op.take().unwrap());
        let Err(Error::PeerFailed { rank, cause: why, fate: Fate::NotDelivered, report: Some(report) }) =
            result
        else {
            panic!("{stage:?} on {on}: {result:?}")
        };
        assert_eq!((rank, &why, report.bytes), (WorldRank(other), cause, 100));
        let own = own.as_mut().unwrap();
        assert!(!own.contents().is_empty(), "its memory is free");
        assert!(matches!(own.try_start(&mut job, NEVER), Err(Error::PeerFailed { .. })));
        job.settle();
    }
}

pub(crate) fn death_of_the_other<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let Begun { mut recv, sent, received, .. } = begin(&mut job, Stage::Halfway, 1);
    drop(sent);
    job.kill(0);
    let error = job.wait(received.unwrap()).error();
    assert!(
        matches!(&error, Error::PeerFailed { rank: WorldRank(0), cause, .. } if *cause == killed()),
        "{error:?}"
    );
    let mut recv = recv.take().unwrap();
    assert!(recv.memory.read::<u8>(1..2).unwrap() == &bytes(1, 100)[50..], "the arrived half stays");
    assert!(matches!(recv.try_start(&mut job, NEVER), Err(Error::PeerFailed { .. })));
    let now = job.now();
    assert!(job.engine(1).precv_init(now, WorldRank(0), 0, 5, 100, None).is_err());
    job.restart(0);
    assert!(matches!(recv.try_start(&mut job, NEVER), Err(Error::PeerFailed { .. })), "the pair is over");
    job.settle();
    assert_unharmed(job, [recv]);
}

pub(crate) fn death_of_a_receiver<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let Begun { mut send, sent, received, .. } = begin(&mut job, Stage::Halfway, 0);
    drop(received);
    job.kill(1);
    let error = job.wait(sent.unwrap()).error();
    assert!(
        matches!(&error, Error::PeerFailed { rank: WorldRank(1), fate: Fate::NotDelivered, .. }),
        "{error:?}"
    );
    assert!(send.as_mut().unwrap().contents().len() == 100);
    assert!(try_send_init(&mut job, 5, 100, 2).is_err());
    job.restart(1);
    assert_unharmed(job, send);
}

#[test]
fn death_in_each_stage() {
    the_other_ends(crate::Simulated::kind, |job, rank| job.kill(rank), &killed());
}

#[test]
fn leaving_in_each_stage() {
    the_other_ends(crate::InProcess::new, |job, rank| job.leave(rank as usize), &Cause::Left);
}

pub(crate) fn initializations_are_bounded<M: Medium>(medium: M) {
    let mut config = Config::default();
    config.envelopes_max = 8 << 10;
    let mut job = Job::new(medium, 2, &config);
    let fit = config.envelopes_max / 96;
    let mut sends: Vec<_> = (0..fit + 3).map(|_| send_init(&mut job, 5, 100, 2)).collect();
    job.settle();
    assert_eq!(job.engine(1).counters().refused, 3);
    for send in &mut sends[fit..] {
        assert!(matches!(send.try_start(&mut job, NEVER), Err(Error::Exhausted { .. })));
    }
    let (mut send, mut recv) = (sends.remove(0), recv_init(&mut job, 5, 100, 2));
    let (sent, received) = (send.start(&mut job), recv.start(&mut job));
    send.ready_all(&mut job, &bytes(1, 100));
    assert!(job.wait(sent).result.is_ok() && job.wait(received).result.is_ok());
    // Each send that was not refused is still paired with the receive of the same number in the order of
    // initialization.
    for _ in 1..fit {
        recv_init(&mut job, 5, 100, 2).free(&mut job);
        job.settle();
    }
    sends.into_iter().for_each(|send| send.free(&mut job));
    job.settle();
    assert_unharmed(job, [send, recv]);
}

pub(crate) fn a_closed_context_ends_its_pairs<M: Medium>(medium: M) {
    const OPENED: u32 = 8;
    let mut job = pair(medium);
    for rank in 0..2 {
        assert!(job.engine(rank).open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)).unwrap());
    }
    let now = job.now();
    let ids = [5, 5].map(|tag| {
        job.engine(0).psend_init(now, WorldRank(1), OPENED, tag, 100, 2, Signature::BYTES).unwrap()
    });
    let theirs = job.engine(1).precv_init(now, WorldRank(0), OPENED, 5, 100, None).unwrap();
    job.settle();
    let now = job.now();
    job.engine(1).close_contexts(now, OPENED);
    job.settle();
    let late = job.engine(0).psend_init(now, WorldRank(1), OPENED, 6, 100, 2, Signature::BYTES).unwrap();
    job.settle();
    for id in ids.into_iter().chain([late]) {
        let mut send = Side { rank: 0, id, memory: memory(100, 2) };
        let abandoned = Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered };
        assert_eq!(send.try_start(&mut job, NEVER).unwrap_err(), abandoned);
        send.free(&mut job);
    }
    let mut recv = Side { rank: 1, id: theirs, memory: memory(100, 2) };
    let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
    assert_eq!(recv.try_start(&mut job, NEVER).unwrap_err(), cancelled);
    assert_unharmed(job, [recv]);
}

pub(crate) fn to_self_in_parts<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let now = job.now();
    let send = job.engine(0).psend_init(now, WorldRank(0), 0, 5, 90_000, 3, Signature::BYTES).unwrap();
    let recv = job.engine(0).precv_init(now, WorldRank(0), 0, 5, 90_000, None).unwrap();
    let mut sides = [send, recv].map(|id| Side { rank: 0, id, memory: memory(90_000, 3) });
    for round in 0..3 {
        let sent = sides[0].start(&mut job);
        assert!(sides[1].memory.begin());
        let all = sides[1].memory.take(0..3).unwrap();
        let received = job.engine(0).start_precv(now, recv, all, NEVER).unwrap();
        sides[0].ready_all(&mut job, &bytes(round, 90_000));
        assert!(job.wait(Op::of(0, received)).result.is_ok() && job.wait(sent).result.is_ok());
        assert!(sides[1].contents() == bytes(round, 90_000));
    }
    assert_unharmed(job, sides);
}

pub(crate) fn partners_must_exist<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let now = job.now();
    let invalid = Error::InvalidRank { rank: WorldRank(2), size: 2 };
    assert_eq!(
        job.engine(0).psend_init(now, WorldRank(2), 0, 5, 100, 2, Signature::BYTES),
        Err(invalid.clone())
    );
    assert_eq!(job.engine(0).precv_init(now, WorldRank(2), 0, 5, 100, None), Err(invalid));
    assert_eq!(job.engine(0).incarnation(WorldRank(1)), Some(INCARNATION));
    assert_unharmed(job, []);
}
