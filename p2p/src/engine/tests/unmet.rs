//! Tests of members of contexts that are restarted, where the other member had no contact with them.

use super::*;
use crate::agreement::{AgreementId, Choice, Leader, Progress, Proposal};

/// Three ranks that create communicators. The messages of an agreement go between the first rank and each of the other
/// two, so these two do not meet.
struct Trio {
    hub: Hub,
    engines: [Engine<Loopback>; 3],
    /// The processes of earlier incarnations, which do not run any more. While they are kept, no port reports that
    /// their connections are lost.
    stopped: Vec<Engine<Loopback>>,
}

const FIRST: usize = 0;
const RESTARTED: usize = 1;
const LISTENER: usize = 2;

fn rank(index: usize) -> WorldRank {
    WorldRank(index as u32)
}

fn all() -> Group {
    Group::range(rank(0), 3)
}

/// Returns the group of a rank, and the other group: the listener is alone.
fn groups(index: usize) -> [Group; 2] {
    let mut groups = [Group::range(rank(0), 2), Group::range(rank(LISTENER), 1)];
    if index == LISTENER {
        groups.reverse();
    }
    groups
}

/// Choices of each kind, with which all three ranks become members.
const CHOICES: [fn(usize) -> Choice; 5] = [
    |_| Choice::Group(all()),
    |index| Choice::Colour(Some(7), [3, 9, 4][index]),
    |index| {
        let [own, remote] = groups(index);
        Choice::Groups { own, remote }
    },
    |index| {
        let [own, remote] = groups(index);
        Choice::ColourBetween { colour: Some(7), key: 0, own, remote }
    },
    |index| {
        let other = if index == LISTENER { FIRST } else { LISTENER };
        Choice::Remote { leader: 0, other: Some(Leader { rank: rank(other), control: 0, tag: 5 }) }
    },
];

fn any(context: u32) -> Pattern {
    Pattern { context, source: Source::ANY, tag: 0, mask: 0 }
}

impl Trio {
    fn new() -> Self {
        let hub = Hub::new();
        let engines = std::array::from_fn(|index| {
            let identity = Identity { rank: rank(index), size: 3, incarnation: 0, secret: [9; 16] };
            let incarnation = identity.first_incarnation(rank(index)).get();
            Engine::new(hub.port(), Identity { incarnation, ..identity }, Config::default())
        });
        let mut trio = Self { hub, engines, stopped: Vec::new() };
        for (a, b) in [(FIRST, LISTENER), (FIRST, RESTARTED)] {
            trio.introduce(a, b);
            trio.introduce(b, a);
        }
        trio.settle();
        trio
    }

    fn incarnation(&self, of: usize) -> u32 {
        self.engines[of].inner.link().identity().incarnation
    }

    /// Tells a rank the address of another one.
    fn introduce(&mut self, whom: usize, other: usize) {
        let (incarnation, address) = (self.incarnation(other), self.engines[other].port().address());
        self.engines[whom].introduce(rank(other), incarnation, address).unwrap();
    }

    fn poll(&mut self, index: usize) -> usize {
        let events = self.engines[index].poll(Time::ZERO, &mut ()).unwrap();
        self.engines[index].check_invariants();
        events
    }

    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 4 {
            let events: usize = (0..3).map(|index| self.poll(index)).sum();
            idle = if events == 0 { idle + 1 } else { 0 };
        }
    }

    /// Replaces the process of a rank by its next one, and introduces this process and another rank to each other.
    fn restart(&mut self, index: usize, other: usize) {
        let identity = self.engines[index].inner.link().identity().clone();
        let incarnation = identity.incarnation.wrapping_add(1);
        let mut next = Engine::new(self.hub.port(), Identity { incarnation, ..identity }, Config::default());
        next.expect_numbers();
        self.stopped.push(std::mem::replace(&mut self.engines[index], next));
        self.introduce(other, index);
        self.introduce(index, other);
    }

    fn begin(&mut self, index: usize, choice: fn(usize) -> Choice) -> AgreementId {
        let choice = choice(index);
        // The two groups of an intercommunicator have a tree each.
        let (ranks, tag) = match choice {
            Choice::Remote { .. } => (groups(index)[0].clone(), Some(1)),
            _ => (all(), None),
        };
        let proposal = Proposal { ranks, control: 0, tag, choice };
        self.engines[index].begin_agreement(Time::ZERO, proposal, NEVER)
    }

    fn end(&mut self, index: usize, id: AgreementId) -> Result<u32, Error> {
        match self.engines[index].agreement(id) {
            Some(Progress::Ended(end)) => end.map(|agreed| agreed.expect("each rank is a member").context),
            other => panic!("rank {index}: {other:?}"),
        }
    }

    /// Creates a communicator of all three ranks, and returns its context.
    fn create(&mut self, choice: fn(usize) -> Choice) -> u32 {
        let ids = [0, 1, 2].map(|index| self.begin(index, choice));
        self.settle();
        let [context, ..] = [0, 1, 2].map(|index| self.end(index, ids[index]).unwrap());
        context
    }

    fn peer(&self, index: usize, other: usize) -> Option<&PeerState> {
        let mut peers = self.engines[index].inner.link().peers();
        peers.find(|(_, state)| state.rank() == rank(other)).map(|(_, state)| state)
    }

    /// Asserts that operations with the restarted rank in a context end at once, and messages in the world arrive.
    fn assert_has_ended(&mut self, context: u32) {
        let listener = &mut self.engines[LISTENER];
        let ends = [
            listener.send(Time::ZERO, rank(RESTARTED), context, 5, &[1], NEVER).map(drop).unwrap_err(),
            listener.probe(&Pattern::exact(context, RESTARTED as u32, 5)).map(drop).unwrap_err(),
        ];
        let receive = listener.irecv(
            Time::ZERO,
            Pattern::exact(context, RESTARTED as u32, 5),
            Memory::zeroed(1),
            NEVER,
        );
        let end =
            receive.map(|recv| listener.collect(recv, &mut ()).unwrap().result).map_err(|(error, _)| error);
        for end in ends.into_iter().chain([end.and_then(|end| end).unwrap_err()]) {
            assert_restarted(&end);
        }
        assert_eq!(listener.send(Time::ZERO, rank(RESTARTED), 0, 5, &[2], NEVER).map(drop), Ok(()));
        self.settle();
        let found = self.engines[RESTARTED].probe(&Pattern::exact(0, LISTENER as u32, 5));
        assert_eq!(found.unwrap().expect("it has arrived").bytes, 1);
        assert!(self.peer(RESTARTED, LISTENER).unwrap().is_alive(), "no packet violates the protocol");
    }
}

fn assert_restarted(error: &Error) {
    let is_restart = |rank, cause: &Cause| (rank, cause) == (WorldRank(RESTARTED as u32), &Cause::Restarted);
    match error {
        Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, .. } if is_restart(*rank, cause) => {}
        Error::FailurePending { rank, cause } if is_restart(*rank, cause) => {}
        other => panic!("{other:?}"),
    }
}

/// The listener's operations wait when it meets the restarted rank for the first time.
#[test]
fn operations_with_a_member_end_when_its_next_incarnation_appears() {
    for (len, is_hello) in [(8, false), (8, true), (300_000, false), (300_000, true)] {
        let mut trio = Trio::new();
        let context = trio.create(|_| Choice::Group(all()));
        assert!(trio.peer(LISTENER, RESTARTED).is_none(), "they have not met");
        let exact = Pattern::exact(context, RESTARTED as u32, 5);
        let listener = &mut trio.engines[LISTENER];
        let memory = Memory::zeroed(len);
        let sent = listener
            .isend_with(Mode::Synchronous, Time::ZERO, rank(RESTARTED), context, 5, memory, NEVER)
            .unwrap();
        let in_outbox = listener.send(Time::ZERO, rank(RESTARTED), context, 5, &[1], NEVER).unwrap();
        assert_eq!(in_outbox, Sent::Copied);
        let named = listener.irecv(Time::ZERO, exact, Memory::zeroed(8), NEVER).unwrap();
        let others = listener.irecv(Time::ZERO, any(context), Memory::zeroed(8), NEVER).unwrap();
        let in_world = listener.isend(Time::ZERO, rank(RESTARTED), 0, 6, Memory::zeroed(8), NEVER).unwrap();
        trio.restart(RESTARTED, FIRST);
        match is_hello {
            true => {
                trio.introduce(RESTARTED, LISTENER);
                trio.engines[RESTARTED]
                    .isend(Time::ZERO, rank(LISTENER), 0, 7, Memory::zeroed(1), NEVER)
                    .unwrap();
            }
            false => trio.introduce(LISTENER, RESTARTED),
        }
        trio.settle();
        let listener = &mut trio.engines[LISTENER];
        for id in [sent, named] {
            assert_restarted(&listener.collect(id, &mut ()).expect("it has ended").result.unwrap_err());
        }
        assert_restarted(&listener.failure_pending(others).expect("it was reported"));
        assert_eq!(listener.outcome(others), Outcome::Pending, "the first rank may still send");
        assert!(listener.collect(in_world, &mut ()).unwrap().result.is_ok());
        assert!(trio.engines[RESTARTED].probe(&Pattern::exact(0, LISTENER as u32, 6)).unwrap().is_some());
        trio.assert_has_ended(context);
    }
}

/// The listener opens the context after it has met the next incarnation of a member.
#[test]
fn a_context_is_opened_without_a_member_that_was_restarted_meanwhile() {
    let mut trio = Trio::new();
    let ids = [0, 1, 2].map(|index| trio.begin(index, |_| Choice::Group(all())));
    // The restarted rank reports that it has opened the context, and the first rank receives that, before the listener
    // receives the decision.
    for index in [FIRST, RESTARTED, FIRST] {
        trio.poll(index);
    }
    trio.restart(RESTARTED, FIRST);
    trio.introduce(LISTENER, RESTARTED);
    trio.settle();
    trio.end(FIRST, ids[FIRST]).expect("all ranks had opened the context");
    let context = trio.end(LISTENER, ids[LISTENER]).expect("all ranks had opened the context");
    assert_restarted(&trio.engines[LISTENER].probe(&any(context)).unwrap_err());
    trio.assert_has_ended(context);
}

/// Creations in which a restarted rank takes part, while the listener knows only its earlier incarnation, or none.
#[test]
fn a_restarted_member_stays_one_when_the_end_of_its_earlier_incarnation_becomes_known() {
    for (choice, has_met) in CHOICES.iter().flat_map(|choice| [(choice, true), (choice, false)]) {
        let mut trio = Trio::new();
        let earlier = trio.create(*choice);
        if has_met {
            trio.introduce(LISTENER, RESTARTED);
            trio.settle();
        }
        let first = trio.incarnation(RESTARTED);
        trio.restart(RESTARTED, FIRST);
        let context = trio.create(*choice);
        let exact = Pattern::exact(context, RESTARTED as u32, 5);
        let listener = &mut trio.engines[LISTENER];
        let recv = listener.irecv(Time::ZERO, exact, Memory::zeroed(8), NEVER).unwrap();
        let send = listener.isend(Time::ZERO, rank(RESTARTED), context, 5, Memory::zeroed(8), NEVER).unwrap();
        // The launcher's reports arrive late.
        listener.peer_failed(rank(RESTARTED), Some(first), Cause::Died("signal 9".into())).unwrap();
        trio.introduce(LISTENER, RESTARTED);
        trio.settle();
        trio.engines[RESTARTED].send(Time::ZERO, rank(LISTENER), context, 5, &[1], NEVER).unwrap();
        trio.settle();
        let listener = &mut trio.engines[LISTENER];
        for id in [recv, send] {
            assert!(listener.collect(id, &mut ()).expect("it has ended").result.is_ok());
        }
        assert!(
            trio.engines[RESTARTED].probe(&Pattern::exact(context, LISTENER as u32, 5)).unwrap().is_some()
        );
        // The end of the earlier incarnation concerns the earlier context alone.
        let listener = &mut trio.engines[LISTENER];
        assert_eq!(listener.probe(&any(context)), Ok(None));
        assert_restarted(&listener.probe(&any(earlier)).unwrap_err());
        trio.assert_has_ended(earlier);
        trio.restart(RESTARTED, LISTENER);
        trio.settle();
        trio.assert_has_ended(context);
    }
}

/// A rank that takes part in an agreement learns of the end of an incarnation and of the next one at once. The rank
/// that awaits a message of the former incarnation gives up.
#[test]
fn an_agreement_awaits_no_message_of_an_incarnation_that_has_ended() {
    for (polled, restarted) in [
        // The restarted rank has answered, and not received the decision.
        (&[FIRST][..], RESTARTED),
        // The others have sent their answers. The first rank is restarted before it reads them.
        (&[], FIRST),
        // The first rank has sent its decision, and the others have been polled since. It is restarted before it is
        // polled again.
        (&[FIRST, RESTARTED, LISTENER], FIRST),
    ] {
        for joins in [false, true] {
            let mut trio = Trio::new();
            let ids = [0, 1, 2].map(|index| trio.begin(index, |_| Choice::Group(all())));
            for index in polled {
                trio.poll(*index);
            }
            let other = if restarted == FIRST { RESTARTED } else { FIRST };
            trio.restart(restarted, other);
            trio.introduce(LISTENER, restarted);
            trio.introduce(restarted, LISTENER);
            let id = joins.then(|| trio.begin(restarted, |_| Choice::Group(all())));
            trio.settle();
            for index in (0..3).filter(|index| *index != restarted) {
                let end = trio.end(index, ids[index]).unwrap_err();
                let is_about =
                    matches!(&end, Error::PeerFailed { rank: failed, .. } if *failed == rank(restarted));
                assert!(is_about, "rank {index} of {polled:?}, {restarted} restarted: {end:?}");
            }
            if let Some(id) = id {
                trio.engines[restarted].agreement(id);
            }
        }
    }
}
