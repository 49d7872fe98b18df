//! Errors of intercommunicators, and of creations of communicators.

use std::sync::Mutex;

use samite::{Cause, Comm, Error, ErrorHandler, Group, Hints, Locality, Rank, Settings, Source};

use crate::{LONG, Log, NO_RANK, SHORT, is_timeout};

/// Returns the only error of a test of a creation, once it has ended.
fn tested<C>(mut creation: samite::Creation<C>) -> Error {
    loop {
        if let Some(end) = creation.test() {
            break end.err().expect("it fails");
        }
    }
}

/// Creates an intercommunicator between two ranks.
fn both(comm: &Comm) -> Comm {
    comm.self_comm().unwrap().create_intercomm(Rank(0), comm, Rank(1 - comm.rank().0), 7).unwrap()
}

#[test]
fn creations_report_their_errors() {
    samite::local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        if comm.rank() == 1 {
            comm.recv(&mut [0u8; 0], Rank(0), 1).unwrap();
            return;
        }
        let soon = comm.with_timeout(SHORT);
        log.took("dup", soon.dup().unwrap_err());
        log.took("split", soon.split(Some(0), 0).unwrap_err());
        log.took("create_from_group", soon.create_from_group(&comm.group(), 1).unwrap_err());
        log.took("Creation::wait", soon.idup().unwrap().wait().unwrap_err());
        let mut creation = soon.isplit(None, 0).unwrap();
        let error = loop {
            if let Some(end) = creation.test() {
                break end.unwrap_err();
            }
        };
        log.took("Creation::test", error);
        log.took("Creation::test", creation.test().unwrap().unwrap_err());
        // A creation that the program gives up reports nothing.
        let creation = comm.idup().unwrap();
        creation.cancel();
        assert!(matches!(creation.wait(), Err(Error::Cancelled { .. })));
        assert!(log.is_empty());
        comm.send(&[0u8; 0], Rank(1), 1).unwrap();
        // The failure of the other rank.
        let failed = log.took("dup", comm.dup().unwrap_err());
        assert!(matches!(failed, Error::PeerFailed { rank: Rank(1), .. }), "{failed}");
    });
}

#[test]
fn calls_of_an_intercommunicator_report_their_errors_once() {
    samite::local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        let both = both(&comm);
        // Each group has one rank, so rank 1 exists in neither.
        let beyond = log.took("send", both.send(&[1u8], Rank(1), 7).unwrap_err());
        assert_eq!(beyond, Error::InvalidRank { rank: Rank(1), size: 1 });
        log.took("recv", both.recv(&mut [0u8], Rank(1), 7).unwrap_err());
        log.took("isend", both.isend(vec![1u8], Rank(1), 7).unwrap_err());
        log.took("probe", both.probe(Rank(1), 7).unwrap_err());
        log.took("recv_init", both.recv_init(vec![1u8], Rank(1), 7).unwrap_err());
        log.took("psend_init", both.psend_init(vec![1u8], 1, Rank(1), 7).unwrap_err());
        let soon = both.with_timeout(SHORT);
        assert!(is_timeout(&log.took("recv", soon.recv(&mut [0u8], Rank(0), 7).unwrap_err())));
        let late = soon.irecv(vec![0u8], Source::ANY, 7).unwrap();
        assert!(is_timeout(&log.took("Request::wait", late.wait().unwrap_err())));
        let mut room = [0u8];
        let failed = soon.scope(|scope| {
            let receive = scope.irecv(&mut room, Rank(0), 7)?;
            scope.wait(receive)
        });
        assert!(is_timeout(&log.took("Scope::wait", failed.unwrap_err())));
        // Calls that need one group, or two.
        let group = Group::range(Rank(0), 1);
        let needs_one = [
            ("split_by", both.split_by(Locality::Host, 0).err()),
            ("create_from_group", both.create_from_group(&group, 0).err()),
            ("icreate_from_group", both.icreate_from_group(&group, 0).err()),
            ("create_intercomm", both.create_intercomm(Rank(0), &comm, Rank(0), 7).err()),
            ("icreate_intercomm", both.icreate_intercomm(Rank(0), &comm, Rank(0), 7).err()),
        ];
        assert!(needs_one.iter().all(|(_, error)| *error == Some(Error::NeedsOneGroup)));
        assert_eq!(log.take(), needs_one.map(|(call, _)| (call.to_owned(), Error::NeedsOneGroup)));
        assert_eq!(log.took("merge", comm.merge(true).unwrap_err()), Error::NeedsTwoGroups);
        assert_eq!(log.took("imerge", comm.imerge(true).unwrap_err()), Error::NeedsTwoGroups);
        assert!(log.is_empty());
        comm.sendrecv(&[0u8], Rank(1 - comm.rank().0), 1, &mut room, Source::ANY, 1).unwrap();
    });
}

/// A handler belongs to a handle, so an intercommunicator has that of the handle on which it was created, and not that
/// of the bridge. Communicators that are derived from it have the handler that it has then.
#[test]
fn what_is_made_of_an_intercommunicator_has_its_handler() {
    samite::local(2, |world| {
        let other = Rank(1 - world.comm().rank().0);
        let (mine, own) = Log::of(&world.comm().self_comm().unwrap());
        let (bridge, of_bridge) = Log::of(world.comm());
        let both = mine.create_intercomm(Rank(0), &bridge, other, 7).unwrap();
        let fails = |made: &Comm, log: &Log| log.took("send", made.send(&[1u8], NO_RANK, 7).unwrap_err());
        fails(&both, &own);
        let (handled, log) = Log::of(&both);
        fails(&handled.dup().unwrap(), &log);
        fails(&handled.dup_with(Hints::NONE.no_any_tag()).unwrap(), &log);
        fails(&handled.idup().unwrap().wait().unwrap(), &log);
        fails(&handled.split(Some(0), 0).unwrap().unwrap(), &log);
        fails(&handled.merge(false).unwrap(), &log);
        fails(&handled.imerge(true).unwrap().wait().unwrap().dup().unwrap(), &log);
        // A creation keeps the handler of the handle that began it.
        let begun = both.with_timeout(LONG).idup().unwrap();
        let again = begun.wait().unwrap().with_error_handler(ErrorHandler::Return);
        assert!(again.send(&[1u8], NO_RANK, 7).is_err());
        // An error of the creation is one of the handle on which it was created.
        own.took("create_intercomm", mine.create_intercomm(NO_RANK, &bridge, other, 8).unwrap_err());
        own.took("create_intercomm", mine.create_intercomm(Rank(0), &bridge, NO_RANK, 8).unwrap_err());
        assert!(own.is_empty() && of_bridge.is_empty() && log.is_empty());
    });
}

#[test]
fn a_creation_without_the_other_group_reports_its_timeout_once() {
    samite::local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        let both = both(&comm);
        if comm.rank() == 0 {
            let soon = both.with_timeout(SHORT);
            let alone = comm.self_comm().unwrap().with_timeout(SHORT);
            let begun = || alone.icreate_intercomm(Rank(0), &comm, Rank(1), 9).unwrap();
            let ends = [
                ("dup", soon.dup().unwrap_err()),
                ("dup_with", soon.dup_with(Hints::NONE.no_any_tag()).unwrap_err()),
                ("split", soon.split(Some(0), 0).unwrap_err()),
                ("merge", soon.merge(true).unwrap_err()),
                ("Creation::wait", soon.imerge(true).unwrap().wait().unwrap_err()),
                ("Creation::wait", soon.isplit(None, 0).unwrap().wait().unwrap_err()),
                ("Creation::test", tested(soon.idup().unwrap())),
                ("create_intercomm", alone.create_intercomm(Rank(0), &comm, Rank(1), 8).unwrap_err()),
                ("Creation::wait", begun().wait().unwrap_err()),
                ("Creation::test", tested(begun())),
            ];
            assert!(ends.iter().all(|(_, error)| is_timeout(error)), "{ends:?}");
            assert_eq!(log.take(), ends.map(|(call, error)| (call.to_owned(), error)));
        }
        assert!(log.is_empty());
        comm.sendrecv(&[0u8], Rank(1 - comm.rank().0), 1, &mut [0u8], Source::ANY, 1).unwrap();
    });
}

/// The leader names a rank that does not exist. Its error is the misuse, and that of the other ranks the failed
/// creation.
#[test]
fn a_wrong_leader_is_reported_at_each_rank_once() {
    samite::local(3, |world| {
        let (comm, log) = Log::of(world.comm());
        for call in ["create_intercomm", "Creation::wait"] {
            let error = match call {
                "create_intercomm" => comm.create_intercomm(Rank(1), &comm, NO_RANK, 7).unwrap_err(),
                _ => match comm.icreate_intercomm(Rank(1), &comm, NO_RANK, 7) {
                    Ok(creation) => creation.wait().unwrap_err(),
                    Err(error) => error,
                },
            };
            let call =
                if comm.rank() == 1 && call != "create_intercomm" { "icreate_intercomm" } else { call };
            match log.took(call, error) {
                Error::InvalidRank { rank: NO_RANK, size: 3 } => assert_eq!(comm.rank(), 1),
                Error::PeerFailed { cause: Cause::LeftComm, .. } => assert_ne!(comm.rank(), 1),
                error => panic!("{error}"),
            }
        }
        comm.dup().unwrap();
        assert!(log.is_empty());
    });
}

#[test]
fn a_creation_that_a_rank_does_not_survive_is_reported_once() {
    samite::local(3, |world| {
        let (comm, log) = Log::of(world.comm());
        let is_alone = comm.rank() == 2;
        let mine = comm.split(Some(u32::from(is_alone)), 0).unwrap().unwrap();
        let remote = if is_alone { Rank(0) } else { Rank(2) };
        let both = mine.create_intercomm(Rank(0), &comm, remote, 7).unwrap();
        if is_alone {
            for rank in 0..2 {
                both.recv(&mut [0u8; 0], Rank(rank), 1).unwrap();
            }
            return;
        }
        both.send(&[0u8; 0], Rank(0), 1).unwrap();
        // The survivors know of the end after this call. So each error names the rank that has ended.
        let error = log.took("recv", both.recv(&mut [0u8], Rank(0), 2).unwrap_err());
        assert!(matches!(error, Error::PeerFailed { rank: Rank(0), world_rank: Rank(2), .. }), "{error}");
        mine.sendrecv(&[0u8; 0], Rank(1 - mine.rank().0), 1, &mut [0u8; 0], Source::ANY, 1).unwrap();
        let of_group = [
            ("dup", comm.dup().unwrap_err()),
            ("dup_with", comm.dup_with(Hints::NONE.no_any_tag()).unwrap_err()),
            ("split", comm.split(None, 0).unwrap_err()),
            ("split_by", comm.split_by(Locality::Host, 0).unwrap_err()),
            ("create_from_group", comm.create_from_group(&comm.group(), 0).unwrap_err()),
            ("Creation::wait", comm.idup().unwrap().wait().unwrap_err()),
            ("Creation::wait", comm.icreate_from_group(&comm.group(), 1).unwrap().wait().unwrap_err()),
            ("Creation::test", tested(comm.isplit(Some(0), 0).unwrap())),
            ("Creation::test", tested(comm.idup_with(Hints::NONE.no_any_tag()).unwrap())),
        ];
        let of_both = [
            ("dup", both.dup().unwrap_err()),
            ("split", both.split(Some(0), 0).unwrap_err()),
            ("merge", both.merge(false).unwrap_err()),
            ("Creation::wait", both.imerge(false).unwrap().wait().unwrap_err()),
            ("Creation::test", tested(both.idup().unwrap())),
            ("create_intercomm", mine.create_intercomm(Rank(0), &comm, remote, 8).unwrap_err()),
        ];
        for (_, error) in of_group.iter().chain(&of_both) {
            assert!(matches!(error, Error::PeerFailed { world_rank: Rank(2), .. }), "{error}");
        }
        let returned = of_group.into_iter().chain(of_both);
        assert_eq!(log.take(), returned.map(|(call, error)| (call.to_owned(), error)).collect::<Vec<_>>());
        // The survivors create communicators of their own.
        mine.dup().unwrap();
        assert!(log.is_empty());
    });
}

#[test]
fn refused_creations_are_reported_once() {
    let mut settings = Settings::default();
    settings.set_communicators_max(1).unwrap();
    settings.local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        let rank = comm.rank();
        let other = Group::range(Rank(1 - rank.0), 1);
        let error = log.took("create_from_group", comm.create_from_group(&other, 0).unwrap_err());
        assert_eq!(error, Error::NotAMember { world_rank: rank });
        log.took("icreate_from_group", comm.icreate_from_group(&other, 0).unwrap_err());
        let only = comm.dup().unwrap();
        let returned = [
            ("dup", comm.dup().unwrap_err()),
            ("split", only.split(Some(0), 0).unwrap_err()),
            ("self_comm", comm.self_comm().unwrap_err()),
            ("Creation::wait", comm.idup().unwrap().wait().unwrap_err()),
            ("Creation::test", tested(comm.isplit(Some(0), 0).unwrap())),
        ];
        assert!(returned.iter().all(|(_, error)| matches!(error, Error::Exhausted { .. })), "{returned:?}");
        assert_eq!(log.take(), returned.map(|(call, error)| (call.to_owned(), error)));
        drop(only);
        comm.dup().unwrap();
        assert!(log.is_empty());
    });
}

/// A handler that panics in a failed creation leaves the communicator usable.
#[test]
fn a_handler_of_a_failed_creation_may_panic_or_create() {
    let told = Mutex::new(Vec::new());
    samite::local(2, |world| {
        let other = Rank(1 - world.comm().rank().0);
        let panics = world.comm().with_error_handler(ErrorHandler::Panic);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.merge(true).map(drop)));
        let message = failed.unwrap_err();
        told.lock().unwrap().push(crate::message(&*message).to_owned());
        // A handler may make the creations that the failed call did not make.
        let creates = world.comm().with_error_handler(ErrorHandler::call(move |raised| {
            let alone = raised.comm.self_comm().unwrap();
            alone.create_intercomm(Rank(0), raised.comm, other, 7).unwrap().merge(false).unwrap();
        }));
        assert_eq!(creates.imerge(true).unwrap_err(), Error::NeedsTwoGroups);
    });
    let told = told.into_inner().unwrap();
    assert!(told.len() == 2 && told.iter().all(|message| message.contains("merge")), "{told:?}");
}
