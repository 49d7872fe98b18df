//! Tests of the end of an incarnation, and of the messages that it leaves to their receivers.

use super::*;

/// A receiver, and a sender that is restarted.
pub(super) struct Restarts {
    hub: Hub,
    /// The sender's present incarnation, and the receiver.
    pub(super) engines: [Engine<Loopback>; 2],
    config: Config,
}

impl Restarts {
    pub(super) fn new(config: Config) -> Self {
        let hub = Hub::new();
        let mut engines = pair_over(2, [hub.port(), hub.port()], &config);
        settle(&mut engines);
        Self { hub, engines, config }
    }

    /// Sends a short message, and a long one whose bytes stay with the sender until the receive is posted.
    fn send(&mut self, tag: u64) {
        let incarnation = self.engines[0].inner.link().identity().incarnation.to_le_bytes();
        assert_eq!(
            self.engines[0].send(Time::ZERO, WorldRank(1), 1, tag, &incarnation, NEVER),
            Ok(Sent::Now)
        );
        self.engines[0].isend(Time::ZERO, WorldRank(1), 1, tag, Memory::zeroed(LONG), NEVER).unwrap();
        settle(&mut self.engines);
        assert!(self.engines[1].usage().envelopes > 0);
    }

    fn leave(&mut self) {
        self.engines[0].close(Time::ZERO);
        settle(&mut self.engines);
        assert!(self.engines[0].closed());
    }

    pub(super) fn fail(&mut self) {
        let incarnation = self.engines[0].inner.link().identity().incarnation;
        let died = Cause::Died("signal 9".into());
        self.engines[1].peer_failed(WorldRank(0), Some(incarnation), died).unwrap();
    }

    pub(super) fn restart(&mut self) {
        let identity = self.engines[0].inner.link().identity().clone();
        let incarnation = identity.incarnation;
        let identity = Identity { incarnation: incarnation.wrapping_add(1), ..identity };
        let mut next = Engine::new(self.hub.port(), identity, self.config.clone());
        next.introduce(WorldRank(1), 7, self.engines[1].port().address()).unwrap();
        self.engines[1].introduce(WorldRank(0), incarnation.wrapping_add(1), next.port().address()).unwrap();
        self.engines[0] = next;
        settle(&mut self.engines);
    }

    /// Receives all unexpected messages with a tag, and returns the incarnations of their senders in order.
    fn received(&mut self, tag: u64) -> Vec<u32> {
        let mut senders = Vec::new();
        while let Ok(Some((status, claimed))) = self.engines[1].claim(&Pattern::exact(1, 0, tag)) {
            assert_eq!(status.bytes, 4, "the bytes of the long messages are gone");
            let recv = self.engines[1].recv_claimed(Time::ZERO, claimed, Ok(Memory::zeroed(4)), NEVER);
            let completion = self.engines[1].collect(recv, &mut ()).unwrap();
            assert!(completion.result.is_ok());
            senders.push(u32::from_le_bytes(completion.memory.unwrap().as_bytes().try_into().unwrap()));
        }
        senders
    }

    /// Asserts that no state of messages or requests is left at the receiver.
    fn assert_empty(&self) {
        let Usage { requests, unexpected, unexpected_messages, envelopes, .. } = self.engines[1].usage();
        assert_eq!((requests, unexpected, unexpected_messages, envelopes), (0, 0, 0, 0));
        assert!(
            self.engines[1].inner.tagged().envelopes.is_empty()
                && self.engines[1].inner.tagged().streams.is_empty()
        );
    }
}

pub(super) const LONG: usize = 300_000;

#[test]
fn a_failure_takes_only_what_has_not_arrived_whole() {
    let mut job = Restarts::new(Config::default());
    job.send(5);
    job.fail();
    assert_eq!(job.engines[1].usage().envelopes, 0);
    assert_eq!(job.received(5), [7]);
    let gone = job.engines[1].probe(&Pattern::exact(1, 0, 5));
    assert!(matches!(gone, Err(Error::PeerFailed { rank: WorldRank(0), .. })), "{gone:?}");
    job.assert_empty();
}

#[test]
fn a_failure_spares_the_messages_of_an_earlier_incarnation_that_left() {
    for (restarts, expected) in [(0, &[7, 8][..]), (1, &[7])] {
        let mut job = Restarts::new(Config::default());
        for tag in [5, 6] {
            job.send(tag);
        }
        job.leave();
        job.restart();
        assert_eq!(job.received(6), [7], "a restart leaves what arrived in good order");
        job.send(5);
        job.fail();
        for _ in 0..restarts {
            job.restart();
        }
        assert_eq!(job.received(5), expected, "a restart drops the messages of a failed incarnation alone");
        job.assert_empty();
    }
}

#[test]
fn messages_of_incarnations_that_left_stay_through_several_failures() {
    let mut job = Restarts::new(Config::default());
    for leaves in [true, false, true, false, false] {
        job.send(5);
        match leaves {
            true => job.leave(),
            false => job.fail(),
        }
        job.restart();
    }
    job.send(5);
    job.leave();
    assert_eq!(job.received(5), [7, 9, 12]);
    job.assert_empty();
    job.restart();
    assert!(
        job.engines[1].inner.tagged().inherited().is_empty(),
        "the names of received messages are dropped"
    );
}

/// The launcher's report about the former incarnation is read after the next incarnation has sent its hello, and before
/// the hello is received.
#[test]
fn a_report_that_is_read_before_the_next_hello_gives_the_cause() {
    for leaves in [false, true] {
        let mut job = Restarts::new(Config::default());
        job.engines[1].expect_word();
        job.send(1);
        if leaves {
            job.leave();
        }
        let any = Pattern { context: 1, source: Source::ANY, tag: 9, mask: !0 };
        let recv = job.engines[1].irecv(Time::ZERO, any, Memory::zeroed(4), NEVER).unwrap();
        let identity = job.engines[0].inner.link().identity().clone();
        let incarnation = identity.incarnation;
        let identity = Identity { incarnation: incarnation.wrapping_add(1), ..identity };
        let mut next = Engine::new(job.hub.port(), identity, Config::default());
        next.introduce(WorldRank(1), 7, job.engines[1].port().address()).unwrap();
        next.isend(Time::ZERO, WorldRank(1), 1, 3, Memory::zeroed(4), NEVER).unwrap();
        next.poll(Time::ZERO, &mut ()).unwrap();

        let died = Cause::Died("signal 9".into());
        job.engines[1].announce_failure(WorldRank(0), incarnation, died.clone());
        job.engines[1].poll(Time::ZERO, &mut ()).unwrap();
        job.engines[1].peer_failed(WorldRank(0), Some(incarnation), died.clone()).unwrap();
        assert_eq!(
            job.engines[1].incarnation(WorldRank(0)),
            Some(incarnation.wrapping_add(1)),
            "the hello has come"
        );
        let Some(Error::FailurePending { rank: WorldRank(0), cause, .. }) =
            job.engines[1].failure_pending(recv)
        else {
            panic!("it was reported")
        };
        assert_eq!(cause, died, "{leaves}");
    }
}

#[test]
fn a_failure_after_the_goodbye_counts_as_one() {
    let mut job = Restarts::new(Config::default());
    job.engines[1].expect_word();
    job.send(5);
    job.leave();
    job.fail();
    job.restart();
    job.send(5);
    job.leave();
    job.fail();
    assert_eq!(job.received(5), [8]);
    job.assert_empty();
}

/// While [`Engine::ends`] does not change, collective operations begin without a look at all members.
#[test]
fn every_step_to_the_end_of_a_rank_changes_the_number_of_ends() {
    let mut job = Restarts::new(Config::default());
    job.engines[1].expect_word();
    job.send(5);
    let mut ends = job.engines[1].ends();
    for step in [Restarts::leave, Restarts::fail, Restarts::restart] {
        step(&mut job);
        let before = std::mem::replace(&mut ends, job.engines[1].ends());
        assert!(before < ends);
    }
    job.send(5);
    ends = job.engines[1].ends();
    job.leave();
    job.restart();
    assert!(job.engines[1].ends() >= ends + 2);
}

/// Lets a sender leave before its long message is received completely. The receiver requests bytes before the goodbye
/// arrives. If `begun` is true, the sender has sent the first requested bytes before it leaves. Returns the results of
/// the send and the receive.
fn leave_amid(window: usize, begun: bool) -> [Result<Status, Error>; 2] {
    let config = Config { push_window: window, stream_max: 0, ..without_puts() };
    let mut engines = pair(&config);
    settle(&mut engines);
    let data = bytes(LONG);
    let Ok(Sent::Pending(send)) = engines[0].send(Time::ZERO, WorldRank(1), 1, 5, &data, NEVER) else {
        panic!("it is long")
    };
    settle(&mut engines);
    let recv = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(LONG), NEVER).unwrap();
    if begun {
        // The first window is sent, and the receiver requests the next one.
        engines[0].poll(Time::ZERO, &mut Reading::new(send, &data[..])).unwrap();
        engines[1].poll(Time::ZERO, &mut ()).unwrap();
    }
    engines[0].close(Time::ZERO);
    for _ in 0..100 {
        engines[0].poll(Time::ZERO, &mut Reading::new(send, &data[..])).unwrap();
        engines[1].poll(Time::ZERO, &mut ()).unwrap();
    }
    assert!(engines[0].closed());
    assert_eq!([engines[0].outcome(send), engines[1].outcome(recv)], [Outcome::Ready; 2]);
    let ends = [
        engines[0].collect(send, &mut ()).unwrap().result,
        engines[1].collect(recv, &mut ()).unwrap().result,
    ];
    assert!(engines[0].inner.tagged().requests.len() == 0 && engines[1].inner.tagged().requests.len() == 0);
    ends
}

#[test]
fn a_send_that_is_called_for_after_the_goodbye_is_not_delivered() {
    for (window, begun) in [(LONG, false), (40_000, false), (40_000, true)] {
        let [sent, received] = leave_amid(window, begun);
        assert_eq!(
            sent,
            Err(Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }),
            "{window} {begun}"
        );
        assert!(matches!(received, Err(Error::PeerFailed { cause: Cause::Left, .. })), "{received:?}");
    }
}
