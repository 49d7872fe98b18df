//! Tests of matching: tags, contexts, wildcards, order, probes, claims, messages to self.

use samite_p2p::{Config, Error, Group, Pattern, Status, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Op, Owned, bytes, exact};

fn pair<M: Medium>(medium: M) -> Job<M> {
    Job::new(medium, 2, &Config::default())
}

/// Receives one message for each pattern, in order, and returns their bytes.
fn receive_all<M: Medium>(job: &mut Job<M>, at: usize, patterns: &[Pattern]) -> Vec<Vec<u8>> {
    patterns
        .iter()
        .map(|&pattern| {
            let recv = job.recv(at, pattern, 200_000);
            job.wait(recv).message()
        })
        .collect()
}

fn send_all<M: Medium>(job: &mut Job<M>, messages: &[(u64, &[u8])]) -> Vec<Op> {
    messages.iter().map(|(tag, data)| job.send(0, 1, *tag, data)).collect()
}

fn end_all<M: Medium>(job: &mut Job<M>, ops: Vec<Op>) {
    for op in ops {
        assert!(job.wait(op).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn tags_choose_messages<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let sends = send_all(&mut job, &[(1, b"one"), (2, b"two"), (3, b"three")]);
    assert_eq!(
        receive_all(&mut job, 1, &[exact(0, 3), exact(0, 1), exact(0, 2)]),
        [&b"three"[..], b"one", b"two"]
    );
    end_all(&mut job, sends);
}

pub(crate) fn tags_use_all_bits<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let tags = [0, 1, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    let sends: Vec<_> = tags.iter().map(|&tag| job.send(0, 1, tag, &tag.to_le_bytes())).collect();
    for tag in tags.into_iter().rev() {
        let recv = job.recv(1, exact(0, tag), 8);
        assert_eq!(job.wait(recv).message(), tag.to_le_bytes());
    }
    end_all(&mut job, sends);
}

pub(crate) fn contexts_keep_apart<M: Medium>(medium: M) {
    let mut job = pair(medium);
    // The last pair of numbers is never used: `PeerState::NOWHERE` is one of them.
    let last = u32::MAX - 3;
    let contexts = [last, 6, 0];
    for (context, rank) in [(6, 0), (6, 1), (last, 0), (last, 1)] {
        assert_eq!(job.engine(rank).open_contexts(context.into(), Group::range(WorldRank(0), 2)), Ok(true));
    }
    let mut sends = Vec::new();
    for context in contexts {
        sends.push(job.send_as(0, 1, context, 5, &context.to_le_bytes(), Owned, NEVER));
    }
    for context in contexts.into_iter().rev() {
        let recv = job.recv(1, Pattern::any(context), 8);
        assert_eq!(job.wait(recv).message(), context.to_le_bytes());
    }
    end_all(&mut job, sends);
}

pub(crate) fn any_tag<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 0).any_tag(), 10);
    let sends = send_all(&mut job, &[(77, b"x")]);
    assert_eq!(job.wait(recv).result, Ok(Status { source: WorldRank(0), tag: 77, bytes: 1 }));
    end_all(&mut job, sends);
}

pub(crate) fn any_source<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 3, &Config::default());
    let mut sources = Vec::new();
    for source in [2, 0] {
        let recv = job.recv(1, exact(0, 5).any_source(), 10);
        let send = job.send(source, 1, 5, b"x");
        sources.push(job.wait(recv).result.unwrap().source);
        assert!(job.wait(send).result.is_ok());
    }
    assert_eq!(sources, [2, 0].map(WorldRank));
    job.assert_at_rest();
}

pub(crate) fn any_source_and_tag<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 3, &Config::default());
    let sends = [(0, 3), (2, 4)].map(|(from, tag)| job.send(from, 1, tag, &[from as u8]));
    let mut got = [0, 1].map(|_| {
        let recv = job.recv(1, Pattern::any(0), 10);
        let done = job.wait(recv);
        let status = done.result.clone().unwrap();
        assert_eq!(done.message(), [status.source.0 as u8]);
        (status.source, status.tag)
    });
    got.sort_unstable();
    assert_eq!(got, [(WorldRank(0), 3), (WorldRank(2), 4)]);
    end_all(&mut job, sends.into());
}

pub(crate) fn masks_compare_the_bits_they_have<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let sends = send_all(&mut job, &[(0x1234, b"a"), (0x5634, b"b"), (0x1278, b"c")]);
    let masked = |tag, mask| exact(0, tag).masked(mask);
    assert_eq!(
        receive_all(&mut job, 1, &[masked(0x0078, 0xff), masked(0x5600, 0xff00), masked(0xff34, 0xff)]),
        [b"c", b"b", b"a"]
    );
    end_all(&mut job, sends);
}

pub(crate) fn messages_keep_their_order<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let mut sends = Vec::new();
    for number in 0..500u32 {
        sends.push(job.send(0, 1, 5, &number.to_le_bytes()));
    }
    for number in 0..500u32 {
        let recv = job.recv(1, exact(0, 5), 4);
        assert_eq!(job.wait(recv).message(), number.to_le_bytes());
    }
    end_all(&mut job, sends);
}

pub(crate) fn order_holds_across_protocols<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let lengths = [100_000, 0, 50_000, 8, 17_000, 1, 60_000, 4000];
    let mut sends = Vec::new();
    for (number, &len) in lengths.iter().enumerate() {
        let whose = if number % 2 == 0 { Owned } else { Borrowed };
        sends.push(job.send_as(0, 1, 0, 5, &bytes(number, len), whose, NEVER));
    }
    for (number, &len) in lengths.iter().enumerate() {
        let recv = job.recv(1, exact(0, 5), 100_000);
        assert!(job.wait(recv).message() == bytes(number, len), "{number}");
    }
    end_all(&mut job, sends);
}

pub(crate) fn order_holds_for_wildcards<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let messages: Vec<_> =
        (0..40).map(|number| bytes(number, if number % 3 == 0 { 20_000 } else { 10 })).collect();
    let mut sends = Vec::new();
    for (tag, message) in (0..).zip(&messages) {
        sends.push(job.send(0, 1, tag, message));
    }
    for (tag, message) in (0..).zip(&messages) {
        let pattern = if tag % 2 == 0 { Pattern::any(0) } else { exact(0, 0).any_tag() };
        let recv = job.recv(1, pattern, 20_000);
        let done = job.wait(recv);
        assert_eq!(done.result.as_ref().unwrap().tag, tag);
        assert!(&done.message() == message);
    }
    end_all(&mut job, sends);
}

pub(crate) fn the_earlier_receive_comes_first<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recvs: Vec<_> = (0..20).map(|_| job.recv(1, exact(0, 5), 30_000)).collect();
    let sends: Vec<_> = (0..20).map(|number| job.send(0, 1, 5, &bytes(number, number * 1500))).collect();
    for (number, recv) in recvs.into_iter().enumerate() {
        assert!(job.wait(recv).message() == bytes(number, number * 1500), "{number}");
    }
    end_all(&mut job, sends);
}

/// Before a receive is posted, it takes packets that have arrived. Some of these contain messages for receives that
/// were posted earlier.
pub(crate) fn what_has_come_goes_to_the_earlier_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let receive = |job: &mut Job<M>, room| job.recv_as(1, exact(0, 5), room, Borrowed, NEVER);
    let mut recvs: Vec<_> = (0..3).map(|_| receive(&mut job, 30_000)).collect();
    let lengths = [8, 0, 9, 10, 400, 30_000, 11, 12, 13, 30_000, 14];
    let sends: Vec<_> =
        (0..).zip(lengths).map(|(number, len)| job.send(0, 1, 5, &bytes(number, len))).collect();
    let too_long = 7;
    for number in recvs.len()..lengths.len() {
        (0..10).for_each(|_| job.medium.rest());
        recvs.push(receive(&mut job, if number == too_long { 11 } else { 30_000 }));
    }
    for (number, recv) in recvs.into_iter().enumerate() {
        let done = job.wait(recv);
        if number == too_long {
            let status = Status { source: WorldRank(0), tag: 5, bytes: 12 };
            assert_eq!(done.error(), Error::Truncated { status, room: 11 });
        } else {
            assert!(done.message() == bytes(number, lengths[number]), "{number}");
        }
    }
    end_all(&mut job, sends);
}

pub(crate) fn the_earlier_receive_wins_over_the_closer<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let any = job.recv(1, Pattern::any(0), 10);
    let closer = job.recv(1, exact(0, 5), 10);
    let sends = send_all(&mut job, &[(5, b"first"), (5, b"second")]);
    assert_eq!(job.wait(any).message(), b"first");
    assert_eq!(job.wait(closer).message(), b"second");
    end_all(&mut job, sends);
}

pub(crate) fn sources_do_not_wait_for_each_other<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 3, &Config::default());
    let silent = job.recv(1, exact(2, 5), 10);
    let sends = send_all(&mut job, &[(5, b"x")]);
    assert_eq!(receive_all(&mut job, 1, &[exact(0, 5)]), [b"x"]);
    assert!(!job.is_over(&silent));
    let late = job.send(2, 1, 5, b"late");
    assert_eq!(job.wait(silent).message(), b"late");
    assert!(job.wait(late).result.is_ok());
    end_all(&mut job, sends);
}

pub(crate) fn unexpected_messages_in_reverse<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let sends: Vec<_> = (0..200).map(|tag| job.send(0, 1, tag, &tag.to_le_bytes())).collect();
    job.settle();
    for tag in (0..200).rev() {
        let recv = job.recv(1, exact(0, tag), 8);
        assert_eq!(job.wait(recv).message(), tag.to_le_bytes());
    }
    end_all(&mut job, sends);
}

pub(crate) fn posted_receives_in_reverse<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recvs: Vec<_> = (0..200).map(|tag| (tag, job.recv(1, exact(0, tag), 8))).collect();
    let sends: Vec<_> = (0..200).rev().map(|tag| job.send(0, 1, tag, &tag.to_le_bytes())).collect();
    for (tag, recv) in recvs {
        assert_eq!(job.wait(recv).message(), tag.to_le_bytes());
    }
    end_all(&mut job, sends);
}

fn outstanding<M: Medium>(medium: M, count: usize, len: usize) {
    let mut job = pair(medium);
    let mut recvs = Vec::new();
    for number in (0..count).step_by(2) {
        recvs.push((number, job.recv(1, exact(0, number as u64), len)));
    }
    let sends: Vec<_> = (0..count).map(|number| job.send(0, 1, number as u64, &bytes(number, len))).collect();
    job.settle();
    for number in (1..count).step_by(2) {
        recvs.push((number, job.recv(1, exact(0, number as u64), len)));
    }
    for (number, recv) in recvs {
        assert!(job.wait(recv).message() == bytes(number, len), "{number}");
    }
    end_all(&mut job, sends);
}

pub(crate) fn many_outstanding<M: Medium>(medium: M) {
    outstanding(medium, 400, 16);
}

pub(crate) fn many_outstanding_long<M: Medium>(medium: M) {
    outstanding(medium, 40, 50_000);
}

fn everyone_to_everyone<M: Medium>(medium: M, len: usize) {
    const RANKS: usize = 5;
    let mut job = Job::new(medium, RANKS as u32, &Config::default());
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for at in 0..RANKS {
        for other in 0..RANKS {
            recvs.push((other * RANKS + at, job.recv(at, exact(other as u32, 1), len)));
            sends.push(job.send(at, other as u32, 1, &bytes(at * RANKS + other, len)));
        }
    }
    for (number, recv) in recvs {
        assert!(job.wait(recv).message() == bytes(number, len), "{number}");
    }
    end_all(&mut job, sends);
}

pub(crate) fn all_to_all<M: Medium>(medium: M) {
    everyone_to_everyone(medium, 100);
}

pub(crate) fn all_to_all_long<M: Medium>(medium: M) {
    everyone_to_everyone(medium, 70_000);
}

pub(crate) fn both_ways_at_once<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for len in [10, 300_000] {
        let sends = [(0, 1), (1, 0)]
            .map(|(from, to)| job.send_as(from, to, 0, 5, &bytes(from, len), Borrowed, NEVER));
        let recvs = [1, 0].map(|at| job.recv_as(at, exact(1 - at as u32, 5), len, Borrowed, NEVER));
        for (from, recv) in recvs.into_iter().enumerate() {
            assert!(job.wait(recv).message() == bytes(from, len));
        }
        end_all(&mut job, sends.into());
    }
}

fn to_self<M: Medium>(medium: M, len: usize, posted_first: bool) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let posted = posted_first.then(|| job.recv_as(0, exact(0, 5), len, whose, NEVER));
        let send = job.send_as(0, 0, 0, 5, &bytes(1, len), whose, NEVER);
        let recv = posted.unwrap_or_else(|| job.recv_as(0, exact(0, 5), len, whose, NEVER));
        assert!(job.wait(recv).message() == bytes(1, len));
        end_all(&mut job, vec![send]);
    }
}

pub(crate) fn to_self_eager<M: Medium>(medium: M) {
    to_self(medium, 100, false);
}

pub(crate) fn to_self_long<M: Medium>(medium: M) {
    to_self(medium, 200_000, false);
}

pub(crate) fn to_self_posted_first<M: Medium>(medium: M) {
    to_self(medium, 200_000, true);
}

pub(crate) fn to_self_in_order<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let sends: Vec<_> = (0..10).map(|number| job.send(0, 0, 5, &bytes(number, number * 9000))).collect();
    for number in 0..10 {
        let recv = job.recv(0, Pattern::any(0), 90_000);
        assert!(job.wait(recv).message() == bytes(number, number * 9000));
    }
    end_all(&mut job, sends);
}

/// Sends one message and waits until a probe of the receiver finds it.
fn arrived<M: Medium>(job: &mut Job<M>, tag: u64, len: usize) -> Op {
    let send = job.send(0, 1, tag, &bytes(1, len));
    job.poll_until(|job| job.engine(1).probe(&exact(0, tag)).unwrap().is_some());
    send
}

pub(crate) fn probe_tells_and_leaves<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, 10);
    for _ in 0..2 {
        let status = job.engine(1).probe(&exact(0, 5)).unwrap();
        assert_eq!(status, Some(Status { source: WorldRank(0), tag: 5, bytes: 10 }));
    }
    assert_eq!(receive_all(&mut job, 1, &[exact(0, 5)]), [bytes(1, 10)]);
    assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None));
    end_all(&mut job, vec![send]);
}

pub(crate) fn probe_of_nothing<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, 10);
    for pattern in [exact(0, 6), exact(1, 5), Pattern::any(1), exact(0, 4).masked(5)] {
        assert_eq!(job.engine(1).probe(&pattern), Ok(None), "{pattern:?}");
    }
    receive_all(&mut job, 1, &[exact(0, 5)]);
    end_all(&mut job, vec![send]);
}

pub(crate) fn probe_with_wildcards<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, 10);
    for pattern in [Pattern::any(0), exact(0, 0).any_tag(), exact(0, 5).any_source(), exact(0, 7).masked(5)] {
        assert_eq!(job.engine(1).probe(&pattern).unwrap().map(|status| status.tag), Some(5), "{pattern:?}");
    }
    receive_all(&mut job, 1, &[Pattern::any(0)]);
    end_all(&mut job, vec![send]);
}

pub(crate) fn probe_of_a_long_message<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, 150_000);
    let status = job.engine(1).probe(&Pattern::any(0)).unwrap();
    assert_eq!(status, Some(Status { source: WorldRank(0), tag: 5, bytes: 150_000 }));
    assert!(!job.is_over(&send));
    assert!(receive_all(&mut job, 1, &[exact(0, 5)])[0] == bytes(1, 150_000));
    end_all(&mut job, vec![send]);
}

fn claimed<M: Medium>(medium: M, len: usize, whose: crate::job::Whose) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, len);
    let (status, recv) = job.recv_claimed(1, Pattern::any(0), whose);
    assert_eq!(status, Status { source: WorldRank(0), tag: 5, bytes: len });
    assert!(job.wait(recv).message() == bytes(1, len));
    end_all(&mut job, vec![send]);
}

pub(crate) fn claim_takes_away<M: Medium>(medium: M) {
    claimed(medium, 10, Owned);
}

pub(crate) fn claim_of_a_long_message<M: Medium>(medium: M) {
    claimed(medium, 150_000, Owned);
}

pub(crate) fn claim_into_borrowed_memory<M: Medium>(medium: M) {
    claimed(medium, 150_000, Borrowed);
}

pub(crate) fn claims_keep_order<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let sends: Vec<_> = (0..6).map(|number| job.send(0, 1, 5, &bytes(number, number * 9000))).collect();
    job.settle();
    for number in 0..6 {
        let (_, recv) = job.recv_claimed(1, exact(0, 5), Owned);
        assert!(job.wait(recv).message() == bytes(number, number * 9000));
    }
    end_all(&mut job, sends);
}

fn discarded<M: Medium>(medium: M, len: usize) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, len);
    let next = job.send(0, 1, 5, b"next");
    let now = job.now();
    let (_, claimed) = job.engine(1).claim(&Pattern::any(0)).unwrap().unwrap();
    job.engine(1).discard(now, claimed);
    assert_eq!(receive_all(&mut job, 1, &[exact(0, 5)]), [b"next"]);
    end_all(&mut job, vec![send, next]);
}

pub(crate) fn claim_and_discard<M: Medium>(medium: M) {
    discarded(medium, 10);
}

pub(crate) fn claim_and_discard_long<M: Medium>(medium: M) {
    discarded(medium, 150_000);
}

pub(crate) fn claimed_is_not_probed<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = arrived(&mut job, 5, 150_000);
    let now = job.now();
    let (_, claimed) = job.engine(1).claim(&exact(0, 5)).unwrap().unwrap();
    assert_eq!(job.engine(1).probe(&Pattern::any(0)), Ok(None));
    assert!(job.engine(1).claim(&Pattern::any(0)).unwrap().is_none());
    job.engine(1).discard(now, claimed);
    end_all(&mut job, vec![send]);
}
