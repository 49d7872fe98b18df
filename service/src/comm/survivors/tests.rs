use std::sync::Arc;
use std::time::Duration;

use samite_fabric::loopback::Hub;
use samite_p2p::{Identity, WorldRank};

use crate::init::first_incarnation;
use crate::lanes::Lane;
use crate::lanes::Lanes;
use crate::reduction::Sum;
use crate::runtime::{Runtime, Silent};
use crate::stack::engine;
use crate::{CancelToken, Error, Group, Rank, Source, World, transport};

fn group(ranks: impl IntoIterator<Item = u32>) -> Group {
    Group::new(ranks.into_iter().map(Rank)).unwrap()
}

/// Runs `body` as `n` ranks and checks that none of them returns an error.
fn on(n: u32, body: impl Fn(World) -> Result<(), Error> + Sync) {
    assert_eq!(crate::local(n, body), vec![Ok(()); n as usize]);
}

#[test]
fn a_revocation_ends_every_kind_of_operation() {
    on(6, |world| {
        let work = world.comm().dup()?;
        let (rank, other) = (work.rank().0, Rank((work.rank().0 + 1) % 6));
        let mut start = work.barrier_init()?;
        // The calls of ranks 1 to 5 cannot end, because rank 0 takes no part.
        let end = match rank {
            0 => work.revoke(),
            1 => work.barrier(),
            2 => work.recv(&mut [0u8; 4], Source::ANY, 7).map(drop),
            3 => work
                .isend(vec![0u8; 1 << 20], other, 8)
                .map_err(|failed| failed.error)
                .and_then(|sent| sent.wait().map(drop).map_err(|failed| failed.error)),
            4 => work
                .iallreduce(vec![1u64; 1000], vec![0; 1000], Sum)
                .map_err(|failed| failed.error)
                .and_then(|sum| sum.wait().map(drop).map_err(|failed| failed.error)),
            _ => work.dup().map(drop),
        };
        assert_eq!(end, if rank == 0 { Ok(()) } else { Err(Error::Revoked) });
        assert!(work.is_revoked());
        for again in [work.barrier(), work.send(&[1u8], other, 7), work.split(Some(1), 0).map(drop)] {
            assert_eq!(again, Err(Error::Revoked));
        }
        assert_eq!(work.probe(Source::ANY, 7).map(drop), Err(Error::Revoked));
        assert_eq!(start.start().and_then(|()| start.wait().map(drop)), Err(Error::Revoked));
        assert_eq!(work.agree(rank.into())?.flags, 0);
        let survivors = work.shrink()?;
        assert_eq!(survivors.group(), world.comm().group());
        survivors.barrier()?;
        world.comm().barrier()
    });
}

#[test]
fn survivors_shrink_until_one_is_left() {
    on(7, |world| {
        let mut comm = world.comm().clone();
        loop {
            // The last rank leaves, also while the others shrink.
            if comm.rank().0 + 1 == comm.size() && comm.size() > 1 {
                return Ok(());
            }
            let size = comm.size();
            let next = comm.shrink()?;
            let agreement = comm.agree(1 << next.rank().0)?;
            assert_eq!(agreement.flags, if next.size() == 1 { 1 } else { 0 });
            if next.size() == 1 {
                assert_eq!(next.group(), group([0]));
                return Ok(());
            }
            assert!(next.size() <= size);
            comm = next;
        }
    });
}

#[test]
fn acknowledged_failures_leave_wildcards_and_agreements_in_peace() {
    on(4, |world| {
        let comm = world.comm();
        match comm.rank() {
            Rank(3) => return Ok(()),
            Rank(1) => comm.send(&[1u8], Rank(0), 7)?,
            _ => {}
        }
        assert_eq!(comm.agree(0)?.failed, group([3]));
        assert_eq!(comm.failed()?, group([3]));
        assert_eq!(comm.acknowledge()?, group([3]));
        assert_eq!(comm.agree(0)?.failed, group([]));
        if comm.rank() == 0 {
            assert_eq!(comm.recv(&mut [0u8], Source::ANY, 7)?.peer, Rank(1));
        }
        // A rank that was acknowledged is still not in a communicator of the survivors.
        assert_eq!(comm.shrink()?.group(), group([0, 1, 2]));
        Ok(())
    });
}

#[test]
fn nonblocking_forms_end_in_any_order_and_can_be_given_up() {
    on(3, |world| {
        let comm = world.comm();
        let (mut first, second) = (comm.iagree(7)?, comm.ishrink()?);
        let third = comm.iagree(1 << comm.rank().0)?;
        assert_eq!(third.wait()?.flags, 0);
        assert_eq!(second.wait()?.size(), 3);
        let agreement = loop {
            if let Some(end) = first.test() {
                break end?;
            }
        };
        assert_eq!((agreement.flags, agreement.failed), (7, group([])));
        assert!(matches!(first.test(), Some(Err(Error::NoSuchRequest))));
        // Rank 1 gives up: its flags count, and it is in the group, but has no communicator.
        if comm.rank() == 1 {
            drop(comm.iagree(2)?);
            let token = CancelToken::new();
            token.cancel();
            let end = comm.with_cancel(&token).shrink();
            assert!(matches!(end, Err(Error::Cancelled { .. })), "{end:?}");
            comm.barrier()
        } else {
            assert_eq!(comm.agree(3)?.flags, 2);
            let survivors = comm.shrink()?;
            assert_eq!(survivors.size(), 3);
            let end = survivors.recv(&mut [0u8], Rank(1), 7);
            assert!(matches!(end, Err(Error::PeerFailed { rank: Rank(1), .. })), "{end:?}");
            comm.barrier()
        }
    });
}

#[test]
fn a_time_out_names_a_rank_that_has_not_come() {
    on(2, |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            let end = comm.with_timeout(Duration::from_millis(20)).agree(1);
            let Err(Error::TimedOut { report, .. }) = &end else { panic!("{end:?}") };
            assert_eq!(report.peer, Some(Rank(1)));
            assert!(report.to_string().starts_with("agreement of survivors"), "{report}");
            comm.send(&[0u8], Rank(1), 7)?;
        } else {
            comm.recv(&mut [0u8], Rank(0), 7)?;
            assert_eq!(comm.agree(3)?.flags, 1);
        }
        comm.barrier()
    });
}

#[test]
fn an_intercommunicator_can_be_revoked_but_not_shrunk() {
    on(4, |world| {
        let comm = world.comm();
        let half = comm.split(Some(comm.rank().0 % 2), 0)?.expect("it has a colour");
        let inter = half.create_intercomm(Rank(0), comm, Rank(1 - comm.rank().0 % 2), 5)?;
        assert_eq!(inter.shrink().map(drop), Err(Error::NeedsOneGroup));
        assert_eq!(inter.agree(0).map(drop), Err(Error::NeedsOneGroup));
        if comm.rank() == 3 {
            inter.revoke()?;
        }
        assert_eq!(inter.recv(&mut [0u8], Rank(0), 7).map(drop), Err(Error::Revoked));
        assert_eq!(inter.failed()?, group([]));
        comm.barrier()
    });
}

#[test]
fn under_a_launcher_without_reports_survivors_cannot_agree() {
    let (hub, settings) = (Hub::new(), samite_control::Settings::default());
    let identity =
        Identity { rank: WorldRank(0), size: 2, incarnation: first_incarnation(0), secret: [0; 16] };
    let engine = engine(transport::local(hub.port()), identity.clone(), settings.engine.clone());
    let (place, lane) = (samite_control::Place::ALONE, Lane { number: 0, of: 1 });
    let runtime = Runtime::new(engine, Box::new(Silent), &identity, &place, lane, &settings).unwrap();
    let world = World::new(Lanes::new(vec![Arc::new(runtime)]));
    let comm = world.comm();
    assert_eq!(comm.shrink().map(drop), Err(Error::NoFailureReports));
    assert_eq!(comm.ishrink().map(drop), Err(Error::NoFailureReports));
    assert_eq!(comm.agree(0).map(drop), Err(Error::NoFailureReports));
    assert_eq!(comm.iagree(0).map(drop), Err(Error::NoFailureReports));
    // A communicator of one rank has no survivors to wait for.
    assert_eq!(comm.self_comm().and_then(|alone| alone.agree(5)).map(|agreed| agreed.flags), Ok(5));
}
