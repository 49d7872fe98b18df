//! Error handlers: each error of each call is reported once, to the handler of the right handle.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use calls::refusals;
use samite::reduction::Max;
use samite::{
    CancelToken, Comm, Error, ErrorHandler, Group, Layout, Locality, PendingSet, Persistent, Rank, Source,
    start_all,
};

#[path = "../calls/mod.rs"]
mod calls;
mod creations;

const SHORT: Duration = Duration::from_millis(5);
/// Longer than any test lasts.
const LONG: Duration = Duration::from_secs(600);
/// A rank that does not exist.
const NO_RANK: Rank = Rank(9);

/// The reported errors, each with the name of the call that has reported it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, Error)>>>);

impl Log {
    fn of(comm: &Comm) -> (Comm, Self) {
        let log = Self::default();
        let reports = log.clone();
        let handler = ErrorHandler::call(move |raised| {
            reports.0.lock().unwrap().push((raised.call.to_owned(), raised.error.clone()));
        });
        (comm.with_error_handler(handler), log)
    }

    fn take(&self) -> Vec<(String, Error)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Takes the only reported error. It must be the error that `call` has returned.
    fn took<E: Into<Error>>(&self, call: &str, returned: E) -> Error {
        let (reports, returned) = (self.take(), returned.into());
        assert_eq!(reports, [(call.to_owned(), returned.clone())]);
        returned
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    smol::block_on(future.into_future())
}

/// Runs `body` as the only rank of a job, with a handle whose handler logs the errors.
fn alone(body: impl Fn(&Comm, &Log) + Sync) {
    samite::local(1, |world| {
        let (comm, log) = Log::of(world.comm());
        body(&comm, &log);
        assert!(log.is_empty(), "errors without a call: {:?}", log.take());
    });
}

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::TimedOut { .. })
}

/// The message of a panic.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<String>().map_or("no text", String::as_str)
}

#[test]
fn every_call_reports_a_closed_world_once() {
    samite::local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        drop(world);
        let mut refused = refusals(&comm);
        let all = comm.group();
        let more: [(&str, Option<Error>); 16] = [
            ("dup", comm.dup().err()),
            ("idup", comm.idup().err()),
            ("split", comm.split(None, 0).err()),
            ("isplit", comm.isplit(None, 0).err()),
            ("split_by", comm.split_by(Locality::Host, 0).err()),
            ("split_by", comm.split_by(Locality::Core, 0).err()),
            ("create_from_group", comm.create_from_group(&all, 0).err()),
            ("icreate_from_group", comm.icreate_from_group(&all, 0).err()),
            ("self_comm", comm.self_comm().err()),
            ("create_intercomm", comm.create_intercomm(Rank(0), &comm, Rank(1), 0).err()),
            ("icreate_intercomm", comm.icreate_intercomm(Rank(0), &comm, Rank(1), 0).err()),
            ("lane", comm.lane(0).err()),
            ("driver", comm.driver().err()),
            ("flush_buffer", comm.flush_buffer().err()),
            ("probe_async", block_on(comm.probe_async(Source::ANY, 0)).err()),
            ("claim_async", block_on(comm.claim_async(Source::ANY, 0)).err()),
        ];
        refused.extend(more.map(|(call, error)| (call, error.expect("it is refused"))));
        // "scope isend to none" is `Scope::isend`.
        let name = |call: &str| match call.strip_prefix("scope ") {
            Some(rest) => format!("Scope::{}", rest.split(' ').next().unwrap()),
            None => call.split(' ').next().unwrap().to_owned(),
        };
        let expected: Vec<_> = refused.into_iter().map(|(call, error)| (name(call), error)).collect();
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn every_call_reports_a_wrong_argument_once() {
    alone(|comm, log| {
        let mut room = [0u8; 4];
        log.took("send", comm.send(&[1u8], NO_RANK, 7).unwrap_err());
        log.took("recv", comm.recv(&mut room, NO_RANK, 7).unwrap_err());
        log.took("recv", comm.recv(&mut room, Rank::ABSENT, 7).unwrap_err());
        log.took("recv_vec", comm.recv_vec::<u8>(NO_RANK, 7).unwrap_err());
        log.took("recv_checked", comm.recv_checked(&mut [true], NO_RANK, 7).unwrap_err());
        let layout = Layout::vector(2, 1, 2).unwrap();
        log.took("send_view", comm.send_view(layout.of(&[1u8; 3]).unwrap(), NO_RANK, 7).unwrap_err());
        let mut view = layout.of_mut(&mut room[..3]).unwrap();
        log.took("recv_view", comm.recv_view(&mut view, NO_RANK, 7).unwrap_err());
        for (to, from) in [(NO_RANK, Rank(0)), (Rank(0), NO_RANK)] {
            log.took("sendrecv", comm.sendrecv(&[1u8], to, 7, &mut [0u8], from, 8).unwrap_err());
            log.took("sendrecv_replace", comm.sendrecv_replace(&mut [1u8], to, 7, from, 8).unwrap_err());
            log.took("isendrecv", comm.isendrecv(vec![1u8], to, 7, vec![0u8], from, 8).unwrap_err());
            log.took("isendrecv_replace", comm.isendrecv_replace(vec![1u8], to, 7, from, 8).unwrap_err());
        }
        log.took("bcast", comm.bcast(&mut [1u8], NO_RANK).unwrap_err());
        log.took("allgather", comm.allgather(&[1u8], &mut [0; 3]).unwrap_err());
        log.took("allgatherv", comm.allgatherv(&[1u8], &mut [0; 3], &[]).unwrap_err());
        log.took("allreduce", comm.allreduce(&[1u8], &mut [], Max).unwrap_err());
        log.took("isend", comm.isend(vec![1u8], NO_RANK, 7).unwrap_err());
        log.took("irecv", comm.irecv(vec![1u8], NO_RANK, 7).unwrap_err());
        log.took("irecv", comm.irecv(vec![1u8], Rank::ABSENT, 7).unwrap_err());
        log.took("probe", comm.probe(NO_RANK, 7).unwrap_err());
        log.took("try_probe", comm.try_probe(NO_RANK, 7).unwrap_err());
        log.took("claim", comm.claim(NO_RANK, 7).unwrap_err());
        log.took("try_claim", comm.try_claim(NO_RANK, 7).unwrap_err());
        log.took("send_init", comm.send_init(vec![1u8], NO_RANK, 7).unwrap_err());
        log.took("recv_init", comm.recv_init(vec![1u8], NO_RANK, 7).unwrap_err());
        log.took("psend_init", comm.psend_init(vec![1u8], 1, NO_RANK, 7).err().unwrap());
        log.took("precv_init", comm.precv_init(vec![1u8], 2, Rank(0), 7).err().unwrap());
        log.took("incarnation", comm.incarnation(NO_RANK).unwrap_err());
        log.took("wait_for_restart", comm.wait_for_restart(NO_RANK, SHORT).unwrap_err());
        log.took("lane", comm.lane(7).unwrap_err());
        let driver = comm.driver().unwrap();
        log.took("driver", comm.driver().unwrap_err());
        drop(driver);
        log.took("merge", comm.merge(false).unwrap_err());
        log.took("imerge", comm.imerge(false).unwrap_err());
        log.took("create_intercomm", comm.create_intercomm(NO_RANK, comm, Rank(0), 0).unwrap_err());
        log.took("create_intercomm", comm.create_intercomm(Rank(0), comm, NO_RANK, 0).unwrap_err());
        log.took("create_from_group", comm.create_from_group(&Group::range(NO_RANK, 1), 0).unwrap_err());
    });
}

#[test]
fn errors_of_messages_are_reported() {
    alone(|comm, log| {
        let me = comm.rank();
        let send = || comm.send(&[1u8, 2, 3], me, 7).unwrap();
        send();
        log.took("recv", comm.recv(&mut [0u8; 2], me, 7).unwrap_err());
        send();
        log.took("recv", comm.recv(&mut [0u16; 2], me, 7).unwrap_err());
        send();
        log.took("recv_vec", comm.recv_vec::<u16>(me, 7).unwrap_err());
        send();
        log.took("recv_checked", comm.recv_checked(&mut [false; 3], me, 7).unwrap_err());
        send();
        log.took("Message::recv", comm.claim(me, 7).unwrap().recv::<u16>().unwrap_err());
        send();
        let request = comm.claim(me, 7).unwrap().irecv(vec![0u8; 2]).unwrap();
        log.took("Request::wait", request.wait().unwrap_err());
        send();
        let received = comm.sendrecv(&[1u8], me, 8, &mut [0u8; 2], me, 7).unwrap_err();
        assert!(matches!(log.took("sendrecv", received), Error::Truncated { .. }));
        comm.recv(&mut [0u8], me, 8).unwrap();
        send();
        let short = &mut [0u8; 2];
        let result = comm.scope(|scope| scope.irecv(short, me, 7).map(drop));
        assert!(matches!(log.took("scope", result.unwrap_err()), Error::Truncated { .. }));
    });
}

#[test]
fn timeouts_are_reported_and_cancels_are_not() {
    alone(|comm, log| {
        let (me, cancel) = (comm.rank(), CancelToken::new());
        let soon = comm.with_timeout(SHORT);
        assert!(is_timeout(&log.took("recv", soon.recv(&mut [0u8], me, 7).unwrap_err())));
        assert!(is_timeout(&log.took("probe", soon.probe(me, 7).unwrap_err())));
        assert!(is_timeout(&log.took("claim", soon.claim(me, 7).unwrap_err())));
        assert!(is_timeout(&log.took("recv_vec", soon.recv_vec::<u8>(me, 7).unwrap_err())));
        assert!(is_timeout(&log.took("send", soon.send(&vec![0u8; 8 << 20], me, 6).unwrap_err())));
        let exchange = soon.sendrecv(&[1u8], None, 7, &mut [0u8], me, 7);
        assert!(is_timeout(&log.took("sendrecv", exchange.unwrap_err())));
        cancel.cancel();
        let cancelled = comm.with_cancel(&cancel);
        assert!(matches!(cancelled.recv(&mut [0u8], me, 7), Err(Error::Cancelled { .. })));
        let request = comm.irecv(vec![0u8], me, 7).unwrap();
        request.cancel();
        assert!(matches!(request.wait().unwrap_err().error, Error::Cancelled { .. }));
        // This time-out is not reported, since this handle has no handler.
        let quiet = soon.with_error_handler(ErrorHandler::Return);
        assert!(is_timeout(&quiet.recv(&mut [0u8], me, 7).unwrap_err()));
    });
}

#[test]
fn errors_of_requests_are_reported_where_they_are_returned() {
    alone(|comm, log| {
        let me = comm.rank();
        let receive = || comm.with_timeout(SHORT).irecv(vec![0u8], me, 7).unwrap();
        log.took("Request::wait", receive().wait().unwrap_err());
        let mut request = receive();
        let error = loop {
            assert!(log.is_empty());
            if let Some(end) = request.test() {
                break end.unwrap_err();
            }
        };
        assert!(is_timeout(&log.took("Request::test", error)));
        log.took("Request::test", request.test().unwrap().unwrap_err());
        log.took("Request::wait", request.wait().unwrap_err());
        log.took("Request::await", block_on(receive()).unwrap_err());
        log.took("probe_async", block_on(comm.with_timeout(SHORT).probe_async(me, 7)).unwrap_err());
        log.took("claim_async", block_on(comm.with_timeout(SHORT).claim_async(me, 7)).unwrap_err());
        let exchange = || comm.with_timeout(SHORT).isendrecv(vec![1u8], None, 7, vec![0u8], me, 7).unwrap();
        log.took("Exchange::wait", exchange().wait().unwrap_err());
        let mut exchange = exchange();
        let error = loop {
            if let Some(end) = exchange.test() {
                break end.unwrap_err();
            }
        };
        log.took("Exchange::test", error);
        // Forgotten requests report nothing.
        drop(receive());
    });
}

#[test]
fn a_function_of_a_request_is_called_after_the_handler() {
    alone(|comm, log| {
        let me = comm.rank();
        let end = |comm: &Comm| {
            let (sender, ends) = channel();
            let seen = log.clone();
            comm.irecv(vec![0u8], me, 7).unwrap().on_end(move |end| {
                let reports = seen.take();
                sender.send((reports, end.unwrap_err().error)).unwrap();
            });
            ends.recv().expect("it is called")
        };
        let (reports, error) = end(&comm.with_timeout(SHORT));
        assert_eq!(reports, [("Request::on_end".to_owned(), error)]);
        // Here the request has ended before `on_end` is called.
        let (reports, error) = end(&comm.with_timeout(Duration::ZERO));
        assert_eq!(reports, [("Request::on_end".to_owned(), error)]);

        // The handler is called in the thread of the runtime that makes progress for futures. It may wait for a message
        // there, and so may the body.
        let (sender, ends) = channel();
        let sender = Mutex::new(sender);
        let answers = comm.with_error_handler(ErrorHandler::call(move |raised| {
            let (comm, sender) = (raised.comm.with_timeout(LONG), sender.lock().unwrap());
            sender.send(comm.recv_vec::<u8>(me, 9).map(|done| done.buffer)).unwrap();
        }));
        answers.with_timeout(SHORT).irecv(vec![0u8], me, 7).unwrap().on_end(|_| {});
        comm.send(&[5u8], me, 9).unwrap();
        assert_eq!(ends.recv().unwrap(), Ok(vec![5]));

        // A handler that panics has the same effect as a body that panics: the panic is reported, and the thread
        // continues.
        struct OnDrop(Sender<()>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (sender, dropped) = channel();
        let panics = comm.with_error_handler(ErrorHandler::call(|_| resume_unwind(Box::new("silent"))));
        let on_drop = OnDrop(sender);
        panics.with_timeout(SHORT).irecv(vec![0u8], me, 7).unwrap().on_end(move |_| {
            let _kept = &on_drop;
            unreachable!("the handler has panicked");
        });
        dropped.recv().unwrap();
        assert_eq!(end(&comm.with_timeout(SHORT)).0.len(), 1);
    });
}

#[test]
fn sets_report_to_the_handler_of_each_request() {
    alone(|comm, log| {
        let me = comm.rank();
        let (other, others) = Log::of(&comm.dup().unwrap());
        let fill = || {
            let mut set = comm.request_set();
            for comm in [comm, &other] {
                let request = comm.with_timeout(SHORT).irecv(vec![0u8], me, 7).unwrap();
                set.insert(request).unwrap();
            }
            set
        };
        let both = |call: &str| {
            for log in [log, &others] {
                let reports = log.take();
                assert_eq!(reports.len(), 1, "{call}: {reports:?}");
                assert!(reports[0].0 == call && is_timeout(&reports[0].1), "{call}: {reports:?}");
            }
        };
        let mut set = fill();
        assert!(set.wait_any().unwrap().1.is_err() && set.wait_any().unwrap().1.is_err());
        both("RequestSet::wait_any");
        assert!(fill().wait_all().iter().all(|(_, end)| end.is_err()));
        both("RequestSet::wait_all");
        let mut set = fill();
        while !set.is_empty() {
            assert!(set.wait_some().iter().all(|(_, end)| end.is_err()));
        }
        both("RequestSet::wait_some");
        let mut set = fill();
        while !set.is_empty() {
            assert!(set.test_any().is_none_or(|(_, end)| end.is_err()));
        }
        both("RequestSet::test_any");
        let mut set = fill();
        while !set.is_empty() {
            assert!(set.test_some().iter().all(|(_, end)| end.is_err()));
        }
        both("RequestSet::test_some");
        let mut set = fill();
        while set.test_all().is_none() {}
        both("RequestSet::test_all");
        // A request that is taken out keeps its handler.
        let mut set = fill();
        let (mine, theirs) = (set.remove(0).unwrap(), set.remove(1).unwrap());
        log.took("Request::wait", mine.wait().unwrap_err());
        others.took("Request::wait", theirs.wait().unwrap_err());
        assert!(log.is_empty());
        // If the result of a request was taken before, the set returns an error for it, and reports the error.
        let mut finished = comm.irecv(vec![0u8], None, 7).unwrap();
        finished.test().unwrap().unwrap();
        let mut set = other.request_set();
        set.insert(finished).unwrap();
        log.took("RequestSet::wait_any", set.wait_any().unwrap().1.unwrap_err());
    });
}

#[test]
fn scopes_report_each_error_once() {
    alone(|comm, log| {
        let (me, soon) = (comm.rank(), comm.with_timeout(SHORT));
        let scope =
            |body: &dyn Fn(&mut samite::Scope<'_, '_>) -> Result<(), Error>| soon.scope(|scope| body(scope));
        // The calls in the body report their errors, and the end of the scope does not report them again.
        let failed = scope(&|scope| scope.isend(&[1u8], NO_RANK, 7).map(drop)).unwrap_err();
        log.took("Scope::isend", failed);
        let mut room = [[0u8]; 8];
        let [a, b, c, d, e, f, ..] = &mut room;
        let failed = soon.scope(|scope| {
            let receive = scope.irecv(a, me, 7)?;
            scope.wait(receive)
        });
        log.took("Scope::wait", failed.unwrap_err());
        let failed = soon.scope(|scope| {
            let mut receive = scope.irecv(b, me, 7)?;
            loop {
                if let Some(end) = scope.test(&mut receive) {
                    assert_eq!(scope.test(&mut receive), Some(Err(Error::NoSuchRequest)));
                    break end.map(drop);
                }
            }
        });
        let reports = log.take();
        assert_eq!(reports[0], ("Scope::test".to_owned(), failed.unwrap_err()));
        assert_eq!(reports[1..], [("Scope::test".to_owned(), Error::NoSuchRequest)]);
        // Here the body does not wait for its operation, so the end of the scope reports the error.
        let failed = soon.scope(|scope| scope.irecv(c, me, 7).map(drop));
        log.took("scope", failed.unwrap_err());
        // An error of the program's own is not reported.
        assert_eq!(soon.scope(|_| Err::<(), _>(Error::Inactive)), Err(Error::Inactive));
        assert!(log.is_empty());
        // An error that the body handles was reported by the call in the body.
        let kept = comm.scope(|scope| Ok(scope.isend(&[1u8], NO_RANK, 7).is_err()));
        assert!(matches!(kept, Ok(true)) && log.take().len() == 1);
        let failed = soon.scope(|scope| {
            let mut set = PendingSet::default();
            set.insert(scope.irecv(d, me, 7)?);
            set.insert(scope.irecv(e, me, 7)?);
            let first = scope.wait_any(&mut set).unwrap().1.unwrap_err();
            log.took("Scope::wait_any", first);
            let second = scope.wait_all(&mut set).pop().unwrap().1.unwrap_err();
            log.took("Scope::wait_all", second);
            set.insert(scope.irecv(f, me, 7)?);
            loop {
                if let Some((_, end)) = scope.test_any(&mut set) {
                    break end;
                }
            }
        });
        log.took("Scope::test_any", failed.unwrap_err());
    });
}

#[test]
fn repeated_operations_report_their_errors() {
    alone(|comm, log| {
        let (me, soon) = (comm.rank(), comm.with_timeout(SHORT));
        let mut receive = soon.recv_init(vec![0u8], me, 7).unwrap();
        log.took("PersistentRecv::wait", receive.wait().unwrap_err());
        receive.start().unwrap();
        log.took("PersistentRecv::start", receive.start().unwrap_err());
        log.took("PersistentRecv::buffer", receive.buffer().unwrap_err());
        log.took("PersistentRecv::buffer_mut", receive.buffer_mut().unwrap_err());
        log.took("PersistentRecv::replace_buffer", receive.replace_buffer(vec![]).unwrap_err());
        let mut send = comm.send_init(vec![1u8], me, 8).unwrap();
        let operations: &mut [&mut dyn Persistent] = &mut [&mut send, &mut receive];
        log.took("start_all", start_all(operations).unwrap_err());
        log.took("PersistentSend::wait", send.wait().unwrap_err());
        assert!(is_timeout(&log.took("PersistentRecv::wait", receive.wait().unwrap_err())));
        receive.start().unwrap();
        let error = loop {
            if let Some(end) = receive.test() {
                break end.unwrap_err();
            }
        };
        assert!(is_timeout(&log.took("PersistentRecv::test", error)));

        let mut send = soon.psend_init(vec![0u8; 4], 2, me, 7).unwrap();
        log.took("PartitionedSend::part", send.part(0).unwrap_err());
        log.took("PartitionedSend::parts", send.parts().err().unwrap());
        log.took("PartitionedSend::ready", send.ready(0..1).unwrap_err());
        log.took("PartitionedSend::wait", send.wait().unwrap_err());
        send.start().unwrap();
        log.took("PartitionedSend::start", send.start().unwrap_err());
        log.took("PartitionedSend::part", send.part(2).unwrap_err());
        log.took("PartitionedSend::buffer_mut", send.buffer_mut().unwrap_err());
        assert!(is_timeout(&log.took("PartitionedSend::wait", send.wait().unwrap_err())));
        let mut receive = soon.precv_init(vec![0u8; 4], 2, me, 9).unwrap();
        log.took("PartitionedRecv::test", receive.test().unwrap().unwrap_err());
        log.took("PartitionedRecv::partition", receive.partition(2).unwrap_err());
        receive.start().unwrap();
        log.took("PartitionedRecv::arrived", receive.arrived(1..3).unwrap_err());
        log.took("PartitionedRecv::buffer_mut", receive.buffer_mut().unwrap_err());
        let error = loop {
            if let Some(end) = receive.test() {
                break end.unwrap_err();
            }
        };
        assert!(is_timeout(&log.took("PartitionedRecv::test", error)));
    });
}

#[test]
fn failures_of_peers_are_reported_in_ranks_of_the_communicator() {
    samite::local(3, |world| {
        let (comm, log) = Log::of(world.comm());
        let reversed = comm.split(Some(0), -i64::from(comm.rank().0)).unwrap().unwrap();
        let failed = Rank(2);
        if reversed.rank() == failed {
            for other in [Rank(0), Rank(1)] {
                reversed.recv(&mut [0u8; 0], other, 1).unwrap();
            }
            return;
        }
        let receive = reversed.irecv(vec![0u8], failed, 7).unwrap();
        reversed.send(&[0u8; 0], failed, 1).unwrap();
        let error = log.took("Request::wait", receive.wait().unwrap_err());
        assert!(matches!(error, Error::PeerFailed { rank: Rank(2), world_rank: Rank(0), .. }), "{error}");
        let error = log.took("recv", reversed.recv(&mut [0u8], failed, 7).unwrap_err());
        assert!(matches!(error, Error::PeerFailed { rank: Rank(2), .. }), "{error}");
    });
}

#[test]
fn what_is_made_of_a_handle_has_its_handler() {
    let mut settings = samite::Settings::default();
    settings.set_lanes(2).unwrap();
    settings.local(2, |world| {
        let (comm, log) = Log::of(world.comm());
        let rank = comm.rank();
        let fails = |made: &Comm| {
            log.took("send", made.send(&[1u8], NO_RANK, 7).unwrap_err());
            assert!(matches!(made.error_handler(), ErrorHandler::Call(_)));
        };
        fails(&comm.clone());
        fails(&comm.with_timeout(LONG).with_cancel(&CancelToken::new()).with_mode(samite::Mode::Buffered));
        let duplicate = comm.dup().unwrap();
        fails(&duplicate);
        fails(&duplicate.dup().unwrap());
        fails(&comm.idup().unwrap().wait().unwrap());
        fails(&comm.split(Some(0), 0).unwrap().unwrap());
        fails(&comm.split_by(Locality::Host, 0).unwrap().unwrap());
        fails(&comm.create_from_group(&comm.group(), 7).unwrap());
        let alone = comm.self_comm().unwrap();
        fails(&alone);
        let inter = alone.create_intercomm(Rank(0), &comm, Rank(1 - rank.0), 7).unwrap();
        fails(&inter);
        fails(&inter.merge(false).unwrap());
        fails(&inter.dup().unwrap());
        let lane = comm.with_buffer(1 << 10).lane(1).unwrap();
        fails(&lane);
        fails(&lane.dup().unwrap());
        // A buffer does not replace the handler, and a handler does not replace the buffer: a message that does not fit
        // into the buffer is an error, which the handler gets.
        let buffered = comm.with_buffer(8).with_mode(samite::Mode::Buffered);
        let full = (0..).find_map(|_| buffered.send(&[0u8; 64 << 10], Rank(1 - rank.0), 8).err()).unwrap();
        log.took("send", full);
        let again = buffered.with_error_handler(ErrorHandler::Return);
        assert!(again.send(&vec![0u8; 8 << 20], Rank(1 - rank.0), 8).is_err());
        // Other handles of the same communicator return errors.
        assert!(matches!(world.comm().error_handler(), ErrorHandler::Return));
        assert!(world.comm().send(&[1u8], NO_RANK, 7).is_err());
        assert!(world.comm().dup().unwrap().send(&[1u8], NO_RANK, 7).is_err());
        assert!(log.is_empty());
    });
}

#[test]
fn a_panic_names_the_call_and_the_error() {
    alone(|comm, _| {
        let comm = comm.dup().unwrap().with_error_handler(ErrorHandler::Panic).with_timeout(SHORT);
        let me = comm.rank();
        let panics = |call: &dyn Fn()| {
            let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            message(&*panic).to_owned()
        };
        assert_eq!(
            panics(&|| comm.send(&[1u8], NO_RANK, 7).unwrap()),
            "`send` failed at rank 0 of 1: there is no rank 9 in a communicator of 1: ranks count from 0 to 0"
        );
        comm.set_name("apart");
        let text = panics(&|| drop(comm.recv(&mut [0u8], me, 7)));
        assert!(
            text.starts_with("`recv` failed at rank 0 of 1 in communicator `apart`: timed out"),
            "{text}"
        );
        let text = panics(&|| drop(comm.irecv(vec![0u8], me, 7).unwrap().wait()));
        assert!(text.starts_with("`Request::wait` failed"), "{text}");
        let text = panics(&|| {
            let (mut first, second) = ([0u8], vec![0u8; 1 << 20]);
            drop(comm.scope(|scope| {
                let receive = scope.irecv(&mut first, me, 7)?;
                scope.isend(&second, me, 8)?;
                scope.wait(receive)
            }));
        });
        assert!(text.starts_with("`Scope::wait` failed"), "{text}");
        let text = panics(&|| drop(comm.sendrecv(&[1u8], me, 7, &mut [0u8], me, 9)));
        assert!(text.starts_with("`sendrecv` failed"), "{text}");
        // Later calls still succeed, and no request was left behind.
        comm.recv(&mut [0u8], me, 7).unwrap();
        comm.sendrecv(&[1u8], me, 7, &mut [0u8], me, 7).unwrap();
        assert_eq!(comm.stats().requests, 0);
    });
}

/// A second panic would abort the process.
#[test]
fn a_thread_that_panics_gets_errors() {
    struct Sends(Comm, Sender<Result<(), Error>>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.1.send(self.0.send(&[1u8], NO_RANK, 7)).unwrap();
        }
    }
    alone(|comm, _| {
        let (sender, sent) = channel();
        let sends = Sends(comm.with_error_handler(ErrorHandler::Panic), sender);
        let panic = catch_unwind(AssertUnwindSafe(move || {
            let _sends = sends;
            resume_unwind(Box::new("unwinds without a message"));
        }));
        assert!(panic.is_err());
        assert!(matches!(sent.recv().unwrap(), Err(Error::InvalidRank { .. })));
    });
}

#[test]
fn a_handler_may_call_the_same_communicator() {
    samite::local(2, |world| {
        let comm = world.comm();
        if comm.rank() == 1 {
            for _ in 0..6 {
                let question = comm.recv_vec::<u8>(Rank(0), 8).unwrap().buffer;
                comm.send(&[question[0] + 1], Rank(0), 9).unwrap();
            }
            return;
        }
        let answers = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&answers);
        let asks = comm
            .with_error_handler(ErrorHandler::call(move |raised| {
                let comm = raised.comm.with_timeout(LONG);
                let mut answer = [0u8];
                comm.scope(|scope| {
                    let receive = scope.irecv(&mut answer, Rank(1), 9)?;
                    scope.isend(&[41u8], Rank(1), 8)?;
                    scope.wait(receive)
                })
                .unwrap();
                count.fetch_add(usize::from(answer[0]), Ordering::Relaxed);
            }))
            .with_timeout(SHORT);
        assert!(asks.recv(&mut [0u8], Rank(1), 7).is_err());
        assert!(asks.irecv(vec![0u8], Rank(1), 7).unwrap().wait().is_err());
        assert!(asks.irecv(vec![0u8], NO_RANK, 7).is_err());
        let mut room = [0u8];
        assert!(asks.scope(|scope| scope.irecv(&mut room, Rank(1), 7).map(drop)).is_err());
        let mut set = asks.request_set();
        set.insert(asks.irecv(vec![0u8], Rank(1), 7).unwrap()).unwrap();
        assert!(set.wait_any().unwrap().1.is_err());
        assert!(asks.dup().is_err());
        assert_eq!(answers.load(Ordering::Relaxed), 6 * 42);
    });
}

#[test]
fn a_function_whose_calls_fail_is_not_called_for_them() {
    alone(|comm, _| {
        let calls = Arc::new(AtomicUsize::new(0));
        let (count, fails) = (Arc::clone(&calls), comm.clone());
        let (other, log) = Log::of(comm);
        let first = comm.with_error_handler(ErrorHandler::call(move |raised| {
            count.fetch_add(1, Ordering::Relaxed);
            assert!(raised.comm.send(&[1u8], NO_RANK, 7).is_err());
            assert!(fails.send(&[1u8], NO_RANK, 7).is_err());
            assert!(other.send(&[1u8], NO_RANK, 7).is_err());
            // Other threads have handlers meanwhile.
            thread::scope(|threads| {
                threads.spawn(|| assert!(other.send(&[1u8], NO_RANK, 7).is_err()));
            });
        }));
        assert!(first.send(&[1u8], NO_RANK, 7).is_err());
        assert_eq!((calls.load(Ordering::Relaxed), log.take().len()), (1, 1));
    });
}

/// A driver calls the functions of requests. The errors of these requests belong to no call of the handler.
#[test]
fn a_handler_that_drives_hides_no_error_of_another_request() {
    samite::local(1, |world| {
        let driver = world.comm().driver().unwrap();
        let log = Log::default();
        let (reports, left) = (log.clone(), Arc::new(AtomicUsize::new(3)));
        let waits_for = Arc::clone(&left);
        let comm = world.comm().with_error_handler(ErrorHandler::call(move |raised| {
            reports.0.lock().unwrap().push((raised.call.to_owned(), raised.error.clone()));
            while raised.call == "send" && waits_for.load(Ordering::Relaxed) > 0 {
                driver.drive().unwrap();
            }
        }));
        for _ in 0..3 {
            let left = Arc::clone(&left);
            let receive = comm.with_timeout(SHORT).irecv(vec![0u8], comm.rank(), 7).unwrap();
            receive.on_end(move |end| {
                assert!(is_timeout(&end.unwrap_err().error));
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        assert!(comm.send(&[1u8], NO_RANK, 7).is_err());
        let calls: Vec<_> = log.take().into_iter().map(|(call, _)| call).collect();
        assert_eq!(calls, ["send", "Request::on_end", "Request::on_end", "Request::on_end"]);
    });
}

#[test]
fn a_function_that_panics_leaves_the_handle_usable() {
    alone(|comm, log| {
        let panics =
            comm.with_error_handler(ErrorHandler::call(|_| resume_unwind(Box::new("of the handler"))));
        for _ in 0..2 {
            let panic = catch_unwind(AssertUnwindSafe(|| panics.send(&[1u8], NO_RANK, 7))).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the handler"));
        }
        // After the panics this thread does not count as a thread that runs a handler.
        log.took("send", comm.send(&[1u8], NO_RANK, 7).unwrap_err());
        panics.sendrecv(&[1u8], Rank(0), 7, &mut [0u8], Rank(0), 7).unwrap();
    });
}

#[test]
fn threads_report_at_the_same_time() {
    const THREADS: usize = 4;
    const ERRORS: usize = 200;
    alone(|comm, _| {
        let (meeting, count) = (Arc::new(std::sync::Barrier::new(THREADS)), Arc::new(AtomicUsize::new(0)));
        let (meets, counts) = (Arc::clone(&meeting), Arc::clone(&count));
        let comm = comm.with_error_handler(ErrorHandler::call(move |raised| {
            // Each error is reported in the thread of its call, and no lock keeps the other threads out.
            assert_eq!(raised.call, "recv");
            meets.wait();
            counts.fetch_add(1, Ordering::Relaxed);
        }));
        thread::scope(|threads| {
            for tag in 0..THREADS as u64 {
                let comm = comm.clone();
                threads.spawn(move || {
                    for _ in 0..ERRORS {
                        comm.send(&[1u8, 2], Rank(0), tag).unwrap();
                        assert!(comm.recv(&mut [0u8], Rank(0), tag).is_err());
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), THREADS * ERRORS);
    });
}

#[test]
fn a_program_reports_errors_of_its_own() {
    alone(|comm, log| {
        let error = Error::Exhausted { what: "iterations", hint: "raise the limit".into() };
        comm.call_error_handler("solve", &error);
        log.took("solve", error);
        comm.with_error_handler(ErrorHandler::Return).call_error_handler("solve", &Error::Inactive);
    });
}

/// The environment variable that is set for the child process, which aborts.
const ABORTS: &str = "SAMITE_TEST_ABORTS";

#[test]
fn an_abort_ends_the_process_with_the_error() {
    #[expect(clippy::disallowed_methods, reason = "the test is two processes")]
    if std::env::var_os(ABORTS).is_some() {
        samite::local(2, |world| {
            let comm = world.comm();
            match comm.rank() {
                Rank(0) => drop(comm.with_error_handler(ErrorHandler::Abort).send(&[1u8], NO_RANK, 7)),
                // Waits for ever.
                _ => drop(comm.recv(&mut [0u8], Rank(1), 7)),
            }
            unreachable!("the process has ended");
        });
    }
    let name = "an_abort_ends_the_process_with_the_error";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ABORTS, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.code(), Some(1));
    let text = String::from_utf8(child.stderr).unwrap();
    assert_eq!(
        text,
        "samite: `send` failed at rank 0 of 2: there is no rank 9 in a communicator of 2: ranks count from 0 to 1\n"
    );
}

#[test]
fn children_of_a_fork_report_nothing() {
    alone(|comm, log| {
        let silent = samite_os::fork::in_a_child(|| {
            comm.with_error_handler(ErrorHandler::Panic).send(&[1u8], Rank(0), 7) == Err(Error::Forked)
                && comm.recv(&mut [0u8], Rank(0), 7) == Err(Error::Forked)
                && log.0.try_lock().is_ok_and(|reports| reports.is_empty())
        });
        assert!(silent.is_ok(), "{silent:?}");
    });
}
