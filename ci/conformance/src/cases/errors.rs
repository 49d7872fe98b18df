//! Error handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use samite::{Comm, Error, ErrorHandler, Rank, Status};

use crate::case::{Cases, Job, SHORT, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    predefined(cases);
    functions(cases);
    inheritance(cases);
}

/// The errors with which an error handler was called.
type Calls = Arc<Mutex<Vec<Error>>>;

/// Returns a handle with a function as its error handler, and the errors with which that function was called.
fn kept(comm: &Comm) -> (Comm, Calls) {
    let calls = Calls::default();
    let kept = Arc::clone(&calls);
    let function = ErrorHandler::call(move |raised| kept.lock().unwrap().push(raised.error.clone()));
    (comm.with_error_handler(function), calls)
}

/// Checks that the error handler was called once, with the error in `returned`.
fn expect_call<T: std::fmt::Debug>(calls: &Calls, returned: Result<T, Error>) {
    let called = std::mem::take(&mut *calls.lock().unwrap());
    assert_eq!(called, [returned.expect_err("it fails")]);
}

/// Returns a rank that does not exist.
fn beyond(comm: &Comm) -> Rank {
    Rank(comm.size())
}

fn predefined(cases: &mut Cases) {
    cases.section("9.3");
    cases.add("errors.return", 1, "without a handler a call returns its error", |job| {
        assert!(matches!(job.comm.error_handler(), ErrorHandler::Return));
        expect_error!(job.comm.send(&[1u8], beyond(&job.comm), 7), Error::InvalidRank { .. });
        Ok(())
    });
    cases.add("errors.panic", 1, "with the handler `Panic` a call that fails does not return", |job| {
        let comm = job.comm.with_error_handler(ErrorHandler::Panic);
        assert!(catch_unwind(AssertUnwindSafe(|| comm.send(&[1u8], beyond(&comm), 7))).is_err());
        comm.sendrecv(&[1u8], comm.rank(), 7, &mut [0u8], comm.rank(), 7).map(drop)
    });
}

fn functions(cases: &mut Cases) {
    cases.section("9.3.1");
    cases.add("errors.call", 1, "a handler is called once for an error, which the call returns", |job| {
        let (comm, calls) = kept(&job.comm);
        expect_call(&calls, comm.send(&[1u8], beyond(&comm), 7));
        expect_call(&calls, comm.with_timeout(SHORT).recv(&mut [0u8], comm.rank(), 7));
        let mut byte = [0u8];
        let scoped = comm.with_timeout(SHORT).scope(|scope| {
            let receive = scope.irecv(&mut byte, comm.rank(), 7)?;
            scope.wait(receive)
        });
        expect_call(&calls, scoped);
        expect_error!(job.comm.send(&[1u8], beyond(&comm), 7), Error::InvalidRank { .. });
        assert!(calls.lock().unwrap().is_empty(), "another handle has no handler");
        Ok(())
    });
    cases.add(
        "errors.request",
        2,
        "the error of a request is that of the handle that made it, in the call that returns it",
        |job| {
            let (comm, calls) = kept(&job.comm);
            let request = comm.with_timeout(SHORT).irecv(vec![0u8], job.other(), 7)?;
            assert!(calls.lock().unwrap().is_empty());
            expect_call(&calls, request.wait().map_err(Error::from));
            let mut set = job.comm.request_set();
            set.insert(comm.with_timeout(SHORT).irecv(vec![0u8], job.other(), 7)?).expect("of this lane");
            let (_, end) = set.wait_any().expect("it has a request");
            expect_call(&calls, end.map_err(Error::from));
            job.barrier()
        },
    );
    cases.add("errors.calls-back", 2, "a handler may communicate on the same communicator", |job| {
        let other = job.other();
        let answer = Arc::new(Mutex::new(None));
        let answers = Arc::clone(&answer);
        let comm = job.comm.with_error_handler(ErrorHandler::call(move |raised| {
            let mut byte = [0u8];
            let status = raised.comm.sendrecv(&[5u8], other, 8, &mut byte, other, 8);
            *answers.lock().unwrap() = Some(status.map(|Status { peer, .. }| (peer, byte)));
        }));
        expect_error!(comm.send(&[1u8], beyond(&comm), 7), Error::InvalidRank { .. });
        assert_eq!(answer.lock().unwrap().take(), Some(Ok((other, [5]))));
        Ok(())
    });
    cases.section("3.8.4");
    cases.add("errors.cancelled", 1, "a cancelled operation is no error for the handler", |job| {
        let (comm, calls) = kept(&job.comm);
        let request = comm.irecv(vec![0u8], comm.rank(), 7)?;
        request.cancel();
        expect_error!(request.wait().map_err(Error::from), Error::Cancelled { .. });
        assert!(calls.lock().unwrap().is_empty());
        Ok(())
    });
    cases.section("9.5");
    cases.add("errors.own", 1, "a program can call the handler of a handle for its own error", |job| {
        let (comm, calls) = kept(&job.comm);
        comm.call_error_handler("solve", &Error::Inactive);
        expect_call(&calls, Err::<(), _>(Error::Inactive));
        Ok(())
    });
}

fn inheritance(cases: &mut Cases) {
    cases.section("9.3");
    cases.add("errors.inherited", 2, "a new communicator has the handler of its parent", |job: &Job| {
        let (comm, calls) = kept(&job.comm);
        let alone = comm.self_comm()?;
        let inter = alone.create_intercomm(Rank(0), &comm, job.other(), 7)?;
        let made = [
            comm.dup()?,
            comm.split(Some(0), 0)?.expect("it has a colour"),
            comm.create_from_group(&comm.group(), 7)?,
            inter.merge(false)?,
            inter,
            alone,
        ];
        for comm in made {
            expect_call(&calls, comm.send(&[1u8], Rank(7), 7));
        }
        job.barrier()
    });
    cases.add("errors.creation", 2, "the error of a creation is that of its parent", |job| {
        let (comm, calls) = kept(&job.comm);
        if job.rank() == 0 {
            expect_call(&calls, comm.with_timeout(SHORT).dup());
        }
        job.barrier()?;
        assert!(calls.lock().unwrap().is_empty());
        Ok(())
    });
}
