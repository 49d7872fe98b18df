//! Tests of opened contexts: the ranks that may use them, the state after their end, and the failures that concern
//! them.

use super::incarnations::{LONG, Restarts};
use super::strangers::{arrive, packet};
use super::*;
use crate::wire::{Leave, kind};

const OPENED: u32 = 20;

fn any(context: u32) -> Pattern {
    Pattern { context, source: Source::ANY, tag: 0, mask: 0 }
}

fn open(engines: &mut [Engine<impl Port>], context: u32, members: &Group) {
    for engine in engines {
        assert_eq!(engine.open_contexts(context.into(), members.clone()), Ok(true));
    }
}

#[test]
fn messages_of_every_length_match_in_their_context_alone() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
    for len in [0, 8, 50_000, LONG] {
        for (context, byte) in [(1, 1u8), (OPENED, 2)] {
            engines[0]
                .isend(Time::ZERO, WorldRank(1), context, 5, Memory::new(vec![byte; len]), NEVER)
                .unwrap();
        }
        settle(&mut engines);
        for (context, byte) in [(OPENED, 2u8), (1, 1)] {
            let recv = engines[1]
                .irecv(Time::ZERO, Pattern::exact(context, 0, 5), Memory::zeroed(len), NEVER)
                .unwrap();
            settle(&mut engines);
            let completion = engines[1].collect(recv, &mut ()).unwrap();
            assert_eq!(completion.result.map(|status| status.bytes), Ok(len));
            assert_eq!(completion.memory.unwrap().as_bytes(), vec![byte; len]);
        }
    }
}

#[test]
fn a_message_in_an_unknown_context_or_of_no_member_ends_its_sender() {
    for (members, len) in [
        (None, 8),
        (None, LONG),
        (Some(Group::range(WorldRank(1), 1)), 8),
        (Some(Group::range(WorldRank(1), 1)), LONG),
    ] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        engines[0].open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)).unwrap();
        if let Some(members) = members {
            engines[1].open_contexts(OPENED.into(), members).unwrap();
        }
        let recv = engines[1].irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
        engines[0].isend(Time::ZERO, WorldRank(1), OPENED, 5, Memory::zeroed(len), NEVER).unwrap();
        settle(&mut engines);
        assert!(matches!(peer_state(&engines[1], WorldRank(0)).failure(), Some(Cause::Protocol(_))));
        assert_ne!(engines[1].outcome(recv), Outcome::FailurePending, "the failed rank is no member");
        engines[1].cancel(recv);
        let Usage { unexpected_messages, unexpected, envelopes, .. } = engines[1].usage();
        assert_eq!((unexpected_messages, unexpected, envelopes), (0, 0, 0));
    }
}

#[test]
fn a_closed_context_drops_what_waits_and_what_comes() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
    let recv = engines[1].irecv(Time::ZERO, Pattern::exact(OPENED, 0, 99), Memory::zeroed(8), NEVER).unwrap();
    let mut sends = Vec::new();
    let mut send = |engines: &mut [Engine<Loopback>; 2]| {
        for len in [0, 8, 50_000, LONG, 5_000_000] {
            let memory = Memory::zeroed(len);
            sends.push((len, engines[0].isend(Time::ZERO, WorldRank(1), OPENED, 5, memory, NEVER).unwrap()));
        }
        settle(engines);
    };
    send(&mut engines);
    assert_eq!(engines[1].usage().unexpected_messages, 5);
    engines[1].close_contexts(Time::ZERO, OPENED);
    settle(&mut engines);
    // The credit for dropped messages is granted again. Otherwise these sends would wait.
    for _ in 0..100 {
        send(&mut engines);
    }
    let cancelled = engines[1].collect(recv, &mut ()).unwrap().result;
    assert!(matches!(cancelled, Err(Error::Cancelled { fate: Fate::NotDelivered })), "{cancelled:?}");
    let abandoned = Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered };
    for (len, send) in sends {
        let completion = engines[0].collect(send, &mut ()).expect("it has ended");
        assert!(completion.memory.is_some(), "{completion:?}");
        match completion.result {
            Ok(status) => {
                assert!(len < 5_000_000 && status.bytes == len, "{len} bytes: the match was awaited")
            }
            Err(error) => assert!(len > 8 && error == abandoned, "{len} bytes: {error:?}"),
        }
    }
    at_rest(&engines);
    for engine in &mut engines {
        engine.close_contexts(Time::ZERO, OPENED);
        for used in [OPENED - 2, OPENED] {
            assert_eq!(
                engine.open_contexts(used.into(), Group::range(WorldRank(0), 2)),
                Ok(false),
                "each name is used once"
            );
        }
        assert_eq!(engine.free_name(Time::ZERO, 0), Some(u64::from(OPENED) + 2));
    }
}

#[test]
fn calls_that_name_no_member_are_refused() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let refused = Error::InvalidRank { rank: WorldRank(1), size: 2 };
    let engine = &mut engines[0];
    assert_eq!(
        engine.open_contexts(OPENED.into(), Group::range(WorldRank(1), 2)),
        Err(Error::InvalidRank { rank: WorldRank(2), size: 2 })
    );
    for members in [None, Some(Group::range(WorldRank(0), 1))] {
        if let Some(members) = members {
            assert_eq!(engine.open_contexts(OPENED.into(), members), Ok(true));
        }
        assert_eq!(engine.send(Time::ZERO, WorldRank(1), OPENED, 5, &[], NEVER), Err(refused.clone()));
        assert_eq!(
            engine.isend(Time::ZERO, WorldRank(1), OPENED, 5, Memory::zeroed(1), NEVER).unwrap_err().0,
            refused
        );
        let pattern = Pattern::exact(OPENED, 1, 5);
        assert_eq!(engine.irecv(Time::ZERO, pattern, Memory::zeroed(1), NEVER).unwrap_err().0, refused);
        let received = engine.recv(Time::ZERO, pattern, &mut [0], 0, NEVER, &mut ());
        assert_eq!(received, Err(refused.clone()));
        assert_eq!(engine.probe(&pattern), Err(refused.clone()));
    }
    for reserved in [0, 1, OPENED.into(), u64::from(OPENED) + 3] {
        assert_eq!(
            engine.open_contexts(reserved, Group::range(WorldRank(0), 1)),
            Ok(false),
            "it is the job's, was used, or is odd"
        );
    }
    engine.close_contexts(Time::ZERO, OPENED);
    assert_eq!(
        engine.send(Time::ZERO, WorldRank(0), OPENED, 5, &[], NEVER),
        Err(Error::InvalidRank { rank: WorldRank(0), size: 2 })
    );
}

/// A restarted rank takes part in the job, but in no context that was opened before.
#[test]
fn a_member_that_is_started_again_has_ended_for_its_contexts() {
    let mut job = Restarts::new(Config::default());
    open(&mut job.engines, OPENED, &Group::range(WorldRank(0), 2));
    job.fail();
    let receiver = &mut job.engines[1];
    let recv = receiver.irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
    assert_eq!(receiver.outcome(recv), Outcome::FailurePending);
    assert!(matches!(receiver.failure_pending(recv), Some(Error::FailurePending { rank: WorldRank(0), .. })));
    assert_eq!(receiver.collect(recv, &mut ()).unwrap().result, Err(Error::Deserted));
    job.restart();
    let receiver = &mut job.engines[1];
    let restarted = |error: &Error| {
        matches!(error, Error::PeerFailed { rank: WorldRank(0), cause: Cause::Restarted, .. })
    };
    for (context, is_over) in [(1, false), (OPENED, true)] {
        let pattern = Pattern::exact(context, 0, 5);
        let send = receiver.send(Time::ZERO, WorldRank(0), context, 5, &[1], NEVER);
        let recv = receiver.irecv(Time::ZERO, pattern, Memory::zeroed(8), NEVER).map_err(|(error, _)| error);
        let probe = receiver.probe(&pattern);
        if is_over {
            assert!(
                restarted(&send.unwrap_err())
                    && restarted(&recv.unwrap_err())
                    && restarted(&probe.unwrap_err())
            );
        } else {
            send.unwrap();
            assert_eq!(probe, Ok(None));
            receiver.forget(recv.unwrap());
        }
    }
    // A receive that a watcher watches ends with `Deserted` too.
    let watcher = receiver.add_watcher();
    let recv = receiver.irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
    receiver.watch(recv, watcher, 3);
    assert_eq!(receiver.take_end(watcher), Some((recv, 3)));
    assert_eq!(receiver.collect(recv, &mut ()).unwrap().result, Err(Error::Deserted));
    // The next incarnation is not a member of the context, so it violates the protocol if it sends there.
    assert_eq!(job.engines[0].open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)), Ok(true));
    job.engines[0].send(Time::ZERO, WorldRank(1), OPENED, 5, &[1], NEVER).unwrap();
    settle(&mut job.engines);
    assert!(matches!(peer_state(&job.engines[1], WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    job.engines[1].check_invariants();
}

/// The end of all other ranks of the job does not concern a context whose only member is this rank: its receives from
/// any source wait for messages of this rank to itself.
#[test]
fn a_context_of_one_member_is_never_deserted() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    engines[1].open_contexts(OPENED.into(), Group::range(WorldRank(1), 1)).unwrap();
    let any = |engine: &mut Engine<_>| {
        engine.irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).map_err(|(error, _)| error).unwrap()
    };
    let before = any(&mut engines[1]);
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    let after = any(&mut engines[1]);
    assert_eq!(engines[1].probe(&Pattern { source: Source::ANY, ..Pattern::exact(OPENED, 0, 5) }), Ok(None));
    for recv in [before, after] {
        assert_eq!(engines[1].outcome(recv), Outcome::Pending);
    }
    for recv in [before, after] {
        engines[1].send(Time::ZERO, WorldRank(1), OPENED, 5, &[1], NEVER).unwrap();
        settle(&mut engines);
        assert_eq!(engines[1].collect(recv, &mut ()).unwrap().result.map(|status| status.bytes), Ok(1));
    }
}

#[test]
fn a_receive_in_a_closed_context_ends() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    engines[1].open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)).unwrap();
    engines[1].close_contexts(Time::ZERO, OPENED);
    let recv = engines[1].irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
    assert_eq!(engines[1].collect(recv, &mut ()).unwrap().result, Err(Error::Deserted));
}

/// When a member leaves a context, operations that wait for this member end, but only in this context. This holds even
/// if the member leaves before the other rank has opened the context, or before the two ranks had any contact.
#[test]
fn a_member_that_leaves_ends_what_waits_for_it_there() {
    for (has_met, is_early) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut engines = pair(&Config::default());
        if has_met {
            settle(&mut engines);
        }
        engines[0].open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)).unwrap();
        if is_early {
            engines[0].leave_contexts(Time::ZERO, OPENED);
            settle(&mut engines);
        }
        assert_eq!(engines[1].open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)), Ok(true));
        let named = engines[1].irecv(Time::ZERO, Pattern::exact(OPENED, 0, 5), Memory::zeroed(8), NEVER);
        let sent = engines[1].isend(Time::ZERO, WorldRank(0), OPENED, 5, Memory::zeroed(LONG), NEVER);
        let others = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), NEVER).unwrap();
        let any = engines[1].irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
        settle(&mut engines);
        if !is_early {
            assert_eq!(engines[1].outcome(any), Outcome::Pending);
            engines[0].leave_contexts(Time::ZERO, OPENED);
            settle(&mut engines);
        }
        for begun in [named, sent] {
            let error = match begun {
                Err((error, _)) => error,
                Ok(id) => engines[1].collect(id, &mut ()).expect("it has ended").result.unwrap_err(),
            };
            let Error::PeerFailed { rank: WorldRank(0), cause: Cause::LeftContext, .. } = error else {
                panic!("{error:?}")
            };
        }
        assert_eq!(engines[1].outcome(any), Outcome::FailurePending);
        let told = engines[1].failure_pending(any);
        assert_eq!(told, Some(Error::FailurePending { rank: WorldRank(0), cause: Cause::LeftContext }));
        assert_eq!(engines[1].collect(any, &mut ()).unwrap().result, Err(Error::Deserted));
        assert_eq!(engines[1].outcome(others), Outcome::Pending);
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, 5, &[1], NEVER), Ok(Sent::Now));
        settle(&mut engines);
        assert!(engines[1].collect(others, &mut ()).expect("it has ended").result.is_ok());
        engines[0].check_invariants();
        engines[1].check_invariants();
    }
}

/// A rank that was known as a member, because messages were exchanged with it, is not a member after it has left.
#[test]
fn operations_with_a_member_that_has_left_after_an_exchange_are_refused() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
    let pattern = Pattern::exact(OPENED, 0, 5);
    let recv = engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(1), NEVER).unwrap();
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = engines[from].send(Time::ZERO, WorldRank(to), OPENED, 5, &[1], NEVER);
        assert_eq!(sent, Ok(Sent::Now));
    }
    settle(&mut engines);
    assert!(engines[1].collect(recv, &mut ()).expect("it has ended").result.is_ok());
    engines[0].leave_contexts(Time::ZERO, OPENED);
    settle(&mut engines);
    let has_left = |error: Error| {
        matches!(error, Error::PeerFailed { rank: WorldRank(0), cause: Cause::LeftContext, .. })
    };
    assert!(has_left(engines[1].send(Time::ZERO, WorldRank(0), OPENED, 5, &[1], NEVER).unwrap_err()));
    assert!(has_left(engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(1), NEVER).unwrap_err().0));
    engines[1].check_invariants();
}

#[test]
fn a_peer_that_leaves_a_context_of_the_job_or_one_that_cannot_exist_has_failed() {
    for (context, fails) in [(0, true), (1, true), (OPENED + 1, true), (OPENED, false)] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        engines[1].open_contexts(OPENED.into(), Group::range(WorldRank(1), 1)).unwrap();
        let expected = peer_state(&engines[1], WorldRank(0)).expected();
        let leave = Leave { name: u64::from(context).into() };
        arrive(&mut engines[1], &packet(Protocol::P2p, kind::LEAVE, expected, leave.as_bytes()));
        let failure = peer_state(&engines[1], WorldRank(0)).failure();
        assert_eq!(matches!(failure, Some(Cause::Protocol(_))), fails, "{failure:?}");
    }
}

/// Packets about leaving contexts that were never opened take a limited amount of memory.
#[test]
fn ranks_that_leave_unknown_contexts_without_end_are_forgotten() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    for context in (OPENED..OPENED + 1000).step_by(2) {
        let expected = peer_state(&engines[1], WorldRank(0)).expected();
        let leave = Leave { name: u64::from(context).into() };
        arrive(&mut engines[1], &packet(Protocol::P2p, kind::LEAVE, expected, leave.as_bytes()));
    }
    assert!(peer_state(&engines[1], WorldRank(0)).failure().is_none());
    for context in [OPENED + 800, OPENED + 998] {
        assert_eq!(engines[1].open_contexts(context.into(), Group::range(WorldRank(0), 2)), Ok(true));
        let has_left = engines[1].send(Time::ZERO, WorldRank(0), context, 5, &[], NEVER).is_err();
        assert_eq!(has_left, context == OPENED + 998);
        engines[1].check_invariants();
    }
}

#[test]
fn failures_are_reported_where_the_rank_is_a_member() {
    let hub = Hub::new();
    let identity = Identity { rank: WorldRank(0), size: 4, incarnation: 7, secret: [9; 16] };
    let mut engine = Engine::new(hub.port(), identity, Config::default());
    let odd = Group::new([0, 1, 3].map(WorldRank)).unwrap();
    for (context, members) in [(OPENED, odd), (OPENED + 2, Group::range(WorldRank(0), 3))] {
        assert_eq!(engine.open_contexts(context.into(), members), Ok(true));
    }
    let recvs = [1, OPENED, OPENED + 2]
        .map(|context| engine.irecv(Time::ZERO, any(context), Memory::zeroed(8), NEVER).unwrap());
    let reported = |engine: &mut Engine<Loopback>| {
        recvs.map(|recv| match engine.outcome(recv) {
            Outcome::FailurePending => {
                let failure = engine.failure_pending(recv);
                assert_ne!(engine.outcome(recv), Outcome::FailurePending, "each once");
                match failure {
                    Some(Error::FailurePending { rank, .. }) => Some(rank),
                    other => panic!("{other:?}"),
                }
            }
            _ => None,
        })
    };
    engine.peer_failed(WorldRank(3), Some(7), Cause::Lost).unwrap();
    assert_eq!(reported(&mut engine), [Some(WorldRank(3)), Some(WorldRank(3)), None]);
    engine.peer_failed(WorldRank(2), Some(7), Cause::Lost).unwrap();
    assert_eq!(reported(&mut engine), [Some(WorldRank(2)), None, Some(WorldRank(2))]);
    assert_eq!(engine.outcome(recvs[1]), Outcome::Pending, "rank 1 takes part");
    // A failure that was reported in a context is not reported again to later receives there.
    let later = engine.irecv(Time::ZERO, any(OPENED), Memory::zeroed(8), NEVER).unwrap();
    assert_eq!(engine.outcome(later), Outcome::Pending);
    engine.check_invariants();
}

/// There may be millions of contexts, so the end of a rank is noted once and not in each of them.
#[test]
fn a_rank_that_ends_has_ended_in_all_contexts_opened_before() {
    const MANY: u32 = 5_000;
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let both = Group::range(WorldRank(0), 2);
    for number in 0..MANY {
        assert_eq!(engines[0].open_contexts((OPENED + 2 * number).into(), both.clone()), Ok(true));
    }
    let engine = &mut engines[0];
    engine.peer_failed(WorldRank(1), None, Cause::Died("killed".into())).unwrap();
    for number in 0..MANY {
        let from_it = engine.probe(&Pattern::exact(OPENED + 2 * number, 1, 5));
        assert!(matches!(from_it, Err(Error::PeerFailed { .. })), "{number}: {from_it:?}");
        let contexts = &engine.inner.tagged().contexts;
        assert!(contexts.is_deserted(OPENED + 2 * number), "{number}");
    }
    engine.check_invariants();
    (0..MANY).for_each(|number| engine.close_contexts(Time::ZERO, OPENED + 2 * number));
    engine.check_invariants();
}

/// The numbers of contexts are used again once all members have closed them and have sent everything.
#[test]
fn numbers_come_round_when_all_members_have_closed_their_contexts() {
    let both = Group::range(WorldRank(0), 2);
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    engines.iter_mut().for_each(|engine| engine.cut_names(4));
    // With 4 bits, the contexts that can be opened have the numbers 2, 4 … 14.
    for name in (2..16).step_by(2) {
        open(&mut engines, name, &both);
    }
    for engine in &mut engines {
        assert_eq!(engine.free_name(Time::ZERO, 0), None, "all numbers are in use");
    }
    // Both engines close the context 8. Only the second engine closes the context 6.
    engines[1].close_contexts(Time::ZERO, 6);
    engines[1].close_contexts(Time::ZERO, 8);
    engines[0].close_contexts(Time::ZERO, 8);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), None, "the other has not confirmed");
    settle(&mut engines);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), Some(24), "the number 8 is free, and 6 is not");
    assert_eq!(engines[1].open_contexts(22, both.clone()), Ok(false), "its number is in use");
    assert_eq!(engines[0].free_name(Time::ZERO, 0), None);
    settle(&mut engines);
    assert_eq!(engines[0].free_name(Time::ZERO, 0), Some(24));
    open(&mut engines, 24, &both);
    // The number 8 belongs to a name that was closed and to a new one. The message is sent in the new context.
    let sent = engines[0].send(Time::ZERO, WorldRank(1), 8, 5, &[1], NEVER);
    assert_eq!(sent, Ok(Sent::Now));
    settle(&mut engines);
    assert!(engines[1].probe(&any(8)).unwrap().is_some());
    engines[0].close_contexts(Time::ZERO, 6);
    engines[1].free_name(Time::ZERO, 0);
    settle(&mut engines);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), Some(38), "the number 6 has come round");
    engines.iter().for_each(Engine::check_invariants);
}

/// A message that was queued in a context before its rank closed the context is still sent afterwards. Until then the
/// number stays in use.
#[test]
fn a_number_stays_in_use_while_a_message_waits_to_be_sent() {
    let config = Config { unexpected_max: 0, ..Config::default() };
    let both = Group::range(WorldRank(0), 2);
    let mut engines = pair(&config);
    settle(&mut engines);
    engines.iter_mut().for_each(|engine| engine.cut_names(3));
    for name in [2, 4, 6] {
        open(&mut engines, name, &both);
    }
    let waits = engines[0].isend(Time::ZERO, WorldRank(1), 2, 5, Memory::zeroed(LONG), NEVER).unwrap();
    engines[0].close_contexts(Time::ZERO, 2);
    engines[1].free_name(Time::ZERO, 0);
    settle(&mut engines);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), None, "the contexts are open here");
    engines[1].close_contexts(Time::ZERO, 2);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), None);
    settle(&mut engines);
    engines[1].free_name(Time::ZERO, 0);
    settle(&mut engines);
    assert_eq!(engines[1].free_name(Time::ZERO, 0), Some(10));
    let end = engines[0].collect(waits, &mut ()).expect("it has ended").result;
    assert_eq!(end, Err(Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered }));
}

/// A synchronous send succeeds only if its message is matched, and a ready send only if a receive is posted for it.
#[test]
fn a_closed_context_abandons_the_sends_that_await_a_match() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
    let start = |engines: &mut [Engine<Loopback>; 2], mode, len| {
        let memory = Memory::zeroed(len);
        let id = engines[0].isend_with(mode, Time::ZERO, WorldRank(1), OPENED, 5, memory, NEVER).unwrap();
        settle(engines);
        id
    };
    let waiting = [8, LONG].map(|len| start(&mut engines, Mode::Synchronous, len));
    engines[1].close_contexts(Time::ZERO, OPENED);
    settle(&mut engines);
    let late = [8, LONG].map(|len| start(&mut engines, Mode::Synchronous, len));
    let abandoned = Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered };
    for id in waiting.into_iter().chain(late) {
        let end = engines[0].collect(id, &mut ()).expect("it has ended");
        assert!(end.memory.is_some() && end.result == Err(abandoned.clone()), "{end:?}");
    }
    for len in [8, LONG] {
        let id = start(&mut engines, Mode::Ready, len);
        let end = engines[0].collect(id, &mut ()).expect("it has ended").result;
        assert_eq!(end, Err(Error::NotPosted { rank: WorldRank(1) }));
    }
    at_rest(&engines);
}

#[test]
fn a_closed_context_takes_no_room_for_envelopes() {
    let mut engines = pair(&Config { envelopes_max: 0, ..Config::default() });
    settle(&mut engines);
    open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
    engines[1].close_contexts(Time::ZERO, OPENED);
    let send =
        engines[0].isend(Time::ZERO, WorldRank(1), OPENED, 5, Memory::zeroed(5_000_000), NEVER).unwrap();
    settle(&mut engines);
    let completion = engines[0].collect(send, &mut ()).expect("it has ended");
    let abandoned = Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered };
    assert!(completion.memory.is_some() && completion.result == Err(abandoned), "{completion:?}");
    at_rest(&engines);
}

/// Answers to questions that this rank has not asked are ignored. Packets about ranges of names that cannot exist make
/// their sender fail.
#[test]
fn answers_without_a_question_change_nothing() {
    use crate::wire::{Confirm, Inquire};
    for (kind, body, fails) in [
        (kind::CONFIRM, Confirm { from: 2.into(), until: 4.into(), used: 9.into() }.as_bytes(), false),
        (kind::INQUIRE, Inquire { from: 4.into(), until: 4.into() }.as_bytes(), true),
        (kind::INQUIRE, Inquire { from: 0.into(), until: u64::MAX.into() }.as_bytes(), true),
        (kind::INQUIRE, Inquire { from: 90.into(), until: 99.into() }.as_bytes(), false),
        (kind::INQUIRE, Inquire { from: (u64::MAX - 3).into(), until: u64::MAX.into() }.as_bytes(), false),
    ] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        open(&mut engines, OPENED, &Group::range(WorldRank(0), 2));
        engines[1].close_contexts(Time::ZERO, OPENED);
        // A send is under way whose context the question may concern.
        engines[1].isend(Time::ZERO, WorldRank(0), 0, 5, Memory::zeroed(1 << 20), NEVER).unwrap();
        let expected = peer_state(&engines[1], WorldRank(0)).expected();
        arrive(&mut engines[1], &packet(Protocol::P2p, kind, expected, body));
        assert_eq!(peer_state(&engines[1], WorldRank(0)).failure().is_some(), fails);
        assert_eq!(engines[1].free_name(Time::ZERO, 0), Some(u64::from(OPENED) + 2));
    }
}
